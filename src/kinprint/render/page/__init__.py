"""Write a report as one HTML file that opens from disk, needs no network, and is readable without scripts."""

from kinprint.render.page.report import report_html as page_html

__all__ = ["page_html"]
