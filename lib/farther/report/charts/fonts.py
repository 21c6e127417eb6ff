"""The fonts of this machine, which drawings of charts depend on."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from farther.errors import DataError
from farther.tables.folders import files_below

#: Where Linux keeps fonts, and settings that say which one is used in the place of an absent one.
LINUX = (
    "/etc/fonts",
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "~/.fonts",
    "~/.config/fontconfig",
)
#: Where macOS keeps fonts.
MACOS = (
    "/System/Library/Fonts",
    "/System/Library/AssetsV2",
    "/Library/Fonts",
    "/Network/Library/Fonts",
    "~/Library/Fonts",
)


def font_folders() -> list[Path]:
    """The folders of fonts that vl-convert looks in."""
    if sys.platform == "darwin":
        return [Path(name).expanduser() for name in MACOS]
    data_home = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share")
    folders = [*map(Path, LINUX), data_home / "fonts"]
    return [folder.expanduser() for folder in folders]


def installed_fonts(folders: Sequence[Path] | None = None) -> list[str]:
    """Name and size in bytes of each file in folders of fonts, sorted.

    Where they differ, a drawing may differ, too.

    Args:
        folders: The folders; `font_folders()` when None. Those that are absent or cannot be read
            have none.
    """
    if folders is None:
        folders = font_folders()
    fonts = []
    for folder in folders:
        with suppress(DataError, OSError):
            fonts += _files_with_sizes(folder)
    return sorted(fonts)


def _files_with_sizes(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    descriptions = []
    for file in files_below(folder):
        if file.is_file():
            descriptions.append(f"{file.name} {file.stat().st_size}")
    return descriptions
