"""Support for tests and benches: a local hub and small or sparse model layouts. No product module imports it."""
