"""Images that nobody annotated: photographs in any nesting of folders, and frames of videos."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.datasets.annotation_files import is_annotation_by_name
from farther.datasets.base import (
    Annotations,
    Collector,
    Expected,
    Reader,
    below,
    no_images,
    register,
    warn_of_unread_images,
)
from farther.datasets.readers import create
from farther.datasets.recognition import Evidence, Recognised
from farther.datasets.records import Location
from farther.datasets.tidying import corrected
from farther.datasets.unread_boxes import image_stems, refuse_unread
from farther.errors import DataError, shorten
from farther.naming.extras import missing
from farther.naming.registry import STRICT
from farther.tables.endings import is_image, is_unread_image, is_video
from farther.tables.folders import files_below, in_unicode

# Imported in functions: OpenCV, which only videos need.

#: Frames per second of a video whose file does not contain the rate.
USUAL_FPS = 25.0
#: JPEG quality of frames.
QUALITY = 95


@register("images")
@dataclass(config=STRICT, kw_only=True)
class UnlabelledImages(Reader):
    """Images without boxes: their content is unknown, which differs from images without objects.

    The image id is the path within the subset's folder. See
    `farther.datasets.base.Annotations.unlabelled` for the treatment of such images. With `boxes`,
    the images that this file names have its objects and the others stay unlabelled: a folder
    becomes labelled image by image.

    Videos become images, one every `every` seconds. `ingest` writes these frames as JPEG files,
    beside copies of the image files, under the names of `ffmpeg -i clip.mp4 clip.mp4/%08d.jpg`.

    Tolerated and listed: files that are neither images nor videos; each image of `boxes` that does
    not exist (left out). Errors: a subset without images; a video that OpenCV cannot read.

    Args:
        folders: Folder of each subset within the root, "." for the root itself; by default one
            subset, `all`.
        every: Seconds between two frames of a video.
        boxes: A file in COCO's format, within the root, whose `file_name` is an image's path in the
            subset's folder.
    """

    SOURCE: ClassVar[str] = "your own images"
    EVIDENCE: ClassVar[Evidence] = "images"

    folders: dict[str, str] = Field(default_factory=lambda: {"all": "."})
    every: Annotated[float, Field(gt=0)] = 1.0
    boxes: str | None = None

    @classmethod
    def recognises(cls, folder: Path) -> Recognised | None:
        """A folder of images or videos without annotations; see `Reader`."""
        return _recognise(folder)

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
        folder = below(self.root, name)
        if not folder.is_dir():
            raise DataError(
                "the folder does not exist; parameter 'folders' names the folder of a subset",
                file=folder,
            )
        files = sorted(in_unicode(path) for path in files_below(folder))
        images = [path for path in files if is_image(path)]
        videos = [path for path in files if is_video(path)]
        path_by_id = {path.relative_to(folder).as_posix(): path for path in images}
        for video in videos:
            video_name = video.relative_to(folder).as_posix()
            for frame in _selected_frames(video, self.every):
                path_by_id[f"{video_name}/{frame:08d}.jpg"] = video
        if not path_by_id:
            raise no_images(folder)

        collector = Collector(self.root)
        for image_id, path in path_by_id.items():
            file = image_id if name == "." else f"{name}/{image_id}"
            collector.add_image(image_id, file, Location(path))
        box_file_name = Path(str(self.boxes)).name
        warn_of_unread_images(collector, folder, files)
        _warn_of_other_files(
            collector, folder, [path for path in files if path.name != box_file_name]
        )

        labelled_rows: set[int] = set()
        categories: list[str] = []
        if self.boxes is not None:
            labelled_rows, categories = self._add_boxes(collector, self.boxes, name)
        unlabelled_rows = sorted(set(collector.rows.values()) - labelled_rows)
        embedded = None
        if videos:
            embedded = partial(_contents, list(path_by_id.values()), frozenset(videos), self.every)
        return collector.annotations(
            categories=categories,
            files=[self.boxes or name],
            row="annotations[{row}]",
            box_field="bbox",
            embedded=embedded,
            unlabelled=np.array(unlabelled_rows, dtype=np.int64),
        )

    def _add_boxes(
        self, collector: Collector, boxes: str, folder: str
    ) -> tuple[set[int], list[str]]:
        """Adds the objects of a file in COCO's format.

        Args:
            collector: Takes the objects; it has the images.
            boxes: The file, within the root.
            folder: The folder of the images, within the root.

        Returns:
            Rows of the images that the file names, and its categories.
        """
        reader = create("coco", root=self.root, layout={"boxes": (boxes, folder)})
        annotations = corrected(reader.read("boxes"))
        collector.warnings += annotations.warnings

        prefix = "" if folder == "." else f"{folder}/"
        row_by_annotated_row: dict[int, int] = {}
        for annotated_row, file in enumerate(annotations.images.file):
            image_id = file.removeprefix(prefix)
            if image_id in collector.rows:
                row_by_annotated_row[annotated_row] = collector.rows[image_id]
            else:
                collector.warn(
                    Location(self.root / boxes),
                    "image missing",
                    f"{shorten(file)} does not exist",
                    "left out",
                    about="image",
                )

        objects = annotations.objects
        for index, annotated_row in enumerate(objects.image.tolist()):
            if annotated_row not in row_by_annotated_row:
                continue
            xmin, ymin, xmax, ymax = objects.box[index].tolist()
            collector.add_object(
                row_by_annotated_row[annotated_row],
                (xmin, ymin, xmax, ymax),
                int(objects.category[index]),
                int(objects.row[index]),
                object_id=int(objects.object_id[index]),
                is_crowd=bool(objects.is_crowd[index]),
                is_difficult=bool(objects.is_difficult[index]),
            )
        return set(row_by_annotated_row.values()), annotations.categories


def _recognise(root: Path) -> Recognised | None:
    """A folder of images or videos without annotations.

    Raises:
        DataError: see `refuse_unread`.
    """
    files = sorted(files_below(root))
    if not any(is_image(file) or is_video(file) for file in files):
        return None
    stems = image_stems(files)
    for file in files:
        if not is_image(file) and not is_video(file):
            refuse_unread(root, file, stems)
    return Recognised(notes=_folder_notes(root, files))


def _folder_notes(root: Path, files: Iterable[Path]) -> tuple[str, ...]:
    """A sentence about the folders of images that are read as one subset; none for a single one."""
    names: dict[str, None] = {}
    for file in files:
        parts = file.relative_to(root).parts
        if len(parts) > 1 and (is_image(file) or is_video(file)):
            names[parts[0]] = None
    if len(names) < 2:
        return ()
    first = next(iter(names))
    return (
        f"the images of its {len(names)} folders are one subset, all. For one subset per folder, "
        f"write folders: {{{first}: {first}, …}} here, and each of them below benchmarks, splits",
    )


def _warn_of_other_files(collector: Collector, folder: Path, files: Sequence[Path]) -> None:
    """Adds a warning about annotation files, and one about other files that are not images.

    Args:
        collector: Takes the warnings.
        folder: The folder of the images.
        files: All files below it.
    """
    annotation_files: list[Path] = []
    unknown_files: list[Path] = []
    for path in files:
        if is_image(path) or is_video(path) or is_unread_image(path):
            continue
        if is_annotation_by_name(folder, path):
            annotation_files.append(path)
        else:
            unknown_files.append(path)

    location = Location(folder)
    if annotation_files:
        collector.warn(
            location,
            "annotation files beside images without boxes",
            _example(annotation_files),
            "not read: this format has images without boxes, but for the file that `boxes` names",
        )
    if unknown_files:
        example = _example(unknown_files)
        collector.warn(location, "neither images nor videos", example, "left out")


def _example(files: Sequence[Path]) -> str:
    return f"{len(files)} files, such as {shorten(files[0].name)}"


def _contents(
    paths: Sequence[Path], videos: Collection[Path], every: float
) -> Iterator[tuple[int, bytes]]:
    """Row and file content of each image.

    Args:
        paths: File of each image; the frames of a video follow each other.
        videos: The paths that are videos.
        every: Seconds between two frames.
    """
    row = 0
    while row < len(paths):
        path = paths[row]
        if path not in videos:
            yield row, path.read_bytes()
            row += 1
            continue
        for content in _frame_contents(path, every):
            yield row, content
            row += 1


def _selected_frames(video: Path, every: float) -> list[int]:
    """Numbers, from 1, of the frames that become images.

    Raises:
        DataError: OpenCV is not installed, or reads no frame.
    """
    with _opened(video) as capture:
        numbers = list(_numbers_of_frames(capture, every))
    if not numbers:
        raise DataError(
            "OpenCV reads no frame of it: damaged, or in a format that it does not know", file=video
        )
    return numbers


def _frame_contents(video: Path, every: float) -> Iterator[bytes]:
    """JPEG files of the frames that become images."""
    import cv2

    with _opened(video) as capture:
        for _ in _numbers_of_frames(capture, every):
            _, pixels = capture.retrieve()
            _, jpeg = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
            yield jpeg.tobytes()


def _numbers_of_frames(capture: Any, every: float) -> Iterator[int]:
    """Numbers, from 1, of one frame every `every` seconds.

    A frame is grabbed when its number is yielded, so that `capture.retrieve()` decodes it.
    """
    import cv2

    frames_per_second = capture.get(cv2.CAP_PROP_FPS) or USUAL_FPS
    step = max(1, round(frames_per_second * every))
    number = 0
    while capture.grab():
        number += 1
        if (number - 1) % step == 0:
            yield number


@contextmanager
def _opened(video: Path) -> Iterator[Any]:
    """OpenCV's `VideoCapture` of a video.

    Raises:
        DataError: OpenCV is not installed.
    """
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise DataError(f"a video {missing(error)}", file=video) from None
    capture = cv2.VideoCapture(str(video))
    try:
        yield capture
    finally:
        capture.release()
