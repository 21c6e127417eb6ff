"""The files of one run (a detector on a benchmark): their paths, and the tables that metrics read.

Below the artifacts folder:

    splits/<benchmark>/roles.json            which splits are tested, shifted or pseudo-OOD
    splits/<benchmark>/<split>/images.parquet, objects.parquet
    regions/<run>/<split>/                   detections
    thresholds/<run>.json                    operating threshold t*
    truth/<run>.parquet                      true classes of the detections it was chosen from
    fitted/<run>/methods.json                the methods; see `farther.scoring.fitted`
    fitted/<run>/<method>/method.json        a method's parameters, or why it does not apply
    scores/<run>/<method>/<split>.parquet    its scores
    outcomes/<run>/<method>/<split>.parquet, <split>.objects.parquet    see `farther.tables.annotations`
    metrics/<run>/, plots/<run>/, evaluation/<run>.json, evaluation/<run>/    see `farther.evaluation.evaluate`
    evaluation/<run>/methods/<method>/threshold.json     a method's threshold τ
    choices/<run>.json                       what to deploy; see `farther.evaluation.deploy.results`
    proposals/<run>/<source>/<split>/        class-agnostic boxes with an objectness
    recovered/<run>/results.json             what they find; see `farther.evaluation.proposals`
    with_proposals/<run>/<method>.json       metrics of the method's detections and them together
    recovered/<run>/called/<source>/<split>.parquet    those called unknown (`farther.tables.called.CalledProposals`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from farther.errors import DataError
from farther.evaluation.results import SplitCounts
from farther.metrics.matching.boxes import image_numbers, is_among
from farther.metrics.wilderness import background_probability
from farther.tables import Images, Objects, Regions, RegionsFolder, Scores
from farther.tables.files import digest, inside
from farther.tables.schema import read_typed


@dataclass(frozen=True)
class Roles:
    """What the splits of a benchmark besides the ID splits are for.

    Args:
        test: The OOD splits that results are reported on, in the order of params.yaml.
        distance: "near", "far" or "farther" of each of them.
        similar: Groups of ID classes that are easily confused.
        shifted: Severity of each shifted split.
        pseudo_ood: The split of pseudo-OOD images, if any.
        pairs: `of`, `name` and `by` of the OOD splits whose images were made from those of another split.
    """

    test: Sequence[str] = ()
    shifted: Mapping[str, int] = field(default_factory=dict)
    pseudo_ood: str | None = None
    distance: Mapping[str, str] = field(default_factory=dict)
    similar: Sequence[Sequence[str]] = ()
    pairs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class RunFiles:
    """Paths of the files of a run.

    Args:
        run: Its name in section `detectors` of params.yaml.
        benchmark: The name of its benchmark.
        root: The artifacts folder.

    Raises:
        DataError: a name leads out of its folder.
    """

    def __init__(self, run: str, benchmark: str, root: str | Path = "artifacts"):
        self.run = run
        self.benchmark = benchmark
        self.root = Path(root)
        self.threshold = inside(self.root / "thresholds", f"{run}.json")
        self.truth = inside(self.root / "truth", f"{run}.parquet")
        self.metrics = inside(self.root / "metrics", run)
        self.plots = inside(self.root / "plots", run)
        self.outcomes = inside(self.root / "outcomes", run)
        self.results = inside(self.root / "evaluation", run)
        self.evaluation = inside(self.root / "evaluation", f"{run}.json")
        self.choice = inside(self.root / "choices", f"{run}.json")
        self.recovered = inside(self.root / "recovered", f"{run}/results.json")

    @property
    def roles(self) -> Roles:
        """What the benchmark's splits are for.

        Raises:
            DataError: `curate` did not write it.
        """
        return read_typed(Roles, inside(self.root / "splits", f"{self.benchmark}/roles.json"))

    def images(self, split: str) -> Path:
        """The table of the split's images."""
        return inside(self.root / "splits", f"{self.benchmark}/{split}/images.parquet")

    def objects(self, split: str) -> Path:
        """The table of the split's annotated objects."""
        return inside(self.root / "splits", f"{self.benchmark}/{split}/objects.parquet")

    def regions(self, split: str) -> Path:
        """The folder of the detector's regions in the split."""
        return inside(self.root / "regions", f"{self.run}/{split}")

    def proposals(self, source: str, split: str) -> Path:
        """The folder of a source's proposals in the split."""
        return inside(self.root / "proposals", f"{self.run}/{source}/{split}")

    def called(self, source: str, split: str) -> Path:
        """The table of a source's proposals in the split that are called unknown."""
        return inside(self.root / "recovered", f"{self.run}/called/{source}/{split}.parquet")

    @property
    def splits(self) -> Path:
        """The folder of the benchmark's splits."""
        return inside(self.root / "splits", self.benchmark)

    @property
    def all_regions(self) -> Path:
        """The folder of the detector's regions in all splits."""
        return inside(self.root / "regions", self.run)

    @property
    def all_passes(self) -> Path:
        """The folder of the run's passes."""
        return inside(self.root / "passes", self.run)

    @property
    def all_fitted(self) -> Path:
        """The folder of all fitted methods; see `farther.scoring.fitted`."""
        return inside(self.root / "fitted", self.run)

    def all_scores(self, method: str) -> Path:
        """The folder of a method's scores of all splits."""
        return inside(self.root / "scores", f"{self.run}/{method}")

    def tau(self, method: str) -> Path:
        """The file of a method's threshold τ."""
        return inside(self.results, f"methods/{method}/threshold.json")

    def with_proposals(self, method: str) -> Path:
        """The results of a method's detections and the proposals called unknown, together."""
        return inside(self.all_with_proposals, f"{method}.json")

    @property
    def all_with_proposals(self) -> Path:
        """The folder of the results of each method with the proposals called unknown."""
        return inside(self.root / "with_proposals", self.run)

    def fitted(self, method: str) -> Path:
        """The folder of a method's fitted state."""
        return inside(self.root / "fitted", f"{self.run}/{method}")

    def scores(self, method: str, split: str) -> Path:
        """The table of a method's scores of the split's regions."""
        return inside(self.root / "scores", f"{self.run}/{method}/{split}.parquet")

    def replicates(self, method: str, split: str) -> Path:
        """The table of the bootstrap replicates of a method's metrics in a split: one column per metric."""
        return inside(self.results, f"methods/{method}/{split}.replicates.parquet")

    def region_outcomes(self, method: str, split: str) -> Path:
        """The table of the outcomes of the split's detections under a method (`farther.tables.RegionOutcomes`)."""
        return inside(self.outcomes, f"{method}/{split}.parquet")

    def object_outcomes(self, method: str, split: str) -> Path:
        """The table of the outcomes of the split's objects under a method (`farther.tables.ObjectOutcomes`)."""
        return inside(self.outcomes, f"{method}/{split}.objects.parquet")


