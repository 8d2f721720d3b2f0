"""Write results as SARIF 2.1.0."""
