"""The computation of shards: batches of prepared images, the model's rows, and their files."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from farther.errors import DataError, FartherError
from farther.images.device import (
    float32_products,
    inference_mode,
    one_thread,
    workers_compute_gradients,
)
from farther.images.model import Model
from farther.images.plan import Batch, Plan, StreamParams
from farther.images.prepare import Preparation, Unusable, map_batches
from farther.incremental.code import modules_digest
from farther.incremental.keyed import key_of
from farther.processes import freed_memory_kept
from farther.tables import Images, Table
from farther.tables.shards import ShardWriter

#: Name and reason of an image without rows, under "image_id" and "reason".
Failure = dict[str, str]


def cache_key(model: Model, images: Images, params: StreamParams) -> str:
    """Cache key of the output: digest of model, parameters, code, and content of the images."""
    inputs = {
        "model": model.identity(),
        "params": {**params.params_of_output(), "max_pixels": _refused_rows(images, params)},
        "code": modules_digest(__name__, type(model).__module__, *model.modules),
        "images": columns_as_json(images),
    }
    return key_of([], inputs)


def _refused_rows(images: Images, params: StreamParams) -> list[int] | int:
    """Rows of the images above `max_pixels`; the limit itself where the size of one is not known.

    A limit that no other image exceeds changes no row of the output.
    """
    if (images.width == 0).any() or (images.height == 0).any():
        return params.max_pixels
    pixels = images.width.astype(np.int64) * images.height
    return np.flatnonzero(pixels > params.max_pixels).tolist()


def columns_as_json(table: Table) -> dict[str, list[Any]]:
    """The columns of a table for a cache key; those of images include digest and file."""
    return {name: values.tolist() for name, values in table.columns().items()}


@dataclass(frozen=True)
class BatchOutput:
    """Output of the model for one batch, or for the batches of a shard.

    Args:
        tables: One item per forward pass: its tables, as `Model.forward_all` returns them. A batch
            has one pass, none where all its images failed, or one per image; see
            `BatchInference`.
        failures: The images without rows.
    """

    tables: list[tuple[Table, ...]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def extend(self, output: BatchOutput) -> None:
        """Adds the output for other images."""
        self.tables.extend(output.tables)
        self.failures.extend(output.failures)

    def add_failure(self, image_id: str, reason: str) -> None:
        """Adds an image without rows."""
        self.failures.append({"image_id": image_id, "reason": reason})


@dataclass(frozen=True)
class BatchInference:
    """Decodes and prepares a batch of files and runs the model."""

    model: Model
    preparation: Preparation

    def __call__(self, batch: Batch) -> BatchOutput:
        """Output for a batch of files."""
        return self.run(batch, self.preparation(batch))

    def run(self, batch: Batch, items: Sequence[Any]) -> BatchOutput:
        """Output for a batch whose images `preparation` prepared."""
        output = BatchOutput()
        image_ids = []
        prepared = []
        for image_id, item in zip(batch.image_ids, items, strict=True):
            if isinstance(item, Unusable):
                output.add_failure(image_id, item.reason)
            else:
                image_ids.append(image_id)
                prepared.append(item)

        # Outside of inference mode: another model may compute gradients with the same weights.
        self.model.load()
        with self._gradient_mode():
            self._forward(prepared, image_ids, output)
        return output

    def _gradient_mode(self) -> AbstractContextManager[Any]:
        """PyTorch's inference mode, unless the model computes gradients."""
        if self.model.needs_gradients:
            return float32_products()
        return inference_mode()

    def _forward(self, prepared: list, image_ids: list[str], output: BatchOutput) -> None:
        """Adds the model's rows to the output.

        If the model yields unusable values, its images are tried one by one.
        """
        if not prepared:
            return
        try:
            output.tables.append(self.model.forward_all(prepared, image_ids))
            return
        except DataError as error:
            if len(prepared) == 1:
                output.add_failure(image_ids[0], f"the model's output cannot be used: {error}")
                return
        for image, image_id in zip(prepared, image_ids, strict=True):
            self._forward([image], [image_id], output)


