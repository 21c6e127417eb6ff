"""The command `farther`: what is missing, why a number or an image is what it is, and what changed.

Each subcommand is a module here with `NAME`, `SUMMARY`, `EXAMPLES`, `add_arguments(parser)` and `run(given)`, which
returns the exit status. Modules import at their head what starts fast, and the rest inside `run`: `farther --help`
must not wait for PyTorch, nor for NumPy.
"""

from farther.command.program import main

__all__ = ["main"]
