"""Data generators: seeded, endless or counted, in constant memory. The standard library is all they need."""
