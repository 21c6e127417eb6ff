"""Exports of annotation tools that cannot be read, with the command that converts each to COCO."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

from farther.datasets.annotation_files import EVENTS, first_keys
from farther.errors import DataError
from farther.tables.files import open_binary
from farther.tables.folders import files_below

#: A number in a text file.
NUMBER = r"-?[0-9]+(\.[0-9]*)?"
#: Most files of one ending that are opened.
FILES = 100
#: Most bytes of a first line that are read.
LINE = 1_000
#: Cells of a line of DOTA's labels: four corners, class, difficulty.
DOTA_CELLS = 10
#: Cells of a line of KITTI's labels: class, truncation, occlusion, angle, box, dimensions,
#: location, rotation.
KITTI_CELLS = 15

FIFTYONE = (
    "pip install fiftyone && fiftyone convert --input-dir {folder} "
    "--input-type fiftyone.types.FiftyOneDataset --output-dir {root}/coco "
    "--output-type fiftyone.types.COCODetectionDataset"
)
SUPERVISELY = (
    "pip install supervisely && python -c "
    "'import sys, supervisely; supervisely.convert.to_coco(*sys.argv[1:])' {root} {root}/coco"
)


def _datumaro(form: str, path: str, choice: str = "") -> str:
    command = f"pip install 'datumaro[cli]' && datum convert -if {form} -i {path} -f coco_instances"
    return f"{command} -o {{root}}/coco {choice}-- --save-media"


def _panlabel(form: str, path: str) -> str:
    command = "pip install panlabel && panlabel convert --allow-lossy"
    return f"{command} --from {form} --to coco --input {path} --output {{root}}/instances.json"


@dataclass(frozen=True)
class Export:
    """A format that must be converted.

    Args:
        name: The program or library that writes it.
        command: Shell command that converts it to COCO below `{root}`, the dataset's folder.
            `{file}` is the file by which it was recognised, `{folder}` the folder of that, and
            `{above}` the one above.
        keys: Keys that occur near the start of its JSON.
        otherwise: An alternative, where the command does not convert everything.
    """

    name: str
    command: str
    keys: frozenset[str] = frozenset()
    otherwise: str = ""


VIA = "VGG Image Annotator"
RECTANGLES = "where all shapes are rectangles, or export it from VIA 2.0.10 or later as COCO"

#: Exports in JSON; a file is of the first of which it has all keys.
OF_JSON = (
    Export(
        "Label Studio",
        _panlabel("label-studio", "{file}"),
        frozenset({"from_name", "to_name", "result"}),
        "where each image has upright boxes and nothing else, or export it from Label Studio as "
        "COCO, or with rotated boxes as YOLOv8 OBB, of which the upright boxes around them are "
        "read",
    ),
    Export("LabelMe", _panlabel("labelme", "{root}"), frozenset({"shapes", "imagePath"})),
    Export(
        f"{VIA} (project)",
        "jq ._via_img_metadata {file} > {folder}/via.json && "
        + _panlabel("via", "{folder}/via.json"),
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
DOTA_ADVICE = (
    "write YOLO's labels, a class number and the four corners as fractions of the image per line, "
    "and a data.yaml that names the classes"
)


def refuse_export(root: Path) -> None:
    """Refuses a folder with an export of an annotation tool that no reader takes.

    Raises:
        DataError: the folder has one; the message has the command that converts it to COCO.
    """
    files_by_suffix = _first_files(root)
    for file in files_by_suffix.get(".xml", ()):
        kind = _kind(file)
        if kind == "track":
            raise _refusal("CVAT for video", file, "export the task from CVAT as COCO 1.0")
        if kind == "image":
            raise _with_command(CVAT, file, root)
    for suffix in (".json", ".ndjson", ".jsonl"):
        for file in files_by_suffix.get(suffix, ()):
            keys = first_keys(file)
            for export in OF_JSON:
                if export.keys <= keys:
                    raise _with_command(export, file, root)
    for file in files_by_suffix.get(".csv", ()):
        if b"region_shape_attributes" in _first_line(file):
            raise _with_command(VIA_CSV, file, root)
    for file in files_by_suffix.get(".txt", ()):
        if file.parent.name == "label_2" and len(_first_line(file).split()) == KITTI_CELLS:
            raise _with_command(KITTI, file, root)
        if _is_dota(file):
            raise _refusal("labels of DOTA", file, DOTA_ADVICE)


def _first_files(root: Path) -> dict[str, list[Path]]:
    """The first `FILES` files of each ending (in lower case) in a folder, sorted."""
    files_by_suffix: dict[str, list[Path]] = {}
    for file in files_below(root):
        files_by_suffix.setdefault(file.suffix.lower(), []).append(file)
    return {suffix: sorted(files)[:FILES] for suffix, files in files_by_suffix.items()}


def _with_command(export: Export, file: Path, root: Path) -> DataError:
    places = {"root": root, "file": file, "folder": file.parent, "above": file.parent.parent}
    quoted = {name: shlex.quote(str(place)) for name, place in places.items()}
    command = export.command.format_map(quoted)
    advice = f"convert it to COCO, in an environment of its own, with `{command}`"
    if export.otherwise:
        advice = f"{advice} {export.otherwise}"
    return _refusal(export.name, file, advice)


def _refusal(name: str, file: Path, advice: str) -> DataError:
    problem = f"an export of {name}, which is not read: {advice}; then run this again"
    return DataError(problem, file=file)


def _kind(file: Path) -> str:
    """The tag by which the format of an XML file is recognised.

    Returns:
        "image" or "track" for CVAT's for images or video; the root's tag, or "", for others.
    """
    try:
        with open_binary(file) as text:
            events = ElementTree.iterparse(text, events=("start",))
            tags = (element.tag for _, element in islice(events, EVENTS))
            root_tag = next(tags, "")
            if root_tag != "annotations":
                return root_tag
            for tag in tags:
                if tag in ("image", "track"):
                    return tag
            return ""
    except (ElementTree.ParseError, ValueError, LookupError, RecursionError):
        return ""  # the reader of XML says what is wrong


def _is_dota(file: Path) -> bool:
    """Whether a line near the start of a text file has four corners, a class and a difficulty."""
    with open_binary(file) as text:
        lines = [text.readline(LINE) for _ in range(3)]  # two may name the source and the scale
    for line in lines:
        cells = line.decode(errors="replace").split()
        if len(cells) not in (DOTA_CELLS - 1, DOTA_CELLS):
            continue
        numbers = [re.fullmatch(NUMBER, cell) is not None for cell in cells]
        if all(numbers[:8]) and not numbers[8]:
            return True
    return False


def _first_line(file: Path) -> bytes:
    with open_binary(file) as text:
        return text.readline(LINE)
