"""Seeded generators of realistic records."""
