"""Pascal VOC: one XML file per image, and image sets in `ImageSets/Main`.

The layout is that of the development kits of VOC2007 and VOC2012.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass as plain
from pathlib import Path, PureWindowsPath
from typing import ClassVar

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
from farther.datasets.file_names import canonical_name, names_by_form
from farther.datasets.recognition import Recognised
from farther.datasets.records import Location, Record, read_lines
from farther.datasets.voc_recognition import recognise_voc
from farther.datasets.voc_xml import read_xml
from farther.errors import DataError, known_names, shorten
from farther.naming.registry import STRICT
from farther.tables.endings import is_image, is_unread_image, refuse_twins, with_lower_ending
from farther.tables.files import inside
from farther.tables.folders import entries, find_file, listed
from farther.tables.oriented import envelope_of_rotated

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
)  # fmt: skip

#: Tags of roLabelImg's `robndbox`.
ROTATED_BOX = ("cx", "cy", "w", "h", "angle")

#: The second column of an image set of one class: 1 if the image shows that class.
FLAG = re.compile(r"\s+(-1|0|1)$")


ABSENT = "the image set does not exist; parameter 'image_sets' says which to read"

OTHER_NAME = "XML files called otherwise than their images"
WITHOUT_XML = "images without an XML file"


@plain(frozen=True)
class _Annotated:
    """An image of a subset and its annotation.

    Args:
        image_id: Its id.
        file: Its file within the root.
        xml: Its XML file.
        content: Content of the XML file.
        location: Where the image is listed.
        has_other_name: Whether the XML file has another name than the image.
    """

    image_id: str
    file: str
    xml: Path
    content: Record
    location: Location
    has_other_name: bool = False

    @property
    def sides(self) -> dict[str, int]:
        """Width and height as annotated; 0 where they are not."""
        if self.content.has("size"):
            return self.content.record("size").sides()
        return {"width": 0, "height": 0}

    @property
    def filename(self) -> str:
        """The image's file name in the XML file; "" where there is none."""
        return str(self.content.values.get("filename") or "")

    def objects(self) -> list[Record]:
        """The annotated objects."""
        if self.content.has("object"):
            return list(self.content.records("object"))
        return []


