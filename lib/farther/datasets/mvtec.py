"""MVTec AD: one category of the benchmark of anomaly detection, in its folders."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic.dataclasses import dataclass

from farther.datasets.base import (
    WHOLE_IMAGE,
    Annotations,
    Collector,
    Expected,
    Reader,
    no_images,
    register,
)
from farther.datasets.records import Location
from farther.errors import DataError
from farther.naming.registry import STRICT
from farther.tables.endings import is_image
from farther.tables.files import inside, is_folder
from farther.tables.folders import files_below, in_unicode, listed

#: Folder and class of images without a defect.
GOOD = "good"

#: Folder of the masks of defects.
MASKS = "ground_truth"

#: Folder within the category of each subset.
FOLDERS = {"train": "train", "test_good": "test", "test_defect": "test"}


@register("mvtec")
@dataclass(config=STRICT, kw_only=True)
class MVTec(Reader):
    """A category of MVTec AD.

    Its folders are `bottle/train/good`, `bottle/test/good`, and one in `test` for each kind of
    defect. An image is one object as large as the image; its class is its folder: `good`, or the
    kind of defect. The image id is the path within the root. Subsets are `train`, `test_good` (the
    images without a defect), and `test_defect` (all others).

    Tolerated and listed: masks in `ground_truth`, and files that are not images (ignored). Errors:
    a folder in `train` besides `good`; a folder that is absent or has no images; no folder of a
    defect.

    Args:
        category: Folder of the category within the root: "bottle".
    """

    SOURCE: ClassVar[str] = "mvtec.com/company/research/datasets/mvtec-ad (Bergmann et al., 2019)"
    ORIGINALS: ClassVar[tuple[str, ...]] = tuple(FOLDERS)

    category: str

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        folder = f"{self.category}/{FOLDERS.get(subset, subset)}"
        path = folder if subset == "test_defect" else f"{folder}/{GOOD}"
        return [Expected("images", (path,), f"{self.category}.tar.xz")]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        if subset not in FOLDERS:
            raise DataError(
                f"no subset is called {subset!r}. Known: {', '.join(FOLDERS)}", file=self.root
            )
        subset_folder = f"{self.category}/{FOLDERS[subset]}"
        categories = self._categories(subset)
        collector = Collector(self.root)
        ignored_count = 0
        for index, category in enumerate(categories):
            folder = inside(self.root, f"{subset_folder}/{category}")
            files = sorted(in_unicode(path) for path in files_below(folder))
            images = [path for path in files if is_image(path)]
            ignored_count += len(files) - len(images)
            if not images:
                raise no_images(folder)
            for path in images:
                name = path.relative_to(self.root).as_posix()
                row = collector.add_image(name, name, Location(path))
                collector.add_object(row, WHOLE_IMAGE, index, row)

        if ignored_count:
            location = Location(self.root / subset_folder)
            example = f"{ignored_count} files"
            collector.warn(location, "files that are not images", example, "ignored")
        if subset == "test_defect":
            self._warn_masks(collector)
        return collector.annotations(
            unit="image",
            categories=categories,
            files=[subset_folder],
            row="{image_id}",
            box_field="the whole image",
        )

    def _categories(self, subset: str) -> list[str]:
        """The folders of a subset, which are its classes."""
        self._check_root()
        folder = inside(self.root, f"{self.category}/{FOLDERS[subset]}")
        if not is_folder(folder):
            known = ", ".join(_folder_names(self.root)) or "none"
            raise DataError(
                f"the folder does not exist; 'category' is a folder of {self.root}, which has: "
                f"{known}",
                file=folder,
            )

        names = _folder_names(folder)
        defects = [name for name in names if name != GOOD]
        if subset == "test_defect":
            if not defects:
                raise DataError("no folder of a kind of defect, such as broken_large", file=folder)
            return defects

        if subset == "train" and defects:
            raise DataError(
                f"expected training images in {GOOD!r} only; move this folder to "
                f"{FOLDERS['test_defect']!r}",
                file=folder / defects[0],
            )
        if GOOD not in names:
            raise DataError(
                f"no folder {GOOD!r}, which has the images without a defect", file=folder
            )
        return [GOOD]

    def _warn_masks(self, collector: Collector) -> None:
        """Lists the masks of defects: scores are of whole images."""
        folder: Path = self.root / self.category / MASKS
        if not is_folder(folder):
            return
        count = sum(1 for _ in files_below(folder))
        collector.warn(Location(folder), "masks of defects", f"{count} files", "ignored")


def _folder_names(folder: Path) -> list[str]:
    """Names of the folders in a folder."""
    return [path.name for path in listed(folder, "*") if is_folder(path)]
