"""Statistics of metrics: intervals, comparisons, mean ranks, correlations, guaranteed limits."""
