"""All metrics of one run, from its regions and scores: stages `evaluate` and `choose`."""
