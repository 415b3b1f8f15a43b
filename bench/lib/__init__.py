"""What the benchmarks on the real cluster share."""
