"""Studies behind design decisions; their findings are in LOG.md."""
