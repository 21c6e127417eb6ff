"""Objects365 (Shao et al., 2019): COCO's form, 365 classes, images in folders called patches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.base import register
from farther.datasets.coco import COCO
from farther.registry import STRICT
from farther.tables.files import inside

#: File and folder of images of version 2's subsets, and of version 1's, whose images lie in one folder.
LAYOUT = {
    "train": ("zhiyuan_objv2_train.json", "train"),
    "val": ("zhiyuan_objv2_val.json", "val"),
    "v1_train": ("objects365_train.json", "train"),
    "v1_val": ("objects365_val.json", "val"),
}


@register("objects365")
@dataclass(config=STRICT, kw_only=True)
class Objects365(COCO):
    """Objects365, version 2 (patches) or version 1.

    The annotations call an image `images/v1/patch8/objects365_v1_00420917.jpg`. Its file is looked for, below the
    subset's folder, the way its archives unpack: under that name if the folder has `images`, as
    `patch8/objects365_v1_00420917.jpg` if it has patches, and without folders otherwise. `isfake` (a picture of the
    object) and `isreflected` (in a mirror) are objects like others. A few images are annotated and in no archive: set
    `missing_images: drop`.

    Args:
        layout: File and folder of images of each subset, within the root.
        See `farther.datasets.coco.COCO` for the others, and for what is tolerated and what is an error.
    """

    SOURCE: ClassVar[str] = "objects365.org (Shao et al., 2019, doi:10.1109/ICCV.2019.00852)"

    layout: dict[str, tuple[str, str]] = Field(default_factory=LAYOUT.copy)

    def _image_name(self, folder: str) -> Callable[[str], str]:
        """The last folders of a name, as many as the subset's folder has; see the class."""
        path = inside(self.root, folder)
        if (path / "images").is_dir():
            return str
        kept = 2 if any(path.glob("patch*/")) else 1
        return lambda name: _last(name, kept)


def _last(name: str, parts: int) -> str:
    """The last parts of a path; one that climbs is left whole, for the check that refuses it."""
    path = PurePosixPath(name)
    return name if ".." in path.parts else PurePosixPath(*path.parts[-parts:]).as_posix()
