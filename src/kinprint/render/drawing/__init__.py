"""Draw family trees."""
