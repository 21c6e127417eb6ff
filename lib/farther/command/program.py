"""The program `farther`: runs a subcommand; an error becomes one message and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import farther
from farther.command import (
    bundle,
    check_objects,
    choose,
    compare,
    doctor,
    duplicates,
    explain,
    init,
    leaderboard,
    list_params,
    lists,
    negatives,
    paper,
    predict,
    profile,
    publish,
    repro,
    review,
    summary,
    trial,
)
from farther.command.exit_status import FINE, INTERRUPTED, WRONG_INPUT
from farther.command.interruption import answering_interrupts
from farther.command.usage import Subcommand
from farther.processes import end_without_collection
from farther.text.terminal import say

#: The subcommands of the first screen, in the order of the work.
SUBCOMMANDS: dict[str, Callable[..., int | None] | typer.Typer] = {
    "try": trial.try_,
    "init": init.init,
    "doctor": doctor.doctor,
    "repro": repro.repro,
    "summary": summary.summary,
    "open": summary.open_report,
    "explain": explain.app,
    "compare": compare.compare,
    "table": paper.table,
    "figure": paper.figure,
    "choose": choose.choose,
    "bundle": bundle.bundle,
    "predict": predict.predict,
}

#: Groups of further subcommands, with a line of help.
GROUPS: dict[str, tuple[str, dict[str, Callable[..., int | None]]]] = {
    "list": (
        "List the names that params.yaml may use.",
        {
            "methods": lists.methods,
            "detectors": lists.detectors,
            "datasets": lists.datasets,
            "metrics": lists.metrics,
            "params": list_params.params,
        },
    ),
    "benchmark": (
        "Review, extend, publish and share a benchmark.",
        {
            "profile": profile.profile,
            "review": review.review,
            "duplicates": duplicates.duplicates,
            "negatives": negatives.negatives,
            "publish": publish.publish,
            "leaderboard": leaderboard.leaderboard,
        },
    ),
    "remote": ("Check a DVC remote or cache.", {"check": check_objects.check_objects}),
}

HELP = """What does an object detector do when it meets an object it was never taught?

Run it in the folder that holds params.yaml.
"""

EPILOG = """\b
Exit status: 0, success; 1, a check found something (doctor: something is
missing; compare --check: a metric got worse; remote check: a damaged
object); 2, wrong usage, unusable input, or a stage that failed; 130, stopped
by Ctrl-C. Colours are off if NO_COLOR is set or the output is not a terminal.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command `farther`.

    Args:
        arguments: What follows the command's name; by default those that the process was started
            with.

    Returns:
        The exit status; see `farther.command.exit_status`.

    Raises:
        FartherError: input cannot be used, and `--traceback` was given.
    """
    if arguments is None:
        arguments = sys.argv[1:]
        if arguments[:1] == ["repro"]:  # the process is this command's, and DVC has many objects
            end_without_collection()
    # Allowed before and after the subcommand.
    with_traceback = "--traceback" in arguments
    words = [word for word in arguments if word != "--traceback"]
    try:
        with answering_interrupts():
            _command()(words, prog_name="farther")
    except SystemExit as stopped:
        return int(stopped.code or 0)
    except Exception as error:
        from farther.stage import explained

        problem = explained(error)
        if problem is None or with_traceback:
            raise
        subcommand = words[:1]
        if words[0] in GROUPS:
            subcommand = words[:2]
        say(f"farther {' '.join(subcommand)}: {problem}", file=sys.stderr)
        return WRONG_INPUT
    return FINE


@cache
def _command() -> Any:
    """The command that Typer builds of `app`, which takes longer than most subcommands."""
    return typer.main.get_command(app)


class _Grouped(TyperGroup):
    """The top level, whose help lists the subcommands in groups."""

    def invoke(self, ctx: Any) -> None:
        """Runs a subcommand, whose return value is the exit status.

        A closed pipe or Ctrl-C ends it quietly.
        """
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # `farther list methods | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = FINE
        except (KeyboardInterrupt, typer.Abort):  # Ctrl-C, also where a prompt waits
            say("Stopped.", file=sys.stderr)
            status = INTERRUPTED
        raise typer.Exit(status or FINE)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the subcommands, and a line for each group."""
        width = max(len(name) for name in (*SUBCOMMANDS, *GROUPS))
        subcommands = []
        for name in SUBCOMMANDS:
            help = self.commands[name].get_short_help_str(80)
            subcommands.append((name.ljust(width), help))
        groups = []
        for name, (help, commands) in GROUPS.items():
            groups.append((name.ljust(width), f"{help.rstrip('.')}: {', '.join(commands)}"))
        with formatter.section("Commands, in the order of the work"):
            formatter.write_dl(subcommands)
        with formatter.section("More"):
            formatter.write_dl(groups)


def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the traceback of an error.")
    ] = False,
) -> None:
    if version:
        say(f"farther {farther.__version__}")
    elif context.invoked_subcommand is None:
        say(context.get_help())


def _build() -> typer.Typer:
    """The program with all subcommands and groups."""
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(
        cls=_Grouped, help=HELP, epilog=EPILOG, context_settings=settings, rich_markup_mode=None
    )
    app.callback(invoke_without_command=True)(_top)
    for name, subcommand in SUBCOMMANDS.items():
        if isinstance(subcommand, typer.Typer):
            app.add_typer(subcommand, name=name)
        else:
            app.command(name, cls=Subcommand)(subcommand)
    for group, (help, commands) in GROUPS.items():
        inner = typer.Typer(
            help=help, no_args_is_help=True, context_settings=settings, rich_markup_mode=None
        )
        for name, command in commands.items():
            inner.command(name, cls=Subcommand)(command)
        if len(commands) == 1:  # else Typer would make the only command the group itself
            inner.callback()(_no_callback)
        app.add_typer(inner, name=group)
    return app


def _no_callback() -> None:
    """The callback of a group with one command: with a callback it remains a group."""


app = _build()
