"""The engine that streams images through a model and writes one table, shard by shard.

Worker processes decode and prepare images; the model runs in this process if it has a GPU, else in
the workers, on one core each. With `engine: ray` each GPU (or core) of a Ray cluster makes whole
shards. Memory holds two shards and a few batches, however many images there are. A killed run
resumes after its last finished shard and ends in the same bytes.

A `Model` yields a table per batch of images: a detector its regions, CLIP its embeddings, repeated
passes their moments. A `ShardWriter` of that table makes the folder. A model that stores each
image's mean colour:

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

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from tqdm import tqdm

from farther.code import digest_of
from farther.errors import DataError, FartherError
from farther.images.device import float32_products, inference_mode, one_thread
from farther.images.plan import Batch, Plan, StreamParams
from farther.images.prepare import Preparation, Unusable, spread
from farther.keyed import key_of
from farther.tables import Images, Table
from farther.tables.shards import ShardWriter

Failure = dict[str, str]


class Model(ABC):
    """A network that yields a table per batch of images. It must be picklable; the network itself stays behind."""

    #: Where the network runs, as PyTorch names it, or "auto".
    device: str = "cpu"
    #: Dotted names of modules, besides the model's own, whose code shapes the rows.
    modules: ClassVar[tuple[str, ...]] = ()
    #: Whether `forward` computes gradients: then it runs outside of PyTorch's inference mode.
    needs_gradients: bool = False

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """All that the rows depend on besides images, stream parameters and code, as JSON."""

    @abstractmethod
    def prepare(self, image: np.ndarray, image_id: str) -> Any:
        """Input of `forward` for one image; cheap, and needs no network.

        Args:
            image: ndarray of shape (H, W, 3), uint8, red green blue.
            image_id: Its name in the images table.
        """

    @abstractmethod
    def forward(self, prepared: list, image_ids: list[str]) -> Table:
        """The rows of a batch of prepared images; their column `image_id` says whose they are.

        Raises:
            DataError: the network gives values that cannot be used.
        """

    @abstractmethod
    def empty(self) -> Table:
        """A table without rows, for a shard without a usable image."""

    def forward_all(self, prepared: list, image_ids: list[str]) -> tuple[Table, ...]:
        """The rows of `forward`, and those of further tables that come of the same pass; see `stream`."""
        return (self.forward(prepared, image_ids),)

    def empties(self) -> tuple[Table, ...]:
        """Each table of `forward_all` without rows."""
        return (self.empty(),)

    def load(self) -> Any:
        """Loads the network once, so that worker processes that are forked afterwards share it."""
        return None

    def runs_on_cpu(self) -> bool:
        """Whether the network runs on the CPU."""
        return True

    def finish(self, table: Table, rows: np.ndarray) -> Table:
        """Completes the table of a shard.

        Args:
            table: Its rows, in the order of the images table.
            rows: Row of the images table of each row, ndarray of shape (N,), int64.
        """
        return table


def cache_key(model: Model, images: Images, params: StreamParams) -> str:
    """Digest of all that the output is made from: model, parameters, code, and content of the images."""
    made_from = {
        "model": model.identity(),
        "params": params.shaping(),
        "code": digest_of(__name__, type(model).__module__, *model.modules),
        "images": columns_as_json(images),
    }
    return key_of([], made_from)


def columns_as_json(table: Table) -> dict[str, list[Any]]:
    """The columns of a table as a part of a key: an image's digest and file are among them."""
    return {name: values.tolist() for name, values in table.columns().items()}


