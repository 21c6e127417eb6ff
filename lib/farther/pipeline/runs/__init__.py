"""What stages of all runs do for one of them: each module has a function `work` that takes a run.

`farther.pipeline.workers` calls it, in a process of its own or on a machine of a cluster.
"""
