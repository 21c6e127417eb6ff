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

from collections.abc import Mapping, Sequence
from pathlib import Path

from tqdm import tqdm

from farther.errors import DataError, FartherError
from farther.images.job import Failure, Job
from farther.images.model import Model
from farther.images.plan import Plan, StreamParams
from farther.images.ray import make_on_cluster
from farther.tables import Images
from farther.tables.shards import ShardWriter


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
