"""All metrics of one run, from its regions and scores: the second half of the stage `evaluate`."""
