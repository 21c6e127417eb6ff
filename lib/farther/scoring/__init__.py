"""The stages `fit` and `score`: methods, as `params.yaml` lists them, applied to the regions of a run."""
