"""The program: finds the subcommand, runs it, and turns errors into one message and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from farther.command import (
    bundle,
    check_objects,
    choose,
    compare,
    doctor,
    duplicates,
    enrich,
    explain,
    init,
    leaderboard,
    lists,
    negatives,
    predict,
    profile,
    publish,
    repro,
    review,
    summary,
    uncertainty,
)

#: The subcommands, in the groups and in the order in which the help lists them.
SUBCOMMANDS: dict[str, dict[str, Callable[..., int | None] | typer.Typer]] = {
    "Set up a project": {"init": init.init, "doctor": doctor.doctor, "profile": profile.profile},
    "Names in params.yaml": {
        "methods": lists.methods,
        "detectors": lists.detectors,
        "datasets": lists.datasets,
        "metrics": lists.metrics,
    },
    "Work on a benchmark": {
        "review": review.review,
        "duplicates": duplicates.duplicates,
        "enrich": enrich.enrich,
        "negatives": negatives.negatives,
        "publish": publish.publish,
    },
    "Run and read results": {
        "repro": repro.repro,
        "summary": summary.summary,
        "open": summary.open_report,
        "explain": explain.app,
        "compare": compare.compare,
        "uncertainty": uncertainty.uncertainty,
        "leaderboard": leaderboard.leaderboard,
        "choose": choose.choose,
    },
    "Deploy": {"bundle": bundle.bundle, "predict": predict.predict},
    "Check storage": {"check-objects": check_objects.check_objects},
}

#: Exit statuses.
FINE, FINDINGS, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

HELP = """What does an object detector do when it meets an object it was never taught?

Run it in the folder of params.yaml.
"""

EPILOG = """\b
Exit status: 0, success; 1, a check found something (doctor: something is
missing; compare --check: a metric got worse; check-objects: a damaged
object); 2, wrong usage or input that cannot be used. Colours are left out
where NO_COLOR is set or the output is not a terminal.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command `farther`.

    Args:
        arguments: What follows the command's name; by default those that the process was started with.

    Returns:
        The exit status: 0 success, 1 a check found something, 2 wrong usage or input that cannot be used.

    Raises:
        FartherError: input cannot be used, and `--traceback` was given.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    words = [word for word in given if word != "--traceback"]  # allowed before and after the subcommand
    try:
        typer.main.get_command(app)(words, prog_name="farther")
    except SystemExit as stopped:
        return int(stopped.code or 0)
    except Exception as error:
        from farther.stage import explained

        problem = f"{error.filename}: permission denied" if isinstance(error, PermissionError) else explained(error)
        if problem is None or words != given:
            raise
        print(f"farther {words[0]}: {problem}", file=sys.stderr)
        return WRONG_INPUT
    return FINE


class _Grouped(TyperGroup):
    """The top level, whose help lists the subcommands in groups."""

    def invoke(self, ctx: Any) -> None:
        """Runs a subcommand, whose return value is the exit status; a closed pipe or Ctrl-C ends it quietly."""
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # `farther methods | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = FINE
        except KeyboardInterrupt:
            print("Stopped.", file=sys.stderr)
            status = INTERRUPTED
        raise typer.Exit(status or FINE)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes one section per group."""
        width = max(map(len, self.commands))
        for title, commands in SUBCOMMANDS.items():
            rows = [(name.ljust(width), self.commands[name].get_short_help_str(80)) for name in commands]
            with formatter.section(title):
                formatter.write_dl(rows)


def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where an error arose.")] = False,
) -> None:
    if version:
        import farther

        print(f"farther {farther.__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def _build() -> typer.Typer:
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(cls=_Grouped, help=HELP, epilog=EPILOG, context_settings=settings, rich_markup_mode=None)
    app.callback(invoke_without_command=True)(_top)
    for name, found in (item for group in SUBCOMMANDS.values() for item in group.items()):
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


app = _build()
