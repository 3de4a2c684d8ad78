"""Other simulators on the same workloads, each with its own engine and FedAvg; `make bench-peers` installs them.

`python -m benchmarks.peers.NAME WORKLOAD [WORKERS]` in the peer's own virtual environment enters it into a race.
"""
