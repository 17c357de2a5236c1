"""Data generators: seeded, endless or counted, in constant memory, with the standard library alone."""
