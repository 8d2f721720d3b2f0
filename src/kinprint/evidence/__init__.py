"""The evidence engine: from slices of two models to tests, a layer map, controls, and a verdict."""
