"""Writers of what a monitor finds, shard by shard: memory holds the rows of one shard.

regions/            the detections as a regions folder, which the adapter `parquet` reads
scores.parquet      one row per detection: score, calibrated confidence, whether it is unknown
images.parquet      one row per image: size, numbers of detections and proposals, uncertainty,
                    whether it was accepted
proposals.parquet   one row per proposal that is called unknown, where the bundle has proposals
detections.json     COCO's results, with `category_name`, `unknown` and `id_score` (higher: more
                    in-distribution)
pictures/           annotated images; of a video `annotated.mp4`
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from PIL import Image

from farther.errors import FartherError
from farther.monitor.monitored import Monitored
from farther.monitor.sources import Frame
from farther.tables import Header, Regions, RegionsWriter
from farther.tables.files import inside
from farther.tables.writing import final_path

# Imported in functions: supervision and OpenCV, which only pictures need.

#: Columns of `scores.parquet` and `images.parquet`.
COLUMNS: dict[str, dict[str, Any]] = {
    "scores": {
        "image_id": pl.String,
        "region_id": pl.Int64,
        "score": pl.Float64,
        "confidence": pl.Float64,
        "unknown": pl.Boolean,
    },
    "images": {
        "image_id": pl.String,
        "seconds": pl.Float64,
        "width": pl.Int32,
        "height": pl.Int32,
        "detections": pl.Int32,
        "unknown": pl.Int32,
        "proposals": pl.Int32,
        "uncertainty": pl.Float64,
        "accepted": pl.Boolean,
    },
    "proposals": {
        "image_id": pl.String,
        "objectness": pl.Float64,
        "xmin": pl.Float64,
        "ymin": pl.Float64,
        "xmax": pl.Float64,
        "ymax": pl.Float64,
    },
}

#: COCO's results, the first file that is written.
RESULTS = "detections.json"


class PredictedTables:
    """Writes regions, scores, images and COCO results. `close` must be called, after an error too.

    Args:
        folder: Where they are written.
        header: Header that the regions folder is given if there are no images.
        shard_images: Images in a shard.
    """

    def __init__(self, folder: Path, header: Header, shard_images: int):
        self._folder = folder
        self._header = header
        self._shard_images = shard_images
        self._writer: RegionsWriter | None = None
        self._shards = 0
        self._json = (folder / RESULTS).open("w", encoding="utf-8")
        self._json.write("[")
        self._parquet = {name: self._table(name) for name in ("scores", "images")}
        self._separator = "\n"
        self._clear()

    def _clear(self) -> None:
        self._regions: list[Regions] = []
        self._failures: list[dict[str, str]] = []
        self._images: list[dict[str, Any]] = []
        self._scores: list[dict[str, Any]] = []
        self._proposals: list[dict[str, Any]] = []

    def add(self, frame: Frame, monitored: Monitored) -> None:
        """Takes an image's detections."""
        regions = monitored.regions
        self._regions.append(regions)
        for row in range(len(regions)):
            scores_of_region = {
                "image_id": regions.image_id[row],
                "region_id": regions.region_id[row].item(),
                "score": monitored.score[row].item(),
                "confidence": monitored.confidence[row].item(),
                "unknown": monitored.unknown[row].item(),
            }
            self._scores.append(scores_of_region)
        height, width = frame.pixels.shape[:2]
        self._images.append(
            {
                "image_id": frame.image_id,
                "seconds": frame.seconds,
                "width": width,
                "height": height,
                "detections": len(regions),
                "unknown": int(np.sum(monitored.unknown)),
                "proposals": None if monitored.proposals is None else len(monitored.proposals),
                "uncertainty": monitored.uncertainty,
                "accepted": bool(monitored.accepted),
            }
        )
        if monitored.proposals is not None:
            self._add_proposals(monitored.proposals)
        for result in monitored.to_coco():
            text = json.dumps({**result, "file_name": frame.image_id}, ensure_ascii=False)
            self._json.write(f"{self._separator}{text}")
            self._separator = ",\n"
        self._flush(self._shard_images)

    def _add_proposals(self, proposals: Regions) -> None:
        if "proposals" not in self._parquet:
            self._parquet["proposals"] = self._table("proposals")
        for row in range(len(proposals)):
            xmin, ymin, xmax, ymax = proposals.box[row].tolist()
            proposal = {
                "image_id": proposals.image_id[row],
                "objectness": proposals.score[row].item(),
                "xmin": xmin,
                "ymin": ymin,
                "xmax": xmax,
                "ymax": ymax,
            }
            self._proposals.append(proposal)

    def failed(self, name: str, reason: str) -> None:
        """Takes the name of an image that cannot be used."""
        self._failures.append({"image_id": name, "reason": reason})
        self._flush(self._shard_images)

    def close(self) -> None:
        """Writes the rest, and ends all files."""
        if not self._shards:
            self._write_shard()  # which may have no image
        else:
            self._flush(1)
        self._json.write("\n]\n")
        self._json.close()
        for writer in self._parquet.values():
            writer.close()
        if self._writer is not None:
            self._writer.close(self._shards)

    def _table(self, name: str) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            self._folder / f"{name}.parquet", _arrow(name, {}).schema, compression="zstd"
        )

    def _flush(self, min_images: int) -> None:
        """Writes a shard, if it has at least that many images."""
        if len(self._images) + len(self._failures) >= min_images:
            self._write_shard()

    def _write_shard(self) -> None:
        with_rows = [regions for regions in self._regions if len(regions)]
        tables = with_rows or self._regions[:1] or [Regions.empty(self._header)]
        if self._writer is None:
            self._writer = RegionsWriter(self._folder / "regions", tables[0].header)
        images = len(self._images) + len(self._failures)
        self._writer.write_shard(self._shards, Regions.concatenate(tables), images, self._failures)
        rows = {"scores": self._scores, "images": self._images, "proposals": self._proposals}
        for name, writer in self._parquet.items():
            writer.write_table(_arrow(name, rows[name]))
        self._shards += 1
        self._clear()


