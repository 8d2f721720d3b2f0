"""Results as CycloneDX ML-BOM."""
