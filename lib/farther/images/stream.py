"""The engine that streams images through a model and writes one table, shard by shard.

Worker processes decode and prepare images; the model runs in this process if it has a GPU, else in
the workers, on one core each. With `engine: ray` each GPU (or core) of a Ray cluster computes
entire shards. Memory holds two shards and a few batches, however many images there are. A killed
run resumes after its last finished shard and ends in the same bytes.

A `Model` yields one table per batch of images: a detector its regions, CLIP its embeddings. A
`ShardWriter` of that table writes the folder. A model that stores each image's mean colour:

    class Colours(Table):
        image_id = Column(pl.String)
        mean = Column(VECTOR)

    class MeanColour(Model):
        def identity(self):
            return {"name": "mean colour"}

        def prepare(self, image, image_id):
            return image.mean(axis=(0, 1))

        def forward(self, prepared, image_ids):
            return Colours(image_id=image_ids, mean=np.stack(prepared))

        def empty(self):
            return Colours.empty()

    model, params = MeanColour(), StreamParams()
    writer = ColoursWriter("colours", cache_key(model, images, params), work="work")
    stream(model, images, {"voc": Path("data/voc")}, writer, params)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from tqdm import tqdm

from farther.errors import DataError, FartherError
from farther.images.device import float32_products, inference_mode, one_thread
from farther.images.plan import Batch, Plan, StreamParams
from farther.images.prepare import Preparation, Unusable, map_batches
from farther.incremental.code import modules_digest
from farther.incremental.keyed import key_of
from farther.processes import freed_memory_kept
from farther.tables import Images, Table
from farther.tables.shards import ShardWriter

#: Name and reason of an image without rows, under "image_id" and "reason".
Failure = dict[str, str]


class Model(ABC):
    """A network that yields one table per batch of images.

    It must be picklable, without the network itself.
    """

    #: Where the network runs, as PyTorch names it, or "auto".
    device: str = "cpu"
    #: Dotted names of modules, besides the model's own, whose code the rows depend on.
    modules: ClassVar[tuple[str, ...]] = ()
    #: Whether `forward` computes gradients: then it runs outside of PyTorch's inference mode.
    needs_gradients: bool = False

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Everything that the rows depend on besides images, parameters and code, as JSON."""

    @abstractmethod
    def prepare(self, image: np.ndarray, image_id: str) -> Any:
        """Input of `forward` for one image; cheap, and does not need the network.

        Args:
            image: ndarray of shape (H, W, 3), uint8, red green blue.
            image_id: Its name in the images table.
        """

    @abstractmethod
    def forward(self, prepared: list, image_ids: list[str]) -> Table:
        """The rows of a batch of prepared images, with the image's name in column `image_id`.

        Raises:
            DataError: the network gives values that cannot be used.
        """

    @abstractmethod
    def empty(self) -> Table:
        """A table without rows, for a shard without a usable image."""

    def forward_all(self, prepared: list, image_ids: list[str]) -> tuple[Table, ...]:
        """The table of `forward`, and further tables of the same forward pass; see `stream`."""
        return (self.forward(prepared, image_ids),)

    def empties(self) -> tuple[Table, ...]:
        """The tables of `forward_all` without rows."""
        return (self.empty(),)

    def load(self) -> Any:
        """Loads the network, unless it is loaded; worker processes forked afterwards share it."""
        return None

    def runs_on_cpu(self) -> bool:
        """Whether the network runs on the CPU."""
        return True

    def finish(self, table: Table, rows: np.ndarray) -> Table:
        """Completes the table of a shard.

        Args:
            table: Its rows, in the order of the images table.
            rows: Row in the images table of each row's image, ndarray of shape (N,), int64.
        """
        return table


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


def stream(
    model: Model,
    images: Images,
    roots: Mapping[str, Path],
    writer: ShardWriter,
    params: StreamParams,
    *,
    further_writers: Sequence[ShardWriter] = (),
    progress: bool = True,
) -> None:
    """Streams images through a model and writes its rows.

    Rows are in the order of the images table, those of one image in the order in which the model
    yields them. An image is left out and listed in the failures if it cannot be read or prepared,
    if its size differs from the table, or if the model yields unusable values for it. Finished
    shards of a killed run are kept, except those whose failed images can be read now.

    Args:
        model: Yields the rows.
        images: The images.
        roots: Folder of each dataset that the table names.
        writer: Writes the shards and the output; created with the key of `cache_key`.
        params: How to stream.
        further_writers: One writer for each further table of the model's `forward_all`.
        progress: Whether to show images per second and the time left, on stderr.

    Raises:
        DataError: more images failed than `max_failures` allows, or a file name leads out of its
            root.
        FartherError: a worker process was killed from outside; the folder of an image is absent; a
            machine of a cluster lacks images that this one has; or see
            `farther.images.ray.make_on_cluster`.
    """
    plan = Plan(images, roots, params)
    job = Job(model, plan, writer, tuple(further_writers))
    unfinished = [shard for shard in range(plan.shard_count) if not job.is_finished(shard)]
    unfinished_images = sum(len(plan.rows(shard)) for shard in unfinished)
    with tqdm(
        total=len(images),
        initial=len(images) - unfinished_images,
        desc=writer.work.name,
        unit="image",
        disable=None if progress else True,
    ) as bar:
        if params.engine == "ray":
            from farther.images.ray import make_on_cluster

            machine_by_shard = make_on_cluster(job, unfinished, bar.update)
            _refuse_images_of_one_machine(job, machine_by_shard)
        else:
            processes = params.processes(cores_left=0 if model.runs_on_cpu() else 1)
            for _ in job.make(unfinished, processes, bar.update):
                pass

    failures: list[Failure] = []
    for shard in range(plan.shard_count):
        failures += writer.failures(shard)
    _check_failures(failures, plan)
    # The first one, whose output says whether everything is current, is closed last.
    for shard_writer in reversed(job.writers):
        shard_writer.close(plan.shard_count)


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


def _refuse_images_of_one_machine(job: Job, machine_by_shard: Mapping[int, str]) -> None:
    """Refuses failures of images that this machine can read.

    Args:
        job: Made the shards.
        machine_by_shard: Name of the machine that made each.

    Raises:
        FartherError: names machine and image; the shard is made again by the next run.
    """
    for shard, machine in machine_by_shard.items():
        if job.is_finished(shard):
            continue
        failure = job.writer.failures(shard)[0]
        (file,) = job.plan.files([failure["image_id"]])
        raise FartherError(
            f"machine {machine} cannot read images that this one can, as {file}: "
            f"{failure['reason']}. All machines of the cluster must see the images under the same "
            "paths; then rerun (finished work is kept)"
        )


def _check_failures(failures: Sequence[Failure], plan: Plan) -> None:
    """Raises DataError if more images failed than the parameters allow."""
    limit = plan.params.max_failures
    if len(failures) <= limit * len(plan.images):
        return
    examples = failures[:5]
    files = plan.files([failure["image_id"] for failure in examples])
    lines = []
    for failure, file in zip(examples, files, strict=True):
        lines.append(f"  {failure['image_id']} ({file}): {failure['reason']}")
    raise DataError(
        f"{len(failures)} of {len(plan.images)} images cannot be used, more than max_failures = "
        f"{limit:g} allows. Fix them or raise it, and rerun: finished work is kept. The first:\n"
        + "\n".join(lines)
    )
