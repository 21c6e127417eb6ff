"""The shards and batches that images are streamed in, and the parameters of the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.errors import ParameterError, known_names
from farther.images import read
from farther.naming.registry import STRICT, Parameters
from farther.processes import count_cores
from farther.tables import Images
from farther.tables.files import inside


@dataclass(config=STRICT, kw_only=True)
class StreamParams(Parameters):
    """Parameters of the engine that streams images.

    Args:
        batch_size: Images that the model sees at once. Another size changes numbers by rounding
            only.
        workers: Worker processes; 0 does everything in this process. Beside a model on a GPU they
            decode and prepare; the default is one fewer than there are cores, and at most 8. On the
            CPU each decodes, prepares and runs the model on one core, with memory for a batch; the
            default is the number of cores, and at most 8, but 0 on a single core. With "ray", the
            number beside each model.
        shard_images: Images in one shard: the unit that is written at once, kept after an
            interruption, and held in memory.
        batches: Which images of a shard share a batch: those of "similar shape", so that there is
            little padding, or those that follow each other in the "table". The order of the rows is
            that of the table either way.
        max_pixels: Images with more are not decoded and count as failures. A batch is in memory,
            with at least 3 bytes per pixel. Another limit that the same images exceed keeps what
            was computed.
        max_failures: Share of the images that may be unusable before the run ends in an error; they
            are left out and listed.
        engine: Where the model runs: on this machine ("local"), or in one process for each GPU of a
            Ray cluster ("ray"). The output is the same.
    """

    #: The section of params.yaml, or the part of one, that has them.
    SECTION: ClassVar[str] = "inference"

    batch_size: Annotated[int, Field(ge=1)] = 16
    workers: Annotated[int, Field(ge=0)] | None = None
    shard_images: Annotated[int, Field(ge=1)] = 512
    batches: Literal["similar shape", "table"] = "similar shape"
    max_pixels: Annotated[int, Field(ge=1)] = read.MAX_PIXELS
    max_failures: Annotated[float, Field(ge=0, le=1)] = 0.01
    engine: Literal["local", "ray"] = "local"

    @classmethod
    def advice_on_size(cls) -> str:
        """How to have images with more than `max_pixels` read."""
        return f"raise {cls.SECTION}.max_pixels in params.yaml"

    def params_of_output(self) -> dict[str, Any]:
        """The parameters that the rows depend on: all but workers, max_failures and engine."""
        params = asdict(self)
        for name in ("workers", "max_failures", "engine"):
            del params[name]
        return params

    def processes(self, cores_left: int = 1) -> int:
        """Number of worker processes: `workers`, or all cores but `cores_left`, at most 8.

        On a single core it is 0 by default: this process would only wait for a worker, which costs
        a fork, a copy of each result, and kernels that are compiled again, for each split.
        """
        if self.workers is not None:
            return self.workers
        cores = count_cores()
        if cores == 1:
            return 0
        return min(8, cores - cores_left)


@plain_dataclass(frozen=True)
class Batch:
    """Images that the network sees together.

    Args:
        shard: Number of the shard that holds their rows.
        image_ids: Their names.
        files: Their files.
        sizes: Width and height of each in the images table.
    """

    shard: int
    image_ids: list[str]
    files: list[Path]
    sizes: list[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.image_ids)


class Plan:
    """The division of images into shards and batches.

    A shard is a range of rows of the images table; a batch is some of the rows of one shard.

    Args:
        images: The images.
        roots: Folder of each dataset that the table names.
        params: Sizes of shards and batches, and the order of images within a shard.

    Attributes:
        shard_count: Number of shards.

    Raises:
        ParameterError: a dataset of the images has no root folder.
    """

    def __init__(self, images: Images, roots: Mapping[str, Path], params: StreamParams):
        unknown = sorted(set(images.dataset) - set(roots))
        if unknown:
            raise ParameterError(
                f"no root for dataset {unknown[0]!r} of the images. {known_names(sorted(roots))}"
            )
        self.images = images
        self.roots = roots
        self.params = params
        self.shard_count = -(-len(images) // params.shard_images)

    def rows(self, shard: int) -> range:
        """Rows of the images table that make a shard."""
        start = shard * self.params.shard_images
        return range(start, min(start + self.params.shard_images, len(self.images)))

    def row_by_image_id(self, shard: int) -> dict[str, int]:
        """Name of each image of a shard → its row in the images table."""
        return {self.images.image_id[row]: row for row in self.rows(shard)}

    def batch_count(self, shard: int) -> int:
        """Number of batches of a shard."""
        return -(-len(self.rows(shard)) // self.params.batch_size)

    def batches(self, shard: int) -> Iterator[Batch]:
        """The batches of a shard."""
        rows = np.asarray(self.rows(shard))
        if self.params.batches == "similar shape":
            rows = self._by_shape(rows)
        for start in range(0, len(rows), self.params.batch_size):
            yield self.batch(shard, rows[start : start + self.params.batch_size])

    def _by_shape(self, rows: np.ndarray) -> np.ndarray:
        """Rows sorted by aspect ratio, then by width."""
        width = self.images.width[rows]
        height = self.images.height[rows]
        # Networks resize before they pad: the padding depends on the aspect ratio first.
        aspect_ratio = width / np.maximum(height, 1)
        return rows[np.lexsort((rows, width, aspect_ratio))]

    def batch(self, shard: int, rows: Sequence[int] | np.ndarray) -> Batch:
        """The images in some rows of a shard as a batch.

        Args:
            shard: Number of the shard.
            rows: Rows of the images table, in the order of the batch.
        """
        batch = Batch(shard, [], [], [])
        for row in rows:
            batch.image_ids.append(self.images.image_id[row])
            batch.files.append(self._file(row))
            batch.sizes.append((int(self.images.width[row]), int(self.images.height[row])))
        return batch

    def files(self, image_ids: Sequence[str]) -> list[Path]:
        """Files of images, by their names."""
        row_by_image_id = {image_id: row for row, image_id in enumerate(self.images.image_id)}
        return [self._file(row_by_image_id[image_id]) for image_id in image_ids]

    def _file(self, row: int) -> Path:
        """The file of an image."""
        return inside(self.roots[self.images.dataset[row]], self.images.file[row])
