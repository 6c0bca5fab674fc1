"""What the benchmarks share: figures, projects and fleets, raw workers, peers, processes."""
