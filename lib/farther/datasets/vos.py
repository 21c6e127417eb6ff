"""The files in COCO's form that came with VOS (Du et al., 2022): its ID and OOD sets."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import register
from farther.datasets.coco import COCO
from farther.registry import STRICT

#: File and folder of images by the name that VOS registers the set under.
LAYOUT = {
    "voc_custom_train": ("voc0712_train_all.json", "JPEGImages"),
    "voc_custom_val": ("val_coco_format.json", "JPEGImages"),
    "bdd_custom_train": ("train_bdd_converted.json", "images/100k/train"),
    "bdd_custom_val": ("val_bdd_converted.json", "images/100k/val"),
    "coco_ood_val": ("annotations/instances_val2017_ood_rm_overlap.json", "val2017"),
    "coco_ood_val_bdd": ("annotations/instances_val2017_ood_wrt_bdd_rm_overlap.json", "val2017"),
    "openimages_ood_val": ("COCO-Format/val_coco_format.json", "images"),
}


@register("vos")
@dataclass(config=STRICT, kw_only=True)
class VOS(COCO):
    """The sets of the VOS benchmark; a root has those of one dataset in VOS' layout.

    Boxes are read as they are written: those of `voc_custom_*` keep VOC's pixels, which count from 1, and are a pixel
    narrower than VOC's own. Classes of VOC carry COCO's names there, and `openimages_ood_val` has images without
    objects: it serves measures that need no ground truth only.

    Args:
        layout: File and folder of images of each set, within the root.
        See `farther.datasets.coco.COCO` for the others, and for what is tolerated and what is an error.
    """

    SOURCE: ClassVar[str] = "github.com/deeplearning-wisc/vos, section 'Dataset Preparation'"

    layout: dict[str, tuple[str, str]] = Field(default_factory=LAYOUT.copy)
