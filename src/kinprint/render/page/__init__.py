"""A report as one HTML file that opens from disk, needs no network, and reads without scripts."""

from kinprint.render.page.assemble import page_html

__all__ = ["page_html"]
