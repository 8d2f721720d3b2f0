"""Write results as CycloneDX ML-BOM."""
