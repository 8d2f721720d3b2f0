"""kinprint."""
