"""Everything around the benchmark: demo world, training, publication, derived data, enrichment, review."""
