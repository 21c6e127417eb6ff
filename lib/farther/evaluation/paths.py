"""The paths of the files of one run (a detector on a benchmark).

Below the artifacts folder:

    splits/<benchmark>/roles.json
        the splits that are tested, shifted or pseudo-OOD
    splits/<benchmark>/<split>/images.parquet, objects.parquet
    regions/<run>/<split>/
        detections
    thresholds/<run>.json
        operating threshold t*
    truth/<run>.parquet
        true classes of the detections it was chosen from
    fitted/<run>/methods.json
        the methods; see `farther.scoring.fitted`
    fitted/<run>/<method>/method.json
        a method's parameters, or why it does not apply
    scores/<run>/<method>/<split>.parquet
        its scores
    outcomes/<run>/<method>/<split>.parquet, <split>.objects.parquet
        see `farther.tables.annotations`
    metrics/<run>/, plots/<kind>/<run>.csv, evaluation/<run>/
        see `farther.evaluation.evaluate`
    results/<run>.parquet, results/<run>.json
        all values (`farther.evaluation.long_table`); how they were evaluated, and curves
    evaluation/<run>/methods/<method>/threshold.json
        a method's threshold τ
    choices/<run>.json
        the setting to deploy; see `farther.evaluation.deploy.results`
    choices/<run>/<method>.json
        costs of its settings; see `farther.evaluation.deploy.kept_costs`
    dials/<run>.json
        what each threshold finds and costs; see `farther.evaluation.deploy.dial`
    proposals/<run>/<source>/<split>/
        class-agnostic boxes with an objectness
    recovered/<run>/results.json
        unknown objects that they recover; see `farther.evaluation.recovery`
    recovered/<run>/called/<source>/<split>.parquet
        those called unknown (`farther.tables.unknown_proposals.UnknownProposalTable`)
    with_proposals/<run>/<method>.json
        metrics of the method's detections and the proposals together
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from farther.tables.files import inside
from farther.tables.schema import read_typed
from farther.tables.stored import ATTRIBUTES


@dataclass(frozen=True)
class Roles:
    """The roles of the splits of a benchmark besides the ID splits.

    Args:
        test: The OOD splits that results are reported on, in the order of params.yaml.
        distance: "near", "far" or "farther" of each OOD split.
        similar: Groups of ID classes that are easily confused.
        shifted: Severity of each shifted split.
        shifted_val: Severity of each split of shifted validation images.
        pseudo_ood: The split of pseudo-OOD images, if any.
        pairs: `of`, `name` and `by` of the OOD splits whose images were made from those of another
            split.
    """

    test: Sequence[str] = ()
    shifted: Mapping[str, int] = field(default_factory=dict)
    pseudo_ood: str | None = None
    distance: Mapping[str, str] = field(default_factory=dict)
    similar: Sequence[Sequence[str]] = ()
    pairs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shifted_val: Mapping[str, int] = field(default_factory=dict)


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
        self.outcomes = inside(self.root / "outcomes", run)
        self.results = inside(self.root / "evaluation", run)
        self.long_table = inside(self.root / "results", f"{run}.parquet")
        self.description = inside(self.root / "results", f"{run}.json")
        self.choice = inside(self.root / "choices", f"{run}.json")
        self.dial = inside(self.root / "dials", f"{run}.json")
        self.id_costs = inside(self.root / "choices", run)
        self.recovered = inside(self.root / "recovered", f"{run}/results.json")
        self.roles_file = inside(self.root / "splits", f"{benchmark}/roles.json")

    @property
    def roles(self) -> Roles:
        """The roles of the benchmark's splits.

        Raises:
            DataError: `curate` did not write it.
        """
        return read_typed(Roles, self.roles_file)

    def images(self, split: str) -> Path:
        """The table of the split's images."""
        return inside(self.root / "splits", f"{self.benchmark}/{split}/images.parquet")

    def objects(self, split: str) -> Path:
        """The table of the split's annotated objects."""
        return inside(self.root / "splits", f"{self.benchmark}/{split}/objects.parquet")

    def attributes(self, split: str) -> Path:
        """The table of attributes of the split's images, where they have any."""
        return inside(self.root / "splits", f"{self.benchmark}/{split}/{ATTRIBUTES}")

    def regions(self, split: str) -> Path:
        """The folder of the detector's regions in the split."""
        return inside(self.root / "regions", f"{self.run}/{split}")

    def proposals(self, source: str, split: str) -> Path:
        """The folder of a source's proposals in the split."""
        return inside(self.root / "proposals", f"{self.run}/{source}/{split}")

    def called(self, source: str, split: str) -> Path:
        """The table of a source's proposals in the split that are called unknown."""
        return inside(self.all_called, f"{source}/{split}.parquet")

    @property
    def all_called(self) -> Path:
        """The folder of the proposals that are called unknown, of all sources."""
        return inside(self.root / "recovered", f"{self.run}/called")

    def plot(self, kind: str) -> Path:
        """The CSV file of a kind of plot; see `farther.evaluation.plots.SCHEMAS`."""
        return inside(self.root / "plots", f"{kind}/{self.run}.csv")

    @property
    def splits(self) -> Path:
        """The folder of the benchmark's splits."""
        return inside(self.root / "splits", self.benchmark)

    @property
    def all_regions(self) -> Path:
        """The folder of the detector's regions in all splits."""
        return inside(self.root / "regions", self.run)

    @property
    def all_proposals(self) -> Path:
        """The folder of the run's proposals, of all sources."""
        return inside(self.root / "proposals", self.run)

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
        """The table of bootstrap replicates of a method's metrics in a split.

        See `farther.evaluation.replicates`.
        """
        return inside(self.results, f"methods/{method}/{split}.replicates.parquet")

    def region_outcomes(self, method: str, split: str) -> Path:
        """The table of the outcomes of the split's detections under a method.

        See `farther.tables.RegionOutcomes`.
        """
        return inside(self.outcomes, f"{method}/{split}.parquet")

    def object_outcomes(self, method: str, split: str) -> Path:
        """The table of the outcomes of the split's objects under a method.

        See `farther.tables.ObjectOutcomes`.
        """
        return inside(self.outcomes, f"{method}/{split}.objects.parquet")