@dataclass(frozen=True)
class Job:
    """Everything that is needed to compute shards; it can be pickled for another machine.

    Args:
        model: Yields the rows.
        plan: The shards and batches.
        writer: Has the cache key of the machine that started the run.
        further_writers: One for each further table of the model.
    """

    model: Model
    plan: Plan
    writer: ShardWriter
    further_writers: tuple[ShardWriter, ...] = ()

    @property
    def writers(self) -> tuple[ShardWriter, ...]:
        """One writer per table of the model."""
        return (self.writer, *self.further_writers)

    def make(
        self, shards: Iterable[int], processes: int, count: Callable[[int], Any]
    ) -> Iterator[int]:
        """Computes shards and yields the number of each one that was written.

        A model on a GPU runs in this process, and the workers decode and prepare for it. A model on
        the CPU runs in each of the workers, on one core: so none waits for another, and the number
        of cores does not change how sums are rounded.

        Args:
            shards: Numbers of the shards.
            processes: Number of worker processes; 0 does everything in this process.
            count: Called with the number of images of each batch.
        """
        # A shard is written in a thread while the next one is computed.
        with (
            ThreadPoolExecutor(1) as thread,
            closing(self._outputs(self._batches(shards), processes)) as outputs,
        ):
            shard_output = BatchOutput()
            batches_done = 0
            writing: Future[int] | None = None
            for batch, output in outputs:
                shard_output.extend(output)
                count(len(batch))
                batches_done += 1
                if batches_done < self.plan.batch_count(batch.shard):
                    continue
                if writing is not None:
                    yield writing.result()
                writing = thread.submit(self._write, batch.shard, shard_output)
                shard_output = BatchOutput()
                batches_done = 0
            if writing is not None:
                yield writing.result()

    def is_finished(self, shard: int) -> bool:
        """True if a shard is written, and the images that failed in it would fail again.

        To tell this, the failed images are read and prepared again.
        """
        if not all(writer.finished(shard) for writer in self.writers):
            return False
        row_by_image_id = self.plan.row_by_image_id(shard)
        failures = self.writer.failures(shard)
        failed_rows = sorted(row_by_image_id[failure["image_id"]] for failure in failures)
        items = self._preparation()(self.plan.batch(shard, failed_rows))
        return all(isinstance(item, Unusable) for item in items)

    def check(self) -> None:
        """Refuses to compute rows that differ from those of the machine that started the run.

        Raises:
            FartherError: this machine has another checkpoint or other code.
        """
        if cache_key(self.model, self.plan.images, self.plan.params) != self.writer.key:
            raise FartherError(
                "would make other rows than the machine that started the run: it has another "
                "checkpoint, or another version of farther. Give all machines the same environment "
                "and files"
            )

    def _preparation(self) -> Preparation:
        params = self.plan.params
        return Preparation(self.model, params.max_pixels, params.advice_on_size())

    def _batches(self, shards: Iterable[int]) -> Iterator[Batch]:
        """The batches of shards, one shard after the other."""
        for shard in shards:
            yield from self.plan.batches(shard)

    def _outputs(
        self, batches: Iterable[Batch], processes: int
    ) -> Generator[tuple[Batch, BatchOutput], None, None]:
        """Each batch with the model's output, in order."""
        inference = BatchInference(self.model, self._preparation())
        if self.model.runs_on_cpu():
            self.model.load()
            if processes > 0 and self.model.needs_gradients and not workers_compute_gradients():
                processes = 0
            with one_thread(), freed_memory_kept():
                yield from map_batches(inference, batches, processes)
            return
        with closing(map_batches(inference.preparation, batches, processes)) as prepared_batches:
            for batch, items in prepared_batches:
                yield batch, inference.run(batch, items)

    def _write(self, shard: int, output: BatchOutput) -> int:
        """Writes the tables of a shard and returns its number."""
        row_by_image_id = self.plan.row_by_image_id(shard)
        failures = sorted(output.failures, key=lambda failure: row_by_image_id[failure["image_id"]])
        tables_by_pass = output.tables or [self.model.empties()]
        for number, writer in enumerate(self.writers):
            tables_of_writer = [tables[number] for tables in tables_by_pass]
            table = _in_order(tables_of_writer, row_by_image_id, self.model)
            writer.write_shard(shard, table, len(row_by_image_id), failures)
        return shard


def _in_order(tables: Sequence[Table], row_by_image_id: Mapping[str, int], model: Model) -> Table:
    """The rows of a shard in the order of the images table, completed by the model.

    Args:
        tables: Tables of one kind, one per forward pass.
        row_by_image_id: Row in the images table of each image of the shard.
        model: Yielded the tables.
    """
    with_rows = [table for table in tables if len(table)]
    if not with_rows:
        return tables[0]  # a table without rows still says which columns there are

    columns = with_rows[0].frame.columns
    for table in with_rows:
        if table.frame.columns != columns:
            raise DataError(f"batches differ in their columns: {[table.frame.columns, columns]}")

    table = with_rows[0].concatenate(with_rows)
    image_ids = table.frame["image_id"]
    image_rows = image_ids.replace_strict(row_by_image_id, default=None, return_dtype=pl.Int64)
    if image_rows.null_count():
        unknown_id = image_ids.filter(image_rows.is_null()).min()
        raise DataError(
            f"the model yielded rows of {unknown_id!r}, which it was not given", field="image_id"
        )

    rows = image_rows.to_numpy()
    order = np.argsort(rows, kind="stable")
    return model.finish(table[order], rows[order])
