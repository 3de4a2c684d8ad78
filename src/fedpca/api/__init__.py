"""Everything that the command line can do, as calls from Python: `fedpca.train` and `fedpca.run`."""
