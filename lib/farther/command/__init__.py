"""The command `farther`.

Each subcommand is a function in a module of its own; `program` lists them. The function's
annotations are its arguments, its docstring is its help, and what it returns is the exit status
(None is 0). Modules import at their head what starts fast, and the rest inside functions: `farther
--help` must not wait for PyTorch, nor for NumPy.
"""

from farther.command.program import main

__all__ = ["main"]
