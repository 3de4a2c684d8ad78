"""Parts that run where the updates meet."""
