"""Results as HTML fragments for notebooks."""
