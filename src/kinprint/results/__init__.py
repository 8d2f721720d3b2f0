"""What a run returns and writes: frozen dataclasses with a versioned JSON form."""
