"""iNaturalist 2017 with boxes (Van Horn et al., 2018): COCO's form, species as classes."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import register
from farther.datasets.coco import COCO
from farther.datasets.records import stream
from farther.registry import STRICT

#: File and folder of images of each subset; file names begin with `train_val_images/`.
LAYOUT = {"train": ("train_2017_bboxes.json", "."), "val": ("val_2017_bboxes.json", ".")}


@register("inaturalist")
@dataclass(config=STRICT, kw_only=True)
class INaturalist(COCO):
    """iNaturalist 2017: the files with bounding boxes, which cover 2,854 of its 5,089 species.

    A species' ancestor is its `supercategory`, such as Aves, so rules on that reach the species.

    Args:
        layout: File and folder of images of each subset, within the root.
        See `farther.datasets.coco.COCO` for the others, and for what is tolerated and what is an error.
    """

    SOURCE: ClassVar[str] = "github.com/visipedia/inat_comp, 2017 (Van Horn et al., 2018, doi:10.1109/CVPR.2018.00914)"

    layout: dict[str, tuple[str, str]] = Field(default_factory=LAYOUT.copy)

    def _parents(self, path: Path) -> dict[str, list[str]]:
        """The supercategory of each species."""
        return {record.text("name").strip(): [record.text("supercategory")] for record in stream(path, "categories")}