@plain(frozen=True)
class _Object:
    """An annotated object.

    Args:
        image: Row of its image.
        row: Its number in the XML file.
        record: Its fields.
        category: Name of its class, after renaming.
    """

    image: int
    row: int
    record: Record
    category: str


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
    images without an XML file (left out); oriented boxes (`robndbox` of roLabelImg, `rotation` of
    CVAT), read as the upright boxes around them. Errors: an image that is listed twice, or without
    an XML file; XML that does not parse; an object without `name` or `bndbox`, or of an unknown
    class; coordinates that are not numbers or in the wrong order; a name that leaves its folder;
    with `layout`, several images of one name (`a.jpg`, `a.png`) of which `filename` names none.

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

    @classmethod
    def recognises(cls, folder: Path) -> Recognised | None:
        """A folder with VOC's image sets, or with XML files in its format; see `Reader`."""
        return recognise_voc(folder)

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        names = self.subset_names or self.layout or self.image_sets
        if names:
            return list(names)
        return super().subsets()

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        if subset in self.layout:
            source = f"the folders of {subset} in 'layout'"
            xml_folder, image_folder = self.layout[subset]
            return [
                Expected("annotations", (xml_folder,), source),
                Expected("images", (image_folder,), source),
            ]

        expected = []
        for image_set in self._image_sets(subset):
            folder, _, name = image_set.rpartition("/")
            source = f"development kit of {folder or 'VOC2007 or VOC2012'}"
            expected += [
                Expected(f"image set {name}", (self._list_file(image_set),), source),
                Expected("annotations", (_join(folder, "Annotations"),), source),
                Expected("images", (_join(folder, "JPEGImages"),), source),
            ]
        return expected

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        if self.layout:
            images = list(self._images_of_layout(subset))
        else:
            images = list(self._images_of_image_sets(subset))

        collector = Collector(self.root)
        objects: list[_Object] = []
        for image in images:
            image_row = collector.add_image(
                image.image_id, image.file, image.location, **image.sides
            )
            collector.annotated_by(image.xml)
            for row, record in enumerate(image.objects()):
                name = record.text("name")
                category = self.renamed.get(name, name)
                objects.append(_Object(image_row, row, record, category))

        _warn_other_filenames(collector, images)
        _warn_other_names(collector, images)
        if self.layout:
            self._warn_without_xml(collector, subset)
        names = [annotated.record.text("name") for annotated in objects]
        collector.warn_not_renamed(Location(self.root), names, self.renamed)

        oriented = [annotated.record for annotated in objects if _degrees(annotated.record)]
        oriented += [annotated.record for annotated in objects if annotated.record.has("robndbox")]
        if oriented:
            collector.warn_oriented(Location(oriented[0].file, oriented[0].row), len(oriented))
        categories = self._categories({annotated.category for annotated in objects})
        for annotated in objects:
            record = annotated.record
            if annotated.category not in categories:
                known = ", ".join(categories)
                raise record.error(
                    f"unknown class {annotated.category!r}; parameter 'categories' has {known}",
                    "name",
                )
            collector.add_object(
                annotated.image,
                _edges(record),
                categories.index(annotated.category),
                annotated.row,
                is_difficult=record.flag("difficult"),
            )
        return collector.annotations(
            categories=list(categories), row="object[{row}]", box_field="bndbox"
        )

    def _categories(self, occurring: set[str]) -> tuple[str, ...]:
        """Names of the classes: `categories`, else VOC's own, else those that occur."""
        if self.categories:
            return self.categories
        if not self.layout and occurring <= set(CLASSES):
            return CLASSES
        return tuple(sorted(occurring))

    def _images_of_image_sets(self, subset: str) -> Iterator[_Annotated]:
        """The images of a subset without `layout`."""
        for image_set in self._image_sets(subset):
            folder, _, _ = image_set.rpartition("/")
            image_folder = _join(folder, "JPEGImages")
            xml_folder = _join(folder, "Annotations")
            path = find_file(inside(self.root, self._list_file(image_set)))
            xml_by_path = self._xml_files(xml_folder)
            for line_number, line in enumerate(read_lines(path, ABSENT), start=1):
                if not line:
                    continue
                image_id = FLAG.sub("", line)
                location = Location(path, str(line_number))
                file = image_file(self.root, image_folder, image_id + self.extension, location)
                xml_file = image_file(self.root, xml_folder, f"{image_id}.xml", location)
                xml = xml_by_path.get(xml_file, self.root / xml_file)
                yield _Annotated(image_id, file, xml, read_xml(xml), location)

    def _xml_files(self, folder: str) -> dict[str, Path]:
        """The XML files of a folder by their paths within the root, with the ending `.xml`.

        Raises:
            DataError: the names of two differ in the case of their ending alone.
        """
        files = listed(below(self.root, folder), "*.xml")
        refuse_twins(files)
        return {with_lower_ending(file.relative_to(self.root).as_posix()): file for file in files}

    def _images_of_layout(self, subset: str) -> Iterator[_Annotated]:
        """The image of each XML file of a subset of `layout`."""
        if subset not in self.layout:
            problem = f"no subset {subset!r} in 'layout'. {known_names(self.layout)}"
            raise DataError(problem, file=self.root)
        xml_folder, image_folder = self.layout[subset]
        xml_files = listed(below(self.root, xml_folder), "*.xml")
        refuse_twins(xml_files)
        if not xml_files:
            raise DataError(
                "no XML file here; parameter 'layout' names the folders of a subset",
                file=below(self.root, xml_folder),
            )

        image_names = _ImageNames(_image_names_in(below(self.root, image_folder)))
        unread_name_by_form: dict[str, str] = {}
        for entry in entries(below(self.root, image_folder)):
            if is_unread_image(entry.name):
                unread_name_by_form[canonical_name(Path(entry.name).stem)] = entry.name

        for xml in xml_files:
            content = read_xml(xml)
            location = Location(xml)
            name = image_names.find(xml, content)
            has_other_name = name is not None and Path(name).stem != xml.stem
            if name is None:
                name = unread_name_by_form.get(canonical_name(xml.stem), xml.stem + self.extension)
            file = image_file(self.root, image_folder, name, location)
            yield _Annotated(xml.stem, file, xml, content, location, has_other_name)

    def _warn_without_xml(self, collector: Collector, subset: str) -> None:
        """Adds a warning where a folder has images that no XML file of any subset annotates."""
        _, image_folder = self.layout[subset]
        folder = below(self.root, image_folder)
        xml_stems: set[str] = set()
        for other_xml_folder, other_image_folder in self.layout.values():
            if other_image_folder == image_folder:
                xml_files = listed(below(self.root, other_xml_folder), "*.xml")
                xml_stems.update(canonical_name(xml.stem) for xml in xml_files)

        annotated_names = {Path(file).name for file in collector.files}
        without_xml: list[str] = []
        for name in _image_names_in(folder):
            forms = {canonical_name(name), canonical_name(Path(name).stem)}
            if name not in annotated_names and not forms & xml_stems:
                without_xml.append(name)
        if without_xml:
            example = f"{len(without_xml)}, such as {shorten(without_xml[0])}"
            collector.warn(Location(folder), WITHOUT_XML, example, "left out")

    def _image_sets(self, subset: str) -> tuple[str, ...]:
        """The image sets of a subset: folder and name of each."""
        if self.image_sets.get(subset):
            return self.image_sets[subset]
        if subset in self.ORIGINALS:
            return (f"VOC2012/{subset}",)
        return (subset,)

    def _list_file(self, image_set: str) -> str:
        """The text file of an image set, within the root."""
        folder, _, name = image_set.rpartition("/")
        return _join(folder, f"{self.lists}/{name}.txt")


