"""Statistics of metrics: intervals and comparisons, mean ranks, correlations, and thresholds with a guarantee."""
