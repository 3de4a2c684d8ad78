"""Runs, or the clients of one run, on the workers of a Dask cluster."""
