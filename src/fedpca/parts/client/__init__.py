"""Parts that run where the data are."""
