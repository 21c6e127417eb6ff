"""Programs, no tests."""

collect_ignore = ["changes.py", "run.py"]
