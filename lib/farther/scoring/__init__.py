"""Methods of `params.yaml`, fitted and applied to the regions of a run.

The stages `fit` and `score`.
"""
