"""Clients in this process."""
