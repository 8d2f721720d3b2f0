"""Write a report as one HTML file that opens from disk, needs no network, and is readable without scripts."""
