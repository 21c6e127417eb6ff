"""`farther benchmark review`: the review page of a benchmark."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from farther.command.output import next_step
from farther.command.project import OptionalBenchmark, Project, option
from farther.text.terminal import say


def review(
    benchmark: OptionalBenchmark = None,
    reviewer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Your name in the decisions file; by default your login name."
        ),
    ] = None,
    run: Annotated[
        str | None,
        option(
            "RUN",
            "Run whose detector looks for unlabelled objects, of any benchmark; by default that of "
            "section 'review', else the benchmark's first.",
            "detectors",
        ),
    ] = None,
    suspects: Annotated[
        bool,
        typer.Option(
            "--suspects", help="Review ID images whose proposals may be unlabelled objects."
        ),
    ] = False,
    port: Annotated[
        int, typer.Option(metavar="N", help="Port of 127.0.0.1; 0 for any that is free.")
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
) -> None:
    """Review a benchmark's OOD images in the browser.

    Serves a page on 127.0.0.1 that shows the images one at a time and keeps your decisions. Stop it
    with Ctrl-C.

    \b
    Examples:
      farther benchmark review voc
      farther benchmark review voc --reviewer ann --no-browser
      farther benchmark review voc --suspects --run voc-vos
    """
    from farther.review import ReviewSettings, open_page, serve

    settings = ReviewSettings(reviewer=reviewer, run=run, port=port, suspects=suspects)
    ready: Callable[[str], object] = open_page
    if no_browser:
        ready = partial(say, flush=True)
    try:
        project = Project()
        benchmark = project.benchmark_name(benchmark)
        serve(benchmark, project.params, settings, ready=ready)
    except KeyboardInterrupt:
        say("Stopped. All decisions that the page reported as saved are in the decisions file.")
        next_step("farther repro")
