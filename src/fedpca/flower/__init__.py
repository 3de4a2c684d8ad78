"""Real sites behind Flower."""