def stream(
    model: Model,
    images: Images,
    roots: Mapping[str, Path],
    writer: ShardWriter,
    params: StreamParams,
    *,
    beside: Sequence[ShardWriter] = (),
    progress: bool = True,
) -> None:
    """Streams images through a model and writes its rows.

    Rows are in the order of the images table, those of one image in the order in which the model
    yields them. An image that cannot be read or prepared, that has another size than the table
    says, or for which the model yields values that cannot be used, is left out and listed in the
    failures. Finished shards of a killed run are kept, but for those whose failed images can be
    read now.

    Args:
        model: Yields the rows.
        images: The images.
        roots: Folder of each dataset that the table names.
        writer: Takes the shards and makes the output; made with the key of `cache_key`.
        params: How to stream.
        beside: A writer for each further table of the model's `forward_all`.
        progress: Whether to show images per second and the time left, on stderr.

    Raises:
        DataError: more images failed than `max_failures` allows, or a file name leads out of its
            root.
        FartherError: a worker process was killed from outside, or see
            `farther.images.ray.make_on_cluster`.
    """
    job = Job(model, Plan(images, roots, params), writer, tuple(beside))
    shards = range(job.plan.shards)
    todo = [shard for shard in shards if not job.is_kept(shard)]
    done = len(images) - sum(len(job.plan.rows(shard)) for shard in todo)
    with tqdm(
        total=len(images),
        initial=done,
        desc=writer.work.name,
        unit="image",
        disable=None if progress else True,
    ) as bar:
        if params.engine == "ray":
            from farther.images.ray import make_on_cluster

            make_on_cluster(job, todo, bar.update)
        else:
            processes = params.processes(cores_left=0 if model.runs_on_cpu() else 1)
            for _ in job.make(todo, processes, bar.update):
                pass
    _check_failures([f for shard in shards for f in writer.failures(shard)], job.plan)
    for one in reversed(job.writers):  # the first, which says what is current, comes last
        one.close(len(shards))


class BatchAnswer(NamedTuple):
    """Tables of a batch, in several pieces or none, and the images that have no rows because something is wrong."""

    tables: list[tuple[Table, ...]]
    failures: list[Failure]


@dataclass(frozen=True)
class Work:
    """Decodes, prepares and runs the model: a batch of files → its answer."""

    model: Model
    preparation: Preparation

    def __call__(self, batch: Batch) -> BatchAnswer:
        """Answer to a batch of files."""
        return self.run(batch, self.preparation(batch))

    def run(self, batch: Batch, items: Sequence[Any]) -> BatchAnswer:
        """Answer to a batch whose images are prepared."""
        usable: list[tuple[str, Any]] = []
        failures: list[Failure] = []
        for image_id, item in zip(batch.image_ids, items, strict=True):
            if isinstance(item, Unusable):
                failures.append({"image_id": image_id, "reason": item.reason})
            else:
                usable.append((image_id, item))
        self.model.load()  # outside of inference mode: another model may compute gradients with the same weights
        with float32_products() if self.model.needs_gradients else inference_mode():
            tables, wrong = self._forward(usable)
        return BatchAnswer(tables, failures + wrong)

    def _forward(self, usable: Sequence[tuple[str, Any]]) -> BatchAnswer:
        """The model's rows. If it yields values that cannot be used, its images are tried one by one."""
        if not usable:
            return BatchAnswer([], [])
        image_ids, prepared = [image_id for image_id, _ in usable], [item for _, item in usable]
        try:
            return BatchAnswer([self.model.forward_all(prepared, image_ids)], [])
        except DataError as error:
            if len(usable) == 1:
                reason = f"the model's output cannot be used: {error}"
                return BatchAnswer([], [{"image_id": usable[0][0], "reason": reason}])
        alone = [self._forward([one]) for one in usable]
        return BatchAnswer(
            [t for one in alone for t in one.tables], [f for one in alone for f in one.failures]
        )


