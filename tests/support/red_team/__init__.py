"""The red team: what is done to models to fool the engine, and the right answers. `kinprint bench red-team` runs it."""
