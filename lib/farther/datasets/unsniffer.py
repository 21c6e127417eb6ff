"""UnSniffer's benchmark (Liang et al., 2023, arXiv:2303.13769): images of COCO with all unknown objects labelled."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import Collector, DataWarning, Expected, register
from farther.datasets.coco import COCO, identity
from farther.datasets.records import stream
from farther.registry import STRICT

#: File of annotations and folder of images by subset. The known objects of `coco_mixed` are in this file.
LAYOUT = {
    "coco_ood": ("annotations/instances_val2017_coco_ood.json", "val2017"),
    "coco_mixed": ("annotations/instances_val2017_mixed_ID.json", "val2017"),
}

#: File of the unknown objects of subsets that have known ones too.
UNKNOWN = {"coco_mixed": "annotations/instances_val2017_mixed_OOD.json"}

#: Category of the objects of those files, as `coco_ood` calls it.
CATEGORY = "unknow object"

#: Object id of the first of them; those of the known objects, COCO's own, are below.
FIRST = 10**15


@register("unsniffer")
@dataclass(config=STRICT, kw_only=True)
class UnSniffer(COCO):
    """COCO-OOD (unknown objects only) and COCO-Mixed (known and unknown objects in the same images).

    The known objects of COCO-Mixed are in one file, the unknown ones in another; whatever their category there, they
    are unknown, as in the published evaluation. Listed: unknown objects of images that the file of known objects does
    not have (dropped, as the published evaluation does).

    Args:
        layout: File and folder of images of each subset, within the root.
        unknown: For subsets whose unknown objects are in a second file: that file.
        See `farther.datasets.coco.COCO` for the others, and for what is tolerated and what is an error.
    """

    SOURCE: ClassVar[str] = "github.com/Went-Liang/UnSniffer (Apache-2.0), README, section 'Dataset Preparation'"

    layout: dict[str, tuple[str, str]] = Field(default_factory=LAYOUT.copy)
    unknown: dict[str, str] = Field(default_factory=UNKNOWN.copy)

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        second = self.unknown.get(subset)
        more = [] if second is None else [Expected("unknown objects", (second,), f"unknown objects of {subset}")]
        annotations, images = COCO.expects(self, subset)
        return [annotations, replace(images, source="COCO 2017 (cocodataset.org), val2017"), *more]

    def _add_second(
        self, found: Collector, subset: str, images: dict[int | str, int], names: list[str]
    ) -> tuple[int, str] | None:
        """Adds the unknown objects of a subset whose known ones are in another file."""
        if subset not in self.unknown:
            return None
        path = self._first_present([self.unknown[subset]], subset, "unknown")
        file, count = path.relative_to(self.root).as_posix(), found.object_count
        names.append(CATEGORY)
        for row, record in enumerate(stream(path, "annotations")):
            x, y, width, height = record.numbers("bbox", 4)
            image = identity(record, "image_id")
            if image in images:
                box, number = (x, y, x + width, y + height), FIRST + row
                crowd = record.flag("iscrowd")
                found.add_object(images[image], box, len(names) - 1, row, object_id=number, is_crowd=crowd)
            else:
                kind, problem = "object of an unknown image", repr(image)
                found.warnings.append(DataWarning(kind, "object", file, record.row, "image_id", problem, "dropped"))
        return count, file
