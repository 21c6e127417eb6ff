"""Datasets that are published in COCO's form, with files and folders of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import Collector, Expected, SecondFile, register
from farther.datasets.coco import COCO, add_objects, id_text
from farther.datasets.records import stream
from farther.naming.registry import STRICT
from farther.tables.files import inside, is_folder
from farther.tables.folders import listed

#: File and folder of images by the name that VOS registers the set under.
VOS_SETS = {
    "voc_custom_train": ("voc0712_train_all.json", "JPEGImages"),
    "voc_custom_val": ("val_coco_format.json", "JPEGImages"),
    "bdd_custom_train": ("train_bdd_converted.json", "images/100k/train"),
    "bdd_custom_val": ("val_bdd_converted.json", "images/100k/val"),
    "coco_ood_val": ("annotations/instances_val2017_ood_rm_overlap.json", "val2017"),
    "coco_ood_val_bdd": ("annotations/instances_val2017_ood_wrt_bdd_rm_overlap.json", "val2017"),
    "openimages_ood_val": ("COCO-Format/val_coco_format.json", "images"),
}

#: File and folder of images of iNaturalist's subsets; file names begin with `train_val_images/`.
INATURALIST = {"train": ("train_2017_bboxes.json", "."), "val": ("val_2017_bboxes.json", ".")}

#: File and folder of images of the subsets of Objects365 v2, and of v1, whose images lie in one
#: folder.
OBJECTS365 = {
    "train": ("zhiyuan_objv2_train.json", "train"),
    "val": ("zhiyuan_objv2_val.json", "val"),
    "v1_train": ("objects365_train.json", "train"),
    "v1_val": ("objects365_val.json", "val"),
}

#: File and folder of images of UnSniffer's subsets. The known objects of `coco_mixed` are in this
#: file.
UNSNIFFER = {
    "coco_ood": ("annotations/instances_val2017_coco_ood.json", "val2017"),
    "coco_mixed": ("annotations/instances_val2017_mixed_ID.json", "val2017"),
}

#: File of the unknown objects of UnSniffer's subsets that also have known ones.
UNKNOWN = {"coco_mixed": "annotations/instances_val2017_mixed_OOD.json"}

#: Category of the objects of those files, as `coco_ood` calls it.
UNKNOWN_CATEGORY = "unknow object"

#: Object id of the first of them; those of the known objects, COCO's own, are below.
FIRST_UNKNOWN = 10**15


@register("vos")
@dataclass(config=STRICT, kw_only=True)
class VOSBenchmark(COCO):
    """The files in COCO format that came with VOS (Du et al., 2022): its ID and OOD sets.

    A root has those of one dataset in VOS' layout. Boxes are read as they are written: those of
    `voc_custom_*` keep VOC's pixels, which count from 1, and are a pixel narrower than VOC's own.
    Classes of VOC have COCO's names there, and `openimages_ood_val` has images without objects: it
    is only fit for metrics that need no ground truth.

    Args:
        layout: File and folder of images of each set, within the root.
        See `farther.datasets.coco.COCO` for the others, and for what is tolerated and what is an
        error.
    """

    SOURCE: ClassVar[str] = "github.com/deeplearning-wisc/vos, section 'Dataset Preparation'"

    layout: dict[str, tuple[str, str]] = Field(default_factory=VOS_SETS.copy)


@register("inaturalist")
@dataclass(config=STRICT, kw_only=True)
class INaturalist(COCO):
    """iNaturalist 2017: the files with bounding boxes, which cover 2,854 of its 5,089 species.

    A species' ancestor is its `supercategory`, such as Aves, so rules on that reach the species.

    Args:
        layout: File and folder of images of each subset, within the root.
        See `farther.datasets.coco.COCO` for the others, and for what is tolerated and what is an
        error.
    """

    SOURCE: ClassVar[str] = (
        "github.com/visipedia/inat_comp, 2017 (Van Horn et al., 2018, doi:10.1109/CVPR.2018.00914)"
    )

    layout: dict[str, tuple[str, str]] = Field(default_factory=INATURALIST.copy)

    def _parents(self, path: Path) -> dict[str, list[str]]:
        """The supercategory of each species."""
        parents = {}
        for record in stream(path, "categories"):
            parents[record.text("name").strip()] = [record.text("supercategory")]
        return parents


@register("objects365")
@dataclass(config=STRICT, kw_only=True)
class Objects365(COCO):
    """Objects365, version 2 (patches) or version 1.

    The annotations call an image `images/v1/patch8/objects365_v1_00420917.jpg`. Its file is looked
    for, below the subset's folder, the way its archives unpack: under that name if the folder has
    `images`, as `patch8/objects365_v1_00420917.jpg` if it has patches, and without folders
    otherwise. `isfake` (a picture of the object) and `isreflected` (in a mirror) are objects like
    any other. A few annotated images are in no archive: set `missing_images: drop`.

    Args:
        layout: File and folder of images of each subset, within the root.
        See `farther.datasets.coco.COCO` for the others, and for what is tolerated and what is an
        error.
    """

    SOURCE: ClassVar[str] = "objects365.org (Shao et al., 2019, doi:10.1109/ICCV.2019.00852)"

    layout: dict[str, tuple[str, str]] = Field(default_factory=OBJECTS365.copy)

    def _image_name(self, folder: str) -> Callable[[str], str]:
        """The last folders of a name, as many as the subset's folder has; see the class."""
        path = inside(self.root, folder)
        if is_folder(path / "images"):
            return str
        has_patches = any(is_folder(entry) for entry in listed(path, "patch*"))
        return partial(_last_parts, count=2 if has_patches else 1)


