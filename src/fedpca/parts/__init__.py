"""The parts that methods are made of: what clients report, select and train, and how the server answers."""
