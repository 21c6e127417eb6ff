"""The stages `threshold` and `evaluate`: all metrics of one run, from the files of the stages before."""