class _ImageNames:
    """The images of a folder, looked up by their XML files.

    Args:
        names: Names of the image files.
    """

    def __init__(self, names: list[str]):
        self._names = frozenset(names)
        self._by_form = names_by_form(names)
        self._by_stem: dict[str, list[str]] = {}
        self._by_form_of_stem: dict[str, list[str]] = {}
        for name in names:
            stem = Path(name).stem
            self._by_stem.setdefault(stem, []).append(name)
            self._by_form_of_stem.setdefault(canonical_name(stem), []).append(name)

    def find(self, xml: Path, content: Record) -> str | None:
        """The name of the image that an XML file annotates; None where there is none.

        Raises:
            DataError: several images have the name of the XML file, and `filename` is none of them.
        """
        filename = PureWindowsPath(str(content.values.get("filename") or "")).name
        form = canonical_name(xml.stem)
        candidates = (
            self._by_stem.get(xml.stem)
            or self._by_form.get(form)
            or self._by_form_of_stem.get(form)
            or []
        )
        if filename in candidates:
            return filename
        if len(candidates) > 1:
            raise DataError(
                f"{' and '.join(candidates)} have the name of this file: `filename` has to say "
                f"which it annotates, found {shorten(filename)}",
                file=xml,
                field="filename",
            )
        if candidates:
            return candidates[0]
        if filename in self._names:
            return filename
        return None


def _warn_other_filenames(collector: Collector, images: Sequence[_Annotated]) -> None:
    """Adds one warning where XML files have another `filename` than that of their image."""
    annotated = [image for image in images if _is_other_image(image.filename, Path(image.file))]
    if not annotated:
        return
    first = annotated[0]
    example = first.filename
    if len(annotated) > 1:
        example += f" and {len(annotated) - 1} more"
    collector.warn(
        Location(first.xml, None, "filename"),
        "image called otherwise",
        example,
        f"read as the annotation of {Path(first.file).name}",
    )


def _warn_other_names(collector: Collector, images: Sequence[_Annotated]) -> None:
    """Adds one warning where XML files have other names than their images."""
    with_other_names = [image for image in images if image.has_other_name]
    if not with_other_names:
        return
    first = with_other_names[0]
    example = f"{len(with_other_names)} files, such as {first.xml.name} of {first.file}"
    collector.warn(Location(first.xml), OTHER_NAME, example, "read")


def _image_names_in(folder: Path) -> list[str]:
    """The names of the image files in a folder, sorted."""
    return [file.name for file in sorted(listed(folder, "*")) if is_image(file)]


def _edges(record: Record) -> Edges:
    """Edges of an object's box, which in VOC counts pixels from 1 and includes its last pixel.

    Of oriented boxes, they are those of the upright box around them: roLabelImg's `robndbox` has
    centre, size, and an angle in radians; CVAT's attribute `rotation` is in degrees.
    """
    if record.has("robndbox"):
        oriented = record.record("robndbox")
        cx, cy, width, height, angle = (oriented.number(name) for name in ROTATED_BOX)
        return envelope_of_rotated(cx, cy, width, height, angle)
    box = record.record("bndbox")
    xmin = box.number("xmin") - 1
    ymin = box.number("ymin") - 1
    xmax = box.number("xmax")
    ymax = box.number("ymax")
    degrees = _degrees(record)
    if degrees:
        centre = ((xmin + xmax) / 2, (ymin + ymax) / 2)
        size = (xmax - xmin, ymax - ymin)
        return envelope_of_rotated(*centre, *size, math.radians(degrees))
    return xmin, ymin, xmax, ymax


def _degrees(record: Record) -> float:
    """CVAT's attribute `rotation` of an object, in degrees; 0 without one."""
    attributes = record.values.get("attributes")
    if not isinstance(attributes, dict) or "attribute" not in attributes:
        return 0.0
    for attribute in record.record("attributes").records("attribute"):
        if attribute.values.get("name") == "rotation":
            return attribute.number("value")
    return 0.0


def _is_other_image(filename: str, file: Path) -> bool:
    """True where `filename` is the name of another image; folders and endings are not compared."""
    if not filename:
        return False
    name = PureWindowsPath(filename)  # accepts both kinds of slashes
    return name.name not in (file.name, file.stem) and name.stem != file.stem


def _join(folder: str, name: str) -> str:
    """The path of a file in a folder; the name alone where the folder is ""."""
    if folder:
        return f"{folder}/{name}"
    return name
