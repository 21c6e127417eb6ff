"""All metrics of one run, from its regions and scores: stages `proposals`, `evaluate`, `choose`."""
