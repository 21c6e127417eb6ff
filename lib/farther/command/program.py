"""The program: finds the subcommand, runs it, and turns errors into a line and a status."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from farther.command import compare, doctor, explain, profile, review
from farther.command.listing import datasets, detectors, methods, metrics
from farther.errors import FartherError

#: The subcommands, in the order in which the help lists them.
SUBCOMMANDS: tuple[ModuleType, ...] = (
    doctor,
    profile,
    review,
    explain,
    compare,
    methods,
    detectors,
    datasets,
    metrics,
)

#: Exit statuses.
FINE, FINDINGS, WRONG_INPUT = 0, 1, 2

DESCRIPTION = "What does an object detector do when it meets an object it was never taught?"
EPILOG = """\
exit status:
  0  all is well
  1  something was found: doctor misses something, compare --check sees a
     figure that got worse
  2  wrong usage, or input that cannot be used; the message says what to do

Run it in the folder of params.yaml. `farther COMMAND --help` has examples.
Colours are left out where NO_COLOR is set or the output is no terminal.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command `farther`.

    Args:
        arguments: What follows the command's name; by default what the process was started with.

    Returns:
        The exit status: 0 fine, 1 something was found, 2 input that cannot be used.

    Raises:
        SystemExit: with status 0 after `--help`, with 2 after wrong usage.
        FartherError: input cannot be used, and `--traceback` was given.
    """
    given = make_parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        return given.handler(given)
    except FartherError as error:
        if given.traceback:
            raise
        print(f"farther {given.command}: {error}", file=sys.stderr)
        return WRONG_INPUT
    except ModuleNotFoundError as error:
        if given.traceback or (error.name or "").startswith("farther"):
            raise
        print(f"farther {given.command}: needs the package {error.name!r}; see farther doctor", file=sys.stderr)
        return WRONG_INPUT
    except BrokenPipeError:  # `farther methods | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130


def make_parser() -> argparse.ArgumentParser:
    """The parser of all arguments; parsed ones have `command`, `handler` and `traceback` beside the subcommand's."""
    import farther

    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("farther", description=DESCRIPTION, epilog=EPILOG, formatter_class=form)
    parser.add_argument("--version", action="version", version=f"farther {farther.__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where an error arose")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for module in SUBCOMMANDS:
        epilog = "examples:\n" + "\n".join(f"  {line}" for line in module.EXAMPLES.strip().splitlines())
        own = commands.add_parser(
            module.NAME, help=module.SUMMARY, description=module.__doc__, epilog=epilog, formatter_class=form
        )
        module.add_arguments(own)
        own.add_argument("--traceback", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        own.set_defaults(handler=module.run)
    return parser
