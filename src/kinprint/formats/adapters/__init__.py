"""Read low-rank adapters in PEFT's layout."""