class RunSplit:
    """One split of a run: its images and objects, and the detector's regions in them.

    Args:
        files: Paths of the run's files.
        split: The name of the split.
        logits: Whether regions keep their logits, which few metrics read and which take the most memory.

    Objects of images that the detector could not read are left out of `objects`, and counted in `summary`.

    Raises:
        DataError: a table or the regions folder is absent or wrong, or shows an image that the split does not have.
    """

    def __init__(self, files: RunFiles, split: str, *, logits: bool = False):
        self.name = split
        self.folder = RegionsFolder(files.regions(split))
        self._left_out = [] if logits or self.folder.header.whole_images else ["logits"]
        self.source = files.objects(split)
        self._files = {"images": files.images(split), "objects": self.source}
        images = Images.read(self._files["images"])
        objects = Objects.read(self.source)
        failed = {failure["image_id"] for failure in self.folder.failures}
        self.images = frozenset(images.image_id) - failed
        self.failed = len(images) - len(self.images)
        readable = np.fromiter((name not in failed for name in objects.image_id), bool, len(objects))
        self.objects = objects[readable]
        self._refuse_other_images(self.objects.image_id, self.source)

    def regions(self, threshold: float = 0.0) -> Regions:
        """The regions whose confidence is at least `threshold`, without the columns that only methods read.

        Raises:
            DataError: a shard is wrong, or shows an image that the split does not have.
        """
        return self._stored if threshold <= 0 else self._stored.above(threshold)

    @property
    def files(self) -> dict[str, str]:
        """The file of each readable image."""
        images = Images.read(self._files["images"])
        return {name: file for name, file in zip(images.image_id, images.file, strict=True) if name in self.images}

    @cached_property
    def _stored(self) -> Regions:
        parts = [batch.with_frame(batch.frame.drop(self._left_out, strict=False)) for batch in self.folder.batches(())]
        regions = Regions.concatenate(parts) if parts else Regions.empty(self.folder.header)
        self._refuse_other_images(regions.image_id, self.folder.path)
        return regions

    def read_margins(self) -> np.ndarray | None:
        """`background_probability.margins` of each stored region; None where they do not apply."""
        if not background_probability.applies(self.folder):
            return None
        each = (background_probability.margins(batch) for batch in self.folder.batches(()))
        return np.concatenate([np.zeros(0), *each])

    @property
    def known_classes(self) -> tuple[str, ...]:
        """The classes that the detector was trained on."""
        return self.folder.header.known_classes

    @property
    def shows_known(self) -> bool:
        """Whether objects of known classes are annotated."""
        return bool(is_among(self.objects.category, self.known_classes).any())

    @property
    def has_boxes(self) -> bool:
        """Whether any image was annotated, or is empty; False where all were given as `images` without boxes."""
        return not (len(self.objects) and self.objects.is_unlabelled.all())

    def summary(self, regions: Regions) -> SplitCounts:
        """Counts of the split, and the share of its images without any of `regions`."""
        seen = len(set(regions.image_id))
        return SplitCounts(
            images=len(self.images),
            failed_images=self.failed,
            objects=int(np.sum(~self.objects.is_unlabelled)),
            regions=len(regions),
            no_detection=1 - seen / len(self.images) if self.images else None,
            inputs=self.digests(),
        )

    def digests(self) -> dict[str, str]:
        """Digests of what was read: of files, of names of readable images, and of the columns of regions that count."""
        columns = [getattr(self._stored, name).tobytes() for name in ("region_id", "box", "score", "label")]
        used = digest("\0".join(self._stored.image_id), *columns)
        readable = digest("\0".join(sorted(self.images)))
        return {name: digest(path) for name, path in self._files.items()} | {"readable": readable, "regions": used}

    def _refuse_other_images(self, image_id: np.ndarray, source: Path) -> None:
        if not self.images.issuperset(image_id):
            row, other = next((row, name) for row, name in enumerate(image_id) if name not in self.images)
            problem = f"{other!r} is not a readable image of split '{self.name}'; run `farther repro`"
            raise DataError(problem, file=source, row=row, field="image_id")


