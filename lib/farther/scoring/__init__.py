"""Methods, as `params.yaml` lists them, fitted and applied to the regions of a run: part of the stage `evaluate`."""
