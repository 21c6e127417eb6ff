"""Folders of images that are absent, which are no damage of single images."""

from __future__ import annotations

import os
from pathlib import Path

from farther.errors import FartherError


class AbsentFolderError(FartherError):
    """The folder of an image is absent or closed on this machine."""


def refuse_absent_folder(file: Path) -> None:
    """Refuses an image file that cannot be read because its folder is absent or closed.

    A disk that is not mounted must not count as broken images, which are left out.

    Args:
        file: An image file that could not be read.

    Raises:
        AbsentFolderError: the folder does not exist, or cannot be opened; names it.
    """
    folder = file.parent
    problem = ""
    try:
        folder.stat()
        if not os.access(folder, os.R_OK | os.X_OK):
            problem = "may not be opened by this user"
    except FileNotFoundError:
        problem = "does not exist"
        while not folder.parent.exists():
            folder = folder.parent
    except OSError as error:
        problem = f"cannot be opened: {error.strerror}"
    if problem:
        raise AbsentFolderError(
            f"the folder {folder} of the image {file.name} {problem}. Images of a missing folder "
            "are not left out: mount or restore it, and rerun (finished work is kept)"
        )
