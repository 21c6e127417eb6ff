"""Pascal VOC: one XML file per image, image sets in `ImageSets/Main` (the VOC2007 and VOC2012 development kits)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass as plain
from pathlib import Path, PureWindowsPath
from typing import Any, ClassVar
from xml.etree import ElementTree

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    Annotations,
    Collector,
    Edges,
    Expected,
    Reader,
    below,
    image_file,
    register,
)
from farther.datasets.file_names import comparable, names_by_form
from farther.datasets.records import Location, Record, read_lines
from farther.errors import DataError, shorten
from farther.registry import STRICT
from farther.tables.files import inside, open_binary
from farther.tables.folders import listed

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip

#: Tags that hold a number.
NUMBERS = frozenset({"xmin", "ymin", "xmax", "ymax", "width", "height", "difficult"})

#: Texts that some tools write for `difficult`.
FLAGS = {"unspecified": "0", "false": "0", "true": "1"}

#: The second column of an image set of one class: 1 if the image shows that class.
FLAG = re.compile(r"\s+(-1|0|1)$")

#: Endings of images, in lower case.
SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})

ABSENT = "the image set does not exist; parameter 'image_sets' says which to read"

OTHER_NAME = "XML files called otherwise than their images"
WITHOUT_XML = "images without an XML file"


@plain(frozen=True)
class _Annotated:
    """An image of a subset: its id, its file within the root, its XML file and that file's content, and where it is
    listed; and whether the XML file is called otherwise."""

    image_id: str
    file: str
    xml: Path
    content: Record
    location: Location
    is_called_otherwise: bool = False


@register("voc")
@dataclass(config=STRICT, kw_only=True)
class VOC(Reader):
    """Pascal VOC.

    Pixels count from 1 and a box includes its last one, so the edges are xmin - 1, ymin - 1, xmax,
    ymax; coordinates with fractions occur and are taken as they are. `part`s of objects (head,
    hand, foot) are left out; so are `truncated` and `occluded`, which the tables have no column
    for. The image id is the stem that the image set lists; it also names the XML file and the
    image, as in VOC's own tools.

    Tolerated, as VOC's tools do: absent `difficult`, `truncated`, `pose`, `size` (objects count as
    not difficult); a second column in an image set (the flag of a single class); no object at all;
    `difficult` as text (Unspecified, False, True). Tolerated and listed once: a `filename` other
    than the image's; with `layout`, an XML file that is called like its image in another spelling
    (`a%20b.xml`) or with its ending (`a.jpg.xml`), or whose `filename` alone names its image; and
    images without an XML file (left out). Errors: an image that is listed twice, or without an XML
    file; XML that does not parse; an object without `name` or `bndbox`, or of an unknown class;
    coordinates that are not numbers or in the wrong order; a name that leaves its folder; with
    `layout`, several images of one name (`a.jpg`, `a.png`) of which `filename` names none.

    Args:
        image_sets: The image sets that each subset consists of: `{"train": ["VOC2007/trainval",
            "VOC2012/trainval"]}`. When empty, those of VOC2012's train, val and test that are
            present.
        layout: Folder of XML files and folder of images of the subsets of a dataset without image
            sets, as LabelImg and Roboflow write it: `{"train": ["annots", "images"], "test": [".",
            "."]}`. All XML files of the folder count.
        categories: Names of the classes. By default those that occur, in alphabetical order; VOC's
            twenty where there are no others and no `layout`.
        extension: Extension of the image files; with `layout`, of those that are not there.
        lists: Folder of the image sets beside `Annotations` and `JPEGImages`.
        renamed: Names for classes instead of those in the XML files; several may become one.
    """

    SOURCE: ClassVar[str] = (
        "host.robots.ox.ac.uk/pascal/VOC (Everingham et al., 2010, doi:10.1007/s11263-009-0275-4)"
    )

    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "val", "test")

    image_sets: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    layout: dict[str, tuple[str, str]] = Field(default_factory=dict)
    categories: tuple[str, ...] | None = None
    extension: str = ".jpg"
    lists: str = "ImageSets/Main"
    renamed: dict[str, str] = Field(default_factory=dict)

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        return list(self.subset_names or self.layout or self.image_sets) or super().subsets()

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        if subset in self.layout:
            source = f"the folders of {subset} in 'layout'"
            folders = zip(("annotations", "images"), self.layout[subset], strict=True)
            return [Expected(what, (folder,), source) for what, folder in folders]
        expected = []
        for image_set in self._image_sets(subset):
            folder, _, name = image_set.rpartition("/")
            kit = f"development kit of {folder or 'VOC2007 or VOC2012'}"
            paths = {
                f"image set {name}": f"{self.lists}/{name}.txt",
                "annotations": "Annotations",
                "images": "JPEGImages",
            }
            expected += [
                Expected(what, (_join(folder, path),), kit) for what, path in paths.items()
            ]
        return expected

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        collector = Collector(self.root)
        objects: list[tuple[int, int, Record]] = []
        otherwise: list[tuple[Path, str, str]] = []
        called_otherwise: list[_Annotated] = []
        for listed_image in self._laid_out(subset) if self.layout else self._in_image_sets(subset):
            annotation, xml = listed_image.content, listed_image.xml
            size = annotation.record("size") if annotation.has("size") else Record({}, xml)
            image = collector.add_image(
                listed_image.image_id, listed_image.file, listed_image.location, **size.sides()
            )
            collector.annotated_by(xml)
            if listed_image.is_called_otherwise:
                called_otherwise.append(listed_image)
            written = str(annotation.values.get("filename") or "")
            if written and _is_other(written, Path(listed_image.file)):
                otherwise.append((xml, written, Path(listed_image.file).name))
            rows = annotation.records("object") if annotation.has("object") else ()
            objects += [(image, row, record) for row, record in enumerate(rows)]
        for xml, written, name in otherwise[:1]:
            more = f" and {len(otherwise) - 1} more" if len(otherwise) > 1 else ""
            action = f"read as the annotation of {name}"
            collector.warn(
                Location(xml, None, "filename"), "image called otherwise", written + more, action
            )
        if called_otherwise:
            first = called_otherwise[0]
            example = f"{len(called_otherwise)} files, such as {first.xml.name} of {first.file}"
            collector.warn(Location(first.xml), OTHER_NAME, example, "read")
        if self.layout:
            self._warn_without_xml(collector, subset)
        names = [one.text("name") for *_, one in objects]
        collector.warn_not_renamed(Location(self.root), names, self.renamed)
        names = [self.renamed.get(name, name) for name in names]
        are_original = not self.layout and set(names) <= set(CLASSES)
        categories = self.categories or (CLASSES if are_original else tuple(sorted(set(names))))
        for (image, row, one), name in zip(objects, names, strict=True):
            if name not in categories:
                raise one.error(
                    f"unknown class {name!r}; parameter 'categories' has {', '.join(categories)}",
                    "name",
                )
            collector.add_object(
                image, _edges(one), categories.index(name), row, is_difficult=one.flag("difficult")
            )
        return collector.annotations(
            categories=list(categories), row="object[{row}]", box_field="bndbox"
        )

    def _in_image_sets(self, subset: str) -> Iterator[_Annotated]:
        """Each image of the image sets."""
        for image_set in self._image_sets(subset):
            folder, _, name = image_set.rpartition("/")
            path = inside(self.root, _join(folder, f"{self.lists}/{name}.txt"))
            for line, text in enumerate(read_lines(path, ABSENT), start=1):
                if text:
                    image_id, location = FLAG.sub("", text), Location(path, str(line))
                    file = image_file(
                        self.root, _join(folder, "JPEGImages"), image_id + self.extension, location
                    )
                    xml = self.root / image_file(
                        self.root, _join(folder, "Annotations"), f"{image_id}.xml", location
                    )
                    yield _Annotated(image_id, file, xml, _read_xml(xml), location)

    def _laid_out(self, subset: str) -> Iterator[_Annotated]:
        """The image of each XML file of a subset of `layout`."""
        if subset not in self.layout:
            raise DataError(
                f"no subset {subset!r} in 'layout'. Known: {', '.join(self.layout)}", file=self.root
            )
        annotations, folder = self.layout[subset]
        files = listed(below(self.root, annotations), "*.xml")
        if not files:
            problem = "no XML file here; parameter 'layout' names the folders of a subset"
            raise DataError(problem, file=below(self.root, annotations))
        images = _ImageNames(_names_of_images(below(self.root, folder)))
        for xml in files:
            content = _read_xml(xml)
            name = images.of(xml, content)
            is_called_otherwise = name is not None and Path(name).stem != xml.stem
            file = image_file(self.root, folder, name or xml.stem + self.extension, Location(xml))
            yield _Annotated(xml.stem, file, xml, content, Location(xml), is_called_otherwise)

    def _warn_without_xml(self, collector: Collector, subset: str) -> None:
        """Adds a warning where a folder has images that no XML file of any subset annotates."""
        folder = self.layout[subset][1]
        stems: set[str] = set()
        for xml_folder, images in self.layout.values():
            if images == folder:
                stems.update(
                    comparable(xml.stem) for xml in listed(below(self.root, xml_folder), "*.xml")
                )
        annotated = {Path(file).name for file in collector.files}
        lacking: list[str] = []
        for name in _names_of_images(below(self.root, folder)):
            forms = {comparable(name), comparable(Path(name).stem)}
            if name not in annotated and not forms & stems:
                lacking.append(name)
        if lacking:
            example = f"{len(lacking)}, such as {shorten(lacking[0])}"
            collector.warn(Location(below(self.root, folder)), WITHOUT_XML, example, "left out")

    def _image_sets(self, subset: str) -> tuple[str, ...]:
        original = (f"VOC2012/{subset}",) if subset in self.ORIGINALS else (subset,)
        return self.image_sets.get(subset) or original


class _ImageNames:
    """The images of a folder, looked up by their XML files.

    Args:
        names: Names of the image files.
    """

    def __init__(self, names: list[str]):
        self._names = frozenset(names)
        self._by_stem: dict[str, list[str]] = {}
        for name in names:
            self._by_stem.setdefault(Path(name).stem, []).append(name)
        self._by_form = names_by_form(names)
        self._by_form_of_stem: dict[str, list[str]] = {}
        for name in names:
            self._by_form_of_stem.setdefault(comparable(Path(name).stem), []).append(name)

    def of(self, xml: Path, content: Record) -> str | None:
        """The name of the image that an XML file annotates; None where there is none.

        Raises:
            DataError: there are several.
        """
        written = PureWindowsPath(str(content.values.get("filename") or "")).name
        for names in (
            self._by_stem.get(xml.stem, []),
            self._by_form.get(comparable(xml.stem), []),
            self._by_form_of_stem.get(comparable(xml.stem), []),
        ):
            if written in names:
                return written
            if len(names) > 1:
                problem = f"{' and '.join(names)} have the name of this file: `filename` has to say which it annotates"
                raise DataError(f"{problem}, found {shorten(written)}", file=xml, field="filename")
            if names:
                return names[0]
        if written in self._names:
            return written
        return None


def _names_of_images(folder: Path) -> list[str]:
    """The names of the image files in a folder, sorted."""
    return [file.name for file in sorted(listed(folder, "*")) if file.suffix.lower() in SUFFIXES]


def _read_xml(path: Path) -> Record:
    try:
        with open_binary(path, "the file does not exist, but an image set lists its image") as file:
            return Record(_values(ElementTree.parse(file).getroot()), path)
    except (
        ElementTree.ParseError,
        ValueError,
        LookupError,
        RecursionError,
    ) as error:  # unknown encodings; nesting
        raise DataError(f"not XML: {error}; is the file complete?", file=path) from None


def _values(element: ElementTree.Element) -> dict[str, Any]:
    """The tags of an element, nested, with numbers where VOC has them; `object` is a list, empty tags are left out."""
    values: dict[str, Any] = {}
    for child in element:
        text = (child.text or "").strip()
        if child.tag == "object":
            values.setdefault("object", []).append(_values(child))
        elif len(child):
            values.setdefault(child.tag, _values(child))
        elif text:
            text = FLAGS.get(text.casefold(), text) if child.tag == "difficult" else text
            values.setdefault(child.tag, _number(text) if child.tag in NUMBERS else text)
    # Some files hold a size of 0.
    return {
        tag: value for tag, value in values.items() if value != 0 or tag not in ("width", "height")
    }


def _number(text: str) -> float | str:
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() and abs(value) < 2**63 else value


def _edges(one: Record) -> Edges:
    box = one.record("bndbox")
    return box.number("xmin") - 1, box.number("ymin") - 1, box.number("xmax"), box.number("ymax")


def _is_other(written: str, file: Path) -> bool:
    """True where an annotation names another image than its own; folders and endings are not compared."""
    name = PureWindowsPath(written).name  # which takes both kinds of slashes
    return name not in (file.name, file.stem) and PureWindowsPath(name).stem != file.stem


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
