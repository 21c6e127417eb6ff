"""Folders that all of pytest's processes share."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of this run of pytest."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextmanager
def once(factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """A shared folder, and whether it is still empty: one process fills it, the others wait.

    What a process left that failed is deleted, so that the next one tells the same failure.
    """
    folder = shared_folder(factory) / name
    done = folder.with_suffix(".done")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_empty = not done.exists()
        if is_empty:
            shutil.rmtree(folder, ignore_errors=True)
        yield folder, is_empty
        done.touch()
