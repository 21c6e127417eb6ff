"""Images that nobody annotated: photographs in any nesting of folders, and frames of videos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.annotation_files import is_annotation_by_name
from farther.datasets.base import Annotations, Collector, Expected, Reader, below, create, register
from farther.datasets.image_folder import ENDINGS
from farther.datasets.records import Location
from farther.datasets.tidying import tidied
from farther.errors import DataError, shorten
from farther.extras import missing
from farther.registry import STRICT
from farther.tables.folders import files_below, in_unicode

#: Endings of video files, in any case.
VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v")
#: Frames per second of a video that does not say.
USUAL_FPS = 25.0
#: OpenCV's numbers of CAP_PROP_FPS and IMWRITE_JPEG_QUALITY, and the quality of frames.
FPS, JPEG_QUALITY, QUALITY = 5, 1, 95


@register("images")
@dataclass(config=STRICT, kw_only=True)
class UnlabelledImages(Reader):
    """Images without boxes: what they show is unknown, which is not the same as showing nothing.

    The image id is the path within the subset's folder. See
    `farther.datasets.base.Annotations.unlabelled` for what becomes of such images. With `boxes`,
    the images that this file names have its objects and the others stay unlabelled: a folder
    becomes labelled image by image.

    Videos become images, one every `every` seconds. `ingest` writes these frames as JPEG files,
    beside copies of the image files; they are called as `ffmpeg -i clip.mp4 clip.mp4/%08d.jpg`
    calls them.

    Tolerated and listed: files that are neither images nor videos; each image of `boxes` that is
    not there (left out). Errors: a subset without images; a video that OpenCV cannot read.

    Args:
        folders: Folder of each subset within the root, "." for the root itself; by default one
            subset, `all`.
        every: Seconds between two frames of a video.
        boxes: A file in COCO's format, within the root, whose `file_name` is an image's path in the
            subset's folder.
    """

    SOURCE: ClassVar[str] = "your own images"

    folders: dict[str, str] = Field(default_factory=lambda: {"all": "."})
    every: Annotated[float, Field(gt=0)] = 1.0
    boxes: str | None = None

    def subsets(self) -> list[str]:
        """Names of the subsets; see `Reader`."""
        self._check_root()
        return list(self.subset_names or self.folders)

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        return [Expected("images", (self.folders.get(subset, subset),), subset)]

    def read(self, subset: str) -> Annotations:
        """The images of one subset; see `Reader` and, for what is an error, the class."""
        name = self.folders.get(subset, subset)
        folder, found = below(self.root, name), Collector(self.root)
        if not folder.is_dir():
            raise DataError(
                "the folder does not exist; parameter 'folders' names the folder of a subset",
                file=folder,
            )
        files = sorted(in_unicode(path) for path in files_below(folder))
        videos = {
            path: _chosen(path, self.every) for path in files if path.name.lower().endswith(VIDEOS)
        }
        images = [path for path in files if path.name.lower().endswith(ENDINGS)]
        listed = {path.relative_to(folder).as_posix(): path for path in images}
        listed |= {
            f"{p.relative_to(folder).as_posix()}/{n:08d}.jpg": p
            for p, numbers in videos.items()
            for n in numbers
        }
        if not listed:
            raise DataError(
                f"no images here; known extensions: {', '.join((*ENDINGS, *VIDEOS))}", file=folder
            )
        for image_id, path in listed.items():
            found.add_image(
                image_id, image_id if name == "." else f"{name}/{image_id}", Location(path)
            )
        _warn_of_others(
            found, folder, [path for path in files if path.name != Path(str(self.boxes)).name]
        )
        labelled, categories = self._add_boxes(found, name)
        return found.annotations(
            categories=categories,
            files=[self.boxes or name],
            row="annotations[{row}]",
            box_field="bbox",
            embedded=(lambda: _contents(list(listed.values()), videos, self.every))
            if videos
            else None,
            unlabelled=np.array(sorted(set(found.rows.values()) - labelled), dtype=np.int64),
        )

    def _add_boxes(self, found: Collector, name: str) -> tuple[set[int], list[str]]:
        """Adds the objects of `boxes`; rows of the images that it names, and its categories."""
        if self.boxes is None:
            return set(), []
        read = tidied(
            create("coco", root=self.root, layout={"boxes": (self.boxes, name)}).read("boxes")
        )
        found.warnings += read.warnings
        prefix = "" if name == "." else f"{name}/"
        rows = [found.rows.get(file.removeprefix(prefix), -1) for file in read.images.file]
        for file, row in zip(read.images.file, rows, strict=True):
            if row < 0:
                problem = f"{shorten(file)} does not exist"
                found.warn(
                    Location(self.root / self.boxes),
                    "image missing",
                    problem,
                    "left out",
                    about="image",
                )
        objects = read.objects
        for one in range(len(objects)):
            if (row := rows[objects.image[one]]) >= 0:
                xmin, ymin, xmax, ymax = objects.box[one].tolist()
                found.add_object(
                    row,
                    (xmin, ymin, xmax, ymax),
                    int(objects.category[one]),
                    int(objects.row[one]),
                    object_id=int(objects.object_id[one]),
                    is_crowd=bool(objects.is_crowd[one]),
                    is_difficult=bool(objects.is_difficult[one]),
                )
        return {row for row in rows if row >= 0}, read.categories


def _warn_of_others(collector: Collector, folder: Path, files: Sequence[Path]) -> None:
    """Adds a warning about files that are neither images nor videos, and one about those of annotations."""
    others = [path for path in files if not path.name.lower().endswith((*ENDINGS, *VIDEOS))]
    annotations = [path for path in others if is_annotation_by_name(folder, path)]
    if annotations:
        example = f"{len(annotations)} files, such as {shorten(annotations[0].name)}"
        action = (
            "not read: this format has images without boxes, but for the file that `boxes` names"
        )
        collector.warn(
            Location(folder), "annotation files beside images without boxes", example, action
        )
    others = [path for path in others if path not in annotations]
    if others:
        example = f"{len(others)} files, such as {shorten(others[0].name)}"
        collector.warn(Location(folder), "neither images nor videos", example, "left out")


def _chosen(video: Path, every: float) -> list[int]:
    """Numbers of the frames that are taken, from 1."""
    return [number for number, _ in _frames(video, every, decode=False)]


def _contents(
    paths: Sequence[Path], videos: Mapping[Path, Sequence[int]], every: float
) -> Iterator[tuple[int, bytes]]:
    """Row and file content of each image; frames of a video follow each other in `paths`."""
    row = 0
    while row < len(paths):
        path = paths[row]
        if path not in videos:
            yield row, path.read_bytes()
            row += 1
            continue
        for _, content in _frames(path, every):
            yield row, content
            row += 1


def _frames(video: Path, every: float, *, decode: bool = True) -> Iterator[tuple[int, bytes]]:
    """Number, from 1, and JPEG of a frame every so many seconds; b"" without decoding.

    Raises:
        DataError: OpenCV is not installed, or reads no frame.
    """
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise DataError(f"a video {missing(error)}", file=video) from None
    capture = cv2.VideoCapture(str(video))
    step = max(1, round((capture.get(FPS) or USUAL_FPS) * every))
    number = 0
    while capture.grab():
        number += 1
        if (number - 1) % step == 0:
            yield (
                number,
                cv2.imencode(".jpg", capture.retrieve()[1], [JPEG_QUALITY, QUALITY])[1].tobytes()
                if decode
                else b"",
            )
    capture.release()
    if not number:
        raise DataError(
            "OpenCV reads no frame of it: damaged, or in a format that it does not know", file=video
        )
