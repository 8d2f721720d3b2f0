"""Results as tidy tables: CSV and Parquet."""
