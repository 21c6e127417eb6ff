"""Only the test is collected: the other files are those of the program that it runs."""

collect_ignore = [
    "contents.py",
    "grammar.py",
    "meaning.py",
    "mutate.py",
    "networks.py",
    "reruns.py",
    "results.py",
    "run.py",
    "targets.py",
    "texts.py",
    "values.py",
]
