"""Family trees as pictures."""
