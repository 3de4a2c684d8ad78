"""Federations of real sites, on Flower; the only package that imports it."""
