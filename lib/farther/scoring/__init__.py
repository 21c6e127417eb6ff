"""The stage `score`: methods, as `params.yaml` lists them, fitted and applied to the regions of a run."""
