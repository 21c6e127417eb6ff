"""YOLO folders, recognised by a file that names the classes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farther.datasets.file_names import Spellings
from farther.datasets.recognition import Recognised
from farther.errors import DataError
from farther.tables.documents import read_yaml
from farther.tables.endings import refuse_twins
from farther.tables.files import is_file
from farther.tables.folders import find_file, listed

#: Text files that name the classes of YOLO's labels, as LabelImg, Label Studio, Darknet and CVAT
#: write them.
CLASS_LISTS = ("classes.txt", "obj.names", "labels/classes.txt")


def recognise_yolo(root: Path) -> Recognised | None:
    """A folder with names of classes for YOLO's labels, in YAML or a text file."""
    yaml_files = sorted([*listed(root, "*.yaml"), *listed(root, "*.yml")])
    refuse_twins(yaml_files)
    content_by_file: dict[Path, dict[str, Any]] = {}
    for file in yaml_files:
        content = read_yaml(file)
        if isinstance(content, dict) and "names" in content:
            content_by_file[file] = content
    if content_by_file:
        _refuse_several_descriptions(content_by_file)
        names = [file.name for file in content_by_file]
        if "data.yaml" in names:
            return Recognised()
        return Recognised({"file": names[0]})
    spellings = Spellings(root)
    for name in CLASS_LISTS:
        file = find_file(root / (spellings.find(name) or name))
        if is_file(file):
            return Recognised({"file": file.relative_to(root).as_posix()})
    return None


def _refuse_several_descriptions(content_by_file: Mapping[Path, Mapping[str, Any]]) -> None:
    """Refuses YAML files that describe one folder for YOLO with other classes or images.

    Raises:
        DataError: two differ; names both and the first key that differs.
    """
    first_file, *other_files = content_by_file
    for file in other_files:
        for key in ("names", "train", "val", "test"):
            if _described(content_by_file[file], key) != _described(
                content_by_file[first_file], key
            ):
                raise DataError(
                    f"{first_file.name} describes the same folder with another value: which of the "
                    "two is the dataset's? Move the other one to another folder",
                    file=file,
                    field=key,
                )


def _described(content: Mapping[str, Any], key: str) -> Any:
    """A value of a `data.yaml`; names of classes as a list of texts, if they have that form."""
    value = content.get(key)
    if key != "names":
        return value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [str(name) for name in value]
    return value
