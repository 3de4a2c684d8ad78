"""Run folders as values: settings, rounds, and what they say of each client."""
