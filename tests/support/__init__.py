"""Support for tests and benches: a local hub, model layouts, fuzzing, reports to render. The product never imports it."""
