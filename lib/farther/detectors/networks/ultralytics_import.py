"""Importing Ultralytics without its side effects."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.util import Finalize

import numpy as np
from PIL import Image

_settings: tempfile.TemporaryDirectory | None = None


def import_quietly() -> None:
    """Imports `ultralytics` without network requests and without leaving files.

    Does nothing if it is imported already. On import, Ultralytics looks for a connection, to report
    usage over it later, and writes settings to the user's configuration folder. Here its variable
    for offline use is set, and its settings go to a folder that is removed when the process ends,
    unless the variable YOLO_CONFIG_DIR names another. It also replaces `PIL.Image.open` for the
    whole process by a function that fails in another way on a broken file, and changes how NumPy
    prints arrays; both are put back.
    """
    global _settings
    if "ultralytics.nn.tasks" in sys.modules:
        return
    _settings = tempfile.TemporaryDirectory(prefix="farther-ultralytics-")
    # Worker processes end without Python's own clean-up.
    Finalize(None, _settings.cleanup, exitpriority=0)
    folder = os.environ.get("YOLO_CONFIG_DIR", _settings.name)
    pillow_open = Image.open
    print_options = np.get_printoptions()
    try:
        with _environment({"YOLO_CONFIG_DIR": folder, "YOLO_OFFLINE": "true"}), _silence():
            import ultralytics.nn.tasks  # noqa: F401 (only to have it imported)
    finally:
        Image.open = pillow_open
        np.set_printoptions(**print_options)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables while a block runs."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _silence() -> Iterator[None]:
    """Logs nothing below a warning while a block runs."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.INFO))
    try:
        yield
    finally:
        logging.disable(before)
