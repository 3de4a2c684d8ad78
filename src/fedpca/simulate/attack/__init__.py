"""Simulated clients that attack the federation they are in: what a liar could do, and what comes of it."""