class Pictures:
    """Writes an annotated picture of each image.

    Args:
        folder: Where they are written, under the names of the images, with the ending `.jpg`. A
            picture whose name another image's has keeps the image's ending too: that of `a.png`
            beside `a.jpg` is `a.png.jpg`.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._written: set[str] = set()

    def add(self, frame: Frame, monitored: Monitored) -> None:
        """Takes an image's detections."""
        from farther.monitor.drawing import draw

        file = self._file(inside(self._folder, frame.image_id))
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw(frame.pixels, monitored)[:, :, ::-1]).save(file, quality=88)

    def close(self) -> None:
        """Ends all files."""

    def _file(self, image: Path) -> Path:
        """The file of an image's picture, which no image before has.

        Some systems do not tell upper and lower case apart.

        Args:
            image: The image's name below the folder.
        """
        file = image.with_suffix(".jpg")
        number = 1
        while str(file).casefold() in self._written:
            ending = ".jpg" if number == 1 else f".{number}.jpg"
            file = image.with_name(image.name + ending)
            number += 1
        self._written.add(str(file).casefold())
        return file


class AnnotatedVideo:
    """Writes a video of annotated frames, all of the size of the first.

    By supervision's `VideoSink`.

    Args:
        folder: Where `annotated.mp4` is written.
        fps: Frames per second.
    """

    def __init__(self, folder: Path, fps: float):
        self._file = folder / "annotated.mp4"
        self._fps = fps
        self._sink: Any = None
        self._frames = 0
        self._size = 0, 0

    def add(self, frame: Frame, monitored: Monitored) -> None:
        """Takes a frame's detections."""
        import supervision as sv

        from farther.monitor.drawing import draw

        picture = draw(frame.pixels, monitored)
        if self._sink is None:
            self._size = picture.shape[1], picture.shape[0]
            video = sv.VideoInfo(*self._size, self._fps)
            self._sink = sv.VideoSink(str(self._file), video).__enter__()
        if self._size != (picture.shape[1], picture.shape[0]):
            picture = sv.letterbox_image(picture, self._size)
        self._sink.write_frame(picture)
        self._frames += 1

    def close(self) -> None:
        """Ends the file, and reads its last frame.

        OpenCV says nothing of frames that it could not write.

        Raises:
            FartherError: the file is not whole.
        """
        if self._sink is None:
            return
        self._sink.__exit__(None, None, None)
        import cv2

        video = cv2.VideoCapture(str(self._file))
        video.set(cv2.CAP_PROP_POS_FRAMES, self._frames - 1)
        is_whole, _ = video.read()
        video.release()
        if not is_whole:
            problem = (
                "its last frame cannot be read: the disk is full, or takes no file of this size"
            )
            raise FartherError(f"{final_path(self._file)}: the video is not whole; {problem}")


def _arrow(name: str, rows: Any) -> Any:
    return pl.DataFrame(rows, COLUMNS[name], orient="row").to_arrow()
