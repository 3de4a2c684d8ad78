"""Real sites behind NVFlare."""
