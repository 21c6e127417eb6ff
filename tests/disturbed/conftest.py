"""The tests are collected; the other file is the program that they run."""

collect_ignore = ["commands.py", "disks.py"]
