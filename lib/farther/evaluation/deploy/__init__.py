"""The setting to deploy of a run: the method and the thresholds t* and τ that fit a budget."""
