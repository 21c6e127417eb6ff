"""Making the shards of a regions folder: which images are in which, and how their rows come about."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from farther.errors import DataError, ParameterError
from farther.images.prepare import Batch, Preparation, Unusable, by_shard, one_thread, spread
from farther.tables import Header, Images, Regions, RegionsWriter
from farther.tables.files import inside

if TYPE_CHECKING:
    from farther.detectors.base import Detector
    from farther.detectors.inference import InferenceParams

#: `region_id` is the row of its image times this, plus its rank among the image's regions.
REGIONS_PER_IMAGE = 1 << 16

Failure = dict[str, str]


class Plan:
    """Which images go into which shard and batch."""

    def __init__(self, images: Images, roots: Mapping[str, Path], params: InferenceParams):
        unknown = sorted(set(images.dataset) - set(roots))
        if unknown:
            raise ParameterError(f"no root for dataset {unknown[0]!r} of the images. Known: {', '.join(sorted(roots))}")
        self.images = images
        self.roots = roots
        self.params = params
        self.shards = -(-len(images) // params.shard_images)

    def rows(self, shard: int) -> range:
        """Rows of the images table that make a shard."""
        start = shard * self.params.shard_images
        return range(start, min(start + self.params.shard_images, len(self.images)))

    def row_of(self, shard: int) -> dict[str, int]:
        """Row of each image of a shard."""
        return {self.images.image_id[row]: row for row in self.rows(shard)}

    def batch_count(self, shard: int) -> int:
        """How many batches make a shard."""
        return -(-len(self.rows(shard)) // self.params.batch_size)

    def batches(self, shard: int) -> Iterator[Batch]:
        """The batches of a shard."""
        rows = np.asarray(self.rows(shard))
        if self.params.batches == "similar shape":
            width, height = self.images.width[rows], self.images.height[rows]
            # Detectors resize before they pad, so what must be padded depends on the aspect ratio first.
            rows = rows[np.lexsort((rows, width, width / np.maximum(height, 1)))]
        for start in range(0, len(rows), self.params.batch_size):
            yield self.batch(shard, rows[start : start + self.params.batch_size])

    def batch(self, shard: int, rows: Sequence[int] | np.ndarray) -> Batch:
        """These rows as a batch."""
        images = self.images
        return Batch(
            shard,
            [images.image_id[row] for row in rows],
            [inside(self.roots[images.dataset[row]], images.file[row]) for row in rows],
            [(int(images.width[row]), int(images.height[row])) for row in rows],
        )


class Found(NamedTuple):
    """What a detector found in a batch.

    Args:
        regions: Rows of the batch's images; in several pieces, or none.
        failures: The images that have no rows because something is wrong with them.
    """

    regions: list[Regions]
    failures: list[Failure]


@dataclass(frozen=True)
class Detection:
    """Decodes, prepares and detects: a batch of files → what was found."""

    detector: Detector
    preparation: Preparation

    def __call__(self, batch: Batch) -> Found:
        """What is in a batch of files."""
        return self.of(batch, self.preparation(batch))

    def of(self, batch: Batch, items: Sequence[Any]) -> Found:
        """What is in a batch whose images are prepared."""
        usable: list[tuple[str, Any]] = []
        failures: list[Failure] = []
        for image_id, item in zip(batch.image_ids, items, strict=True):
            if isinstance(item, Unusable):
                failures.append({"image_id": image_id, "reason": item.reason})
            else:
                usable.append((image_id, item))
        with _inference_mode():
            regions, wrong = _detected(self.detector, usable)
        return Found(regions, failures + wrong)


@dataclass(frozen=True)
class Job:
    """All that making shards takes. It can be pickled for another process; the network stays behind.

    Args:
        detector: What finds the regions.
        header: What it says that all regions share.
        plan: Which images are in which shard.
        writer: Takes the shards.
    """

    detector: Detector
    header: Header
    plan: Plan
    writer: RegionsWriter

    def make(self, shards: Iterable[int], processes: int, count: Callable[[int], Any]) -> Iterator[int]:
        """Makes shards and gives the number of each that was written.

        A network on a GPU runs here, and the processes decode and prepare for it. A network on the CPU runs in each of
        the processes, on one core: so none waits for another, and the number of cores does not change how sums round.

        Args:
            shards: Their numbers; read a few batches ahead of what is given.
            processes: Worker processes; 0 does all in this one.
            count: Hears how many images each batch held that is done.
        """
        batches = (batch for shard in shards for batch in self.plan.batches(shard))
        with closing(self._found(batches, processes)) as stream:
            for shard, part in by_shard(stream, self.plan.batch_count):
                regions, failures = _shard(self.header, part, self.plan.row_of(shard), count)
                self.writer.write_shard(shard, regions, len(self.plan.rows(shard)), failures)
                yield shard

    def is_kept(self, shard: int) -> bool:
        """Whether a shard is finished, and the images that failed in it would fail again."""
        if not self.writer.finished(shard):
            return False
        failed = {failure["image_id"] for failure in self.writer.failures(shard)}
        again = self.plan.batch(shard, [row for name, row in self.plan.row_of(shard).items() if name in failed])
        return all(isinstance(item, Unusable) for item in self._preparation()(again))

    def _preparation(self) -> Preparation:
        return Preparation(self.detector, self.plan.params.exif, self.plan.params.max_pixels)

    def _found(self, batches: Iterable[Batch], processes: int) -> Generator[tuple[Batch, Found], None, None]:
        preparation = self._preparation()
        detection = Detection(self.detector, preparation)
        if self.detector.runs_on_cpu():
            _ = self.detector.network  # made here, so that forked processes share it
            with one_thread():
                yield from spread(detection, batches, processes)
        else:
            with closing(spread(preparation, batches, processes)) as stream:
                for batch, items in stream:
                    yield batch, detection.of(batch, items)


def _shard(
    header: Header, batches: Iterable[tuple[Batch, Found]], row_of: Mapping[str, int], count: Callable[[int], Any]
) -> tuple[Regions, list[Failure]]:
    """Rows and failures of one shard, both in the order of the table. `count` hears of each batch that is done."""
    regions: list[Regions] = []
    failures: list[Failure] = []
    for batch, found in batches:
        regions += found.regions
        failures += found.failures
        count(len(batch))
    failures.sort(key=lambda failure: row_of[failure["image_id"]])
    return _assembled(regions, row_of, header), failures


def _detected(detector: Detector, usable: Sequence[tuple[str, Any]]) -> tuple[list[Regions], list[Failure]]:
    """What the detector finds. If it answers with values that cannot be, its images are tried one by one."""
    if not usable:
        return [], []
    try:
        return [detector.forward([item for _, item in usable], [image_id for image_id, _ in usable])], []
    except DataError as error:
        if len(usable) == 1:
            return [], [{"image_id": usable[0][0], "reason": f"the detector's answer cannot be used: {error}"}]
    alone = [_detected(detector, [one]) for one in usable]
    return [r for regions, _ in alone for r in regions], [f for _, failures in alone for f in failures]


def _inference_mode() -> AbstractContextManager[Any]:
    """torch's, if the detector uses torch: then it has imported it by now."""
    return sys.modules["torch"].inference_mode() if "torch" in sys.modules else nullcontext()


def _assembled(found: Sequence[Regions], row_of: Mapping[str, int], header: Header) -> Regions:
    """The rows of several batches in the order of the images table, numbered."""
    with_rows = [regions for regions in found if len(regions)]
    if not with_rows:
        # An answer without rows still tells which columns there are.
        return found[0] if found else Regions.empty(header)
    for regions in with_rows:
        if list(regions.columns()) != list(with_rows[0].columns()):
            raise DataError(f"batches differ in their columns: {[list(r.columns()) for r in (regions, with_rows[0])]}")
    regions = Regions.concatenate(with_rows)
    strange = set(regions.image_id) - set(row_of)
    if strange:
        raise DataError(f"the detector answered for {min(strange)!r}, which it was not given", field="image_id")
    rows = np.array([row_of[image_id] for image_id in regions.image_id], np.int64)
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    if rank.max() >= REGIONS_PER_IMAGE:
        image_id = regions.image_id[order][rank.argmax()]
        raise DataError(f"{rank.max() + 1} regions in image {image_id!r}, at most {REGIONS_PER_IMAGE} can be numbered")
    columns = {**regions[order].columns(), "region_id": rows * REGIONS_PER_IMAGE + rank}
    return Regions(header=header, **columns)