def aligned_scores(regions: Regions, path: Path, stored: int) -> np.ndarray:
    """A method's scores in the order of `regions`, ndarray of shape (N,).

    Args:
        path: A table of scores of all stored regions of the split.
        stored: Number of regions of the split.

    Raises:
        DataError: the table has another number of rows, scores a region twice, or lacks one.
    """
    advice = f"run `dvc repro score@{path.parent.parent.name}`"
    if not path.is_file():
        problem = f"no scores of split {path.stem!r}: {advice}, unless the method's pass leaves it out (`skip`)"
        raise DataError(problem, file=path)
    scores = Scores.read(path)
    if len(scores) != stored:
        problem = f"{len(scores)} scores, but {stored} regions: {advice}"
        raise DataError(problem, file=path)
    keys = ["image_id", "region_id"]
    if scores.frame.select(keys).equals(regions.frame.select(keys)):  # as they are written
        return scores.score
    _, (score_image, region_image) = image_numbers(scores.image_id, regions.image_id)
    # Numbers of regions may be as large as int64 is; their places among each other are not.
    numbers, place = np.unique(np.concatenate([scores.region_id, regions.region_id]), return_inverse=True)
    key = score_image.astype(np.int64) * len(numbers) + place[: len(scores)]
    wanted = region_image.astype(np.int64) * len(numbers) + place[len(scores) :]
    order = np.argsort(key, kind="stable")
    key = key[order]
    twice = np.flatnonzero(key[1:] == key[:-1])
    if len(twice):
        row = int(order[twice[0] + 1])
        problem = f"region {scores.region_id[row]} of {scores.image_id[row]!r} is scored twice"
        raise DataError(problem, file=path, row=row, field="region_id")
    place = np.minimum(np.searchsorted(key, wanted), max(len(key) - 1, 0))
    missing = np.flatnonzero(key[place] != wanted) if len(key) else np.arange(len(wanted))
    if len(missing):
        row = int(missing[0])
        problem = f"region {regions.region_id[row]} of {regions.image_id[row]!r} has no score: {advice}"
        raise DataError(problem, file=path, field="region_id")
    return scores.score[order[place]]
