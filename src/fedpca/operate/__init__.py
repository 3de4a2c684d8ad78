"""The processes, keys and checks of a deployment."""
