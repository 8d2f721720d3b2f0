"""Try to fool the engine: independent models made to look alike, and copies made to look independent."""
