"""Only the test is collected: the other files are those of the program that it runs."""

collect_ignore = ["mutate.py", "networks.py", "results.py", "run.py", "targets.py"]