@dataclass(frozen=True)
class Job:
    """All that making shards takes; it can be pickled for another machine.

    Its writer has the cache key of the machine that started the run.
    """

    model: Model
    plan: Plan
    writer: ShardWriter
    beside: tuple[ShardWriter, ...] = ()

    @property
    def writers(self) -> tuple[ShardWriter, ...]:
        """The writer of each table."""
        return (self.writer, *self.beside)

    def make(
        self, shards: Iterable[int], processes: int, count: Callable[[int], Any]
    ) -> Iterator[int]:
        """Makes shards and yields the number of each that was written.

        A model on a GPU runs in this process, and the workers decode and prepare for it. A model on
        the CPU runs in each of the workers, on one core: so none waits for another, and the number
        of cores does not change how sums round. With 0 `processes` all is done in this one. `count`
        takes the number of images of each batch.
        """
        batches = (batch for shard in shards for batch in self.plan.batches(shard))
        # A shard is written while the next one is computed.
        with ThreadPoolExecutor(1) as aside, closing(self._answers(batches, processes)) as answers:
            writing: tuple[int, Future[None]] | None = None
            # Batches are counted: a group of `itertools.groupby` ends when the next one starts, and
            # a finished shard would wait for the first batch of the next.
            for first in answers:
                shard = first[0].shard
                rest = itertools.islice(answers, self.plan.batch_count(shard) - 1)
                of_shard = self._collected(itertools.chain([first], rest), count)
                if writing is not None:
                    writing[1].result()
                    yield writing[0]
                writing = shard, aside.submit(self._write, shard, of_shard)
            if writing is not None:
                writing[1].result()
                yield writing[0]

    def is_kept(self, shard: int) -> bool:
        """Whether a shard is finished, and the images that failed in it would fail again."""
        if not all(writer.finished(shard) for writer in self.writers):
            return False
        failed = {failure["image_id"] for failure in self.writer.failures(shard)}
        again = self.plan.batch(
            shard, [row for name, row in self.plan.row_of(shard).items() if name in failed]
        )
        return all(isinstance(item, Unusable) for item in self._preparation()(again))

    def check(self) -> None:
        """Refuses to make rows that differ from those of the machine that started the run."""
        if cache_key(self.model, self.plan.images, self.plan.params) != self.writer.key:
            raise FartherError(
                "would make other rows than the machine that started the run: it has another checkpoint, or another "
                "version of farther. Give all machines the same environment and files"
            )

    def _preparation(self) -> Preparation:
        return Preparation(self.model, self.plan.params.max_pixels)

    def _answers(
        self, batches: Iterable[Batch], processes: int
    ) -> Generator[tuple[Batch, BatchAnswer], None, None]:
        work = Work(self.model, self._preparation())
        if self.model.runs_on_cpu():
            self.model.load()
            with one_thread():
                yield from spread(work, batches, processes)
        else:
            with closing(spread(work.preparation, batches, processes)) as prepared:
                for batch, items in prepared:
                    yield batch, work.run(batch, items)

    @staticmethod
    def _collected(
        answers: Iterable[tuple[Batch, BatchAnswer]], count: Callable[[int], Any]
    ) -> BatchAnswer:
        together = BatchAnswer([], [])
        for batch, answer in answers:
            together.tables.extend(answer.tables)
            together.failures.extend(answer.failures)
            count(len(batch))
        return together

    def _write(self, shard: int, answer: BatchAnswer) -> None:
        row_of = self.plan.row_of(shard)
        failures = sorted(answer.failures, key=lambda failure: row_of[failure["image_id"]])
        tables = answer.tables or [self.model.empties()]
        for writer, parts in zip(self.writers, zip(*tables, strict=True), strict=True):
            writer.write_shard(shard, _in_order(parts, row_of, self.model), len(row_of), failures)


def _in_order(tables: Sequence[Table], row_of: Mapping[str, int], model: Model) -> Table:
    """The rows of several batches in the order of the images table, completed by the model."""
    with_rows = [table for table in tables if len(table)]
    if not with_rows:
        return tables[0]  # a table without rows still says which columns there are
    for table in with_rows:
        if table.frame.columns != with_rows[0].frame.columns:
            raise DataError(
                f"batches differ in their columns: {[t.frame.columns for t in (table, with_rows[0])]}"
            )
    together = with_rows[0].concatenate(with_rows)
    image_ids = together.frame["image_id"].to_list()
    strange = set(image_ids) - set(row_of)
    if strange:
        raise DataError(
            f"the model yielded rows of {min(strange)!r}, which it was not given", field="image_id"
        )
    rows = np.array([row_of[image_id] for image_id in image_ids], np.int64)
    order = np.argsort(rows, kind="stable")
    return model.finish(together[order], rows[order])


def _check_failures(failures: Sequence[Failure], plan: Plan) -> None:
    limit = plan.params.max_failures
    if len(failures) > limit * len(plan.images):
        files = plan.files([failure["image_id"] for failure in failures[:5]])
        listed = zip(failures, files, strict=False)
        first = "\n".join(f"  {one['image_id']} ({file}): {one['reason']}" for one, file in listed)
        raise DataError(
            f"{len(failures)} of {len(plan.images)} images cannot be used, more than max_failures = {limit:g} "
            f"allows. Fix them or raise it, and rerun: finished work is kept. The first:\n{first}"
        )
