"""Write results as Markdown."""
