"""Networks, and a model as vectors."""
