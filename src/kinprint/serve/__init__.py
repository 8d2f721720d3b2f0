"""Serve comparisons, searches and the catalog as web pages and as an API: stored results, and jobs in processes of their own."""
