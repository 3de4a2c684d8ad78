"""Seeded nonsense for every door of the package: `python -m studies.fuzz`."""
