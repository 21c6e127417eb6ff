"""Methods, as `params.yaml` lists them, fitted and applied to the regions of a run: stages `fit` and `score`."""