@register("unsniffer")
@dataclass(config=STRICT, kw_only=True)
class UnSniffer(COCO):
    """UnSniffer's benchmark (Liang et al., 2023, arXiv:2303.13769): COCO-OOD (unknown objects only)
    and COCO-Mixed (known and unknown objects in the same images).

    The known objects of COCO-Mixed are in one file, the unknown ones in another; whatever their
    category there, they are unknown, as in the published evaluation. Listed: unknown objects of
    images that the file of known objects does not have (dropped, as the published evaluation does).

    Args:
        layout: File and folder of images of each subset, within the root.
        unknown: For subsets whose unknown objects are in a second file: that file.
        See `farther.datasets.coco.COCO` for the others, and for what is tolerated and what is an
        error.
    """

    SOURCE: ClassVar[str] = (
        "github.com/Went-Liang/UnSniffer (Apache-2.0), README, section 'Dataset Preparation'"
    )

    layout: dict[str, tuple[str, str]] = Field(default_factory=UNSNIFFER.copy)
    unknown: dict[str, str] = Field(default_factory=UNKNOWN.copy)

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        annotations, images = COCO.expects(self, subset)
        images = replace(images, source="COCO 2017 (cocodataset.org), val2017")
        expected = [annotations, images]
        if subset in self.unknown:
            source = f"unknown objects of {subset}"
            expected.append(Expected("unknown objects", (self.unknown[subset],), source))
        return expected

    def _add_second(
        self, collector: Collector, subset: str, categories: list[str]
    ) -> SecondFile | None:
        """Adds the unknown objects of a subset whose known ones are in another file."""
        if subset not in self.unknown:
            return None
        file = self.unknown[subset]
        path = self._first_present([file], subset, "unknown")
        second_file = SecondFile(collector.object_count, file)

        unknown_index = len(categories)
        categories.append(UNKNOWN_CATEGORY)
        index_by_id = {}
        for record in stream(path, "categories"):
            index_by_id[id_text(record, "id")] = unknown_index
        add_objects(collector, path, index_by_id, FIRST_UNKNOWN)
        return second_file


def _last_parts(name: str, count: int) -> str:
    """The last parts of a path; a path with `..` is unchanged, as `image_file` refuses it."""
    path = PurePosixPath(name)
    if ".." in path.parts:
        return name
    return PurePosixPath(*path.parts[-count:]).as_posix()
