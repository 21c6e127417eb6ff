"""Stages run as the pipeline runs them, but in this process."""

from importlib import import_module
from pathlib import Path

import pytest

#: The stages of a run that read tables only, in their order.
OF_RUN = ("fit", "score", "evaluate", "choose")


def run(folder: Path, *stages: str) -> None:
    """Runs stages in a project's folder: "code_digests", "ingest voc", "report"."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for stage in stages:
            name, *arguments = stage.split()
            import_module(f"farther.pipeline.{name}").main(*arguments)
