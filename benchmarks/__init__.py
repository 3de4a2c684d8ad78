"""Speed and memory, side by side in one run: `python -m benchmarks [NAME…] [--json]`."""
