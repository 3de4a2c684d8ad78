"""Readers of files: one module for each layout."""
