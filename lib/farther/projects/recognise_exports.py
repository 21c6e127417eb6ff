"""Exports of annotation tools and libraries that no reader reads, and the command that makes COCO of each."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import ijson

from farther.datasets.huggingface_files import METADATA
from farther.errors import DataError
from farther.tables.files import open_binary
from farther.tables.folders import files_below
from farther.tables.json_stream import Bounded, open_json

#: Most files of one ending that are looked into, and most events of one of them: keys near its
#: start tell the format.
FILES, EVENTS = 100, 100_000
#: Most bytes of a first line that is looked at.
LINE = 1_000
#: Cells of a line of KITTI's labels: class, truncation, occlusion, angle, box, dimensions,
#: location, rotation.
KITTI_CELLS = 15

FIFTYONE = (
    "pip install fiftyone && fiftyone convert --input-dir {folder} --input-type fiftyone.types.FiftyOneDataset "
    "--output-dir {root}/coco --output-type fiftyone.types.COCODetectionDataset"
)
SUPERVISELY = (
    "pip install supervisely && python -c 'import sys, supervisely; supervisely.convert.to_coco(*sys.argv[1:])' "
    "{root} {root}/coco"
)


def _datumaro(form: str, path: str, choice: str = "") -> str:
    command = f"pip install 'datumaro[cli]' && datum convert -if {form} -i {path} -f coco_instances"
    return f"{command} -o {{root}}/coco {choice}-- --save-media"


def _panlabel(form: str, path: str) -> str:
    command = f"pip install panlabel && panlabel convert --allow-lossy --from {form} --to coco --input {path}"
    return f"{command} --output {{root}}/instances.json"


@dataclass(frozen=True)
class Export:
    """A format that is converted first.

    Args:
        name: The program or library that writes it.
        command: Shell command that makes COCO of it below `{root}`, the folder that was given.
            `{file}` is the file by which it was recognised, `{folder}` the folder of that, and
            `{above}` the one above.
        keys: Keys that occur near the start of its JSON.
        otherwise: Where the command does not convert everything: what to do instead.
    """

    name: str
    command: str
    keys: frozenset[str] = frozenset()
    otherwise: str = ""


VIA = "VGG Image Annotator"
RECTANGLES = "where all shapes are rectangles, or export it from VIA 2.0.10 or later as COCO"

#: In this order: an export has all keys of one.
OF_JSON = (
    Export(
        "Label Studio",
        _panlabel("label-studio", "{file}"),
        frozenset({"from_name", "to_name", "result"}),
        "where each image has boxes and nothing else, or export it from Label Studio as COCO",
    ),
    Export("LabelMe", _panlabel("labelme", "{root}"), frozenset({"shapes", "imagePath"})),
    Export(
        f"{VIA} (project)",
        f"jq ._via_img_metadata {{file}} > {{folder}}/via.json && {_panlabel('via', '{folder}/via.json')}",
        frozenset({"_via_img_metadata"}),
        RECTANGLES,
    ),
    Export(VIA, _panlabel("via", "{file}"), frozenset({"regions", "file_attributes"}), RECTANGLES),
    Export("Supervisely", SUPERVISELY, frozenset({"classTitle", "exterior"})),
    Export("Labelbox", _panlabel("labelbox", "{file}"), frozenset({"data_row", "projects"})),
    Export("Scale", _panlabel("scale-ai", "{file}"), frozenset({"task_id", "response"})),
    Export("FiftyOne", FIFTYONE, frozenset({"samples", "filepath"})),
    Export("Datumaro", _datumaro("datumaro", "{root}"), frozenset({"items", "labels", "label_id"})),
)
CVAT = Export(
    "CVAT for images",
    _datumaro("cvat", "{folder}"),
    otherwise="or export the task from CVAT as COCO 1.0",
)
VIA_CSV = Export(VIA, _panlabel("via-csv", "{file}"), otherwise=RECTANGLES)
#: DontCare marks regions that nobody labelled.
KITTI = Export(
    "KITTI",
    _datumaro(
        "kitti_detection",
        "{above}",
        "-e '/item/annotation[label!=\"DontCare\"]' --filter-mode annotations ",
    ),
)


def recognise_export(root: Path) -> dict[str, Any] | None:
    """The entry of images with Hugging Face's metadata.jsonl; None where the folder holds no export that is known.

    Raises:
        DataError: it holds one that no reader reads; the message names it and the command that
            converts it to COCO.
    """
    by_suffix: dict[str, list[Path]] = {}
    for file in files_below(root):
        by_suffix.setdefault(file.suffix.lower(), []).append(file)
    some = {suffix: sorted(files)[:FILES] for suffix, files in by_suffix.items()}
    kinds = {file: _kind(file) for file in some.get(".xml", ())}
    if "annotation" in kinds.values():  # of VOC's form, which is read
        return None
    for file, kind in kinds.items():
        if kind == "track":
            raise _refusal("CVAT for video", file, "export the task from CVAT as COCO 1.0")
        if kind == "image":
            raise _with_command(CVAT, file, root)
    for file in (*some.get(".json", ()), *some.get(".ndjson", ()), *some.get(".jsonl", ())):
        keys = first_keys(file)
        if file.name == METADATA and {"file_name", "objects"} <= keys:
            return {"format": "huggingface"}
        for export in OF_JSON:
            if export.keys <= keys:
                raise _with_command(export, file, root)
    for file in some.get(".csv", ()):
        if b"region_shape_attributes" in _first_line(file):
            raise _with_command(VIA_CSV, file, root)
    for file in some.get(".txt", ()):
        if file.parent.name == "label_2" and len(_first_line(file).split()) == KITTI_CELLS:
            raise _with_command(KITTI, file, root)
    return None


def _with_command(export: Export, file: Path, root: Path) -> DataError:
    places = {"root": root, "file": file, "folder": file.parent, "above": file.parent.parent}
    command = export.command.format_map(
        {name: shlex.quote(str(place)) for name, place in places.items()}
    )
    return _refusal(
        export.name,
        file,
        f"convert it to COCO, in an environment of its own, with `{command}` {export.otherwise}".rstrip(),
    )


def _refusal(name: str, file: Path, advice: str) -> DataError:
    return DataError(
        f"an export of {name}, which is not read: {advice}; then run this again", file=file
    )


def _kind(file: Path) -> str:
    """Whether an XML file is of VOC's form (annotation), or CVAT's for images (image) or video (track); else empty."""
    try:
        with open_binary(file) as text:
            tags = (
                element.tag
                for _, element in islice(ElementTree.iterparse(text, events=("start",)), EVENTS)
            )
            top = next(tags, "")
            return (
                top
                if top != "annotations"
                else next((tag for tag in tags if tag in ("image", "track")), "")
            )
    except (
        ElementTree.ParseError,
        ValueError,
        LookupError,
        RecursionError,
    ):  # the reader of XML says what is wrong
        return ""


def first_keys(file: Path) -> set[str]:
    """The keys near the start of a file of JSON or JSON lines; none where it is something else."""
    keys = set[str]()
    try:
        with open_json(file) as text:
            for _, event, value in islice(ijson.parse(Bounded(text), multiple_values=True), EVENTS):
                if event == "map_key":
                    keys.add(value)
    except (ijson.JSONError, UnicodeDecodeError):
        pass
    return keys


def _first_line(file: Path) -> bytes:
    with open_binary(file) as text:
        return text.readline(LINE)
