"""Show results in notebooks, as HTML fragments."""
