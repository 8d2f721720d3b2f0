"""Write results as tidy tables: CSV, Parquet, pandas."""
