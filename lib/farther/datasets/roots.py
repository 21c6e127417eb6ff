"""The folders that the `file` column of `images` tables is relative to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Folder, in a dataset's tables, of the images that its files held: `ingest` writes it, once.
EXTRACTED = "extracted-images"


def image_roots(
    datasets: Mapping[str, Mapping[str, Any]], tables: str | Path, project: str | Path = "."
) -> dict[str, Path]:
    """Folder of the image files of each dataset.

    That is the dataset's root, or, where `ingest` took the images out of the dataset's files, where it put them.

    Args:
        datasets: The section `datasets` of the parameters: name → parameters, `root` among them.
        tables: The folder that `ingest` writes, with a folder a dataset.
        project: What relative roots are relative to.
    """
    roots = {}
    for name, params in datasets.items():
        extracted = Path(tables) / name / EXTRACTED
        roots[name] = extracted if extracted.is_dir() else Path(project) / params["root"]
    return roots
