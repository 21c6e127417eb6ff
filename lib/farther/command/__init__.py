"""The command `farther`.

Each subcommand is a function in a module of its own; `program` lists them. The function's
annotations are its arguments, its docstring is its help, and what it returns is the exit status
(None is 0). Modules import at their head what starts fast, and the rest inside functions: `farther
--help` must not wait for PyTorch, nor for NumPy.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command `farther`; see `farther.command.program.main`.

    Ctrl-C ends it quietly from the start, also while it imports modules: this module imports
    none at its head.
    """
    try:
        from farther.command import program

        return program.main(arguments)
    except KeyboardInterrupt:
        import sys

        from farther.command.exit_status import INTERRUPTED
        from farther.text.terminal import say

        say("Stopped.", file=sys.stderr)
        return INTERRUPTED


__all__ = ["main"]
