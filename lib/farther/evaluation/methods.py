"""Evaluation of one method on all OOD splits of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import Field

from farther.cores import give_back_memory
from farther.errors import DataError
from farther.evaluation import across, error_budget, intervals, plots, sweeps
from farther.evaluation.files import RunFiles
from farther.evaluation.image_pairs import PairedSplit
from farther.evaluation.inputs import RunInputs, TestSplit
from farther.evaluation.threshold import read_threshold
from farther.metrics import known_classes, ood, open_set
from farther.metrics.bootstrap import ImageDraws
from farther.metrics.outcomes import Outcome, Split
from farther.metrics.user_defined import Case, UserDefinedMetric
from farther.tables.documents import read_json, read_sealed, write_sealed
from farther.tables.files import digest
from farther.tables.parquet import read_parquet, write_parquet
from farther.tables.schema import Schema, check

#: Most categories that a remark names.
LISTED = 10


class _Fitted(Schema):
    """What is read of a `method.json`."""

    name: str
    params: dict[str, Any] = Field(default_factory=dict)
    state: dict[str, Any] = Field(default_factory=dict)
    not_applicable: str | None = None


@dataclass(frozen=True)
class Method:
    """A method that applies to the run's detector.

    Args:
        name: Its name in section `methods` of params.yaml.
        tau: Its threshold τ.
        fitted: Its `method.json`.
    """

    name: str
    tau: float
    fitted: Mapping[str, Any]


def read_methods(files: RunFiles, names: list[str]) -> tuple[list[Method], dict[str, str]]:
    """Methods that apply, and the reasons of those that do not apply to this run's detector."""
    applicable, refused = [], {}
    for name in names:
        file = files.fitted(name) / "method.json"
        fitted = read_json(file)
        if reason := check(_Fitted, fitted, file).not_applicable:
            refused[name] = reason
        else:
            applicable.append(Method(name, read_threshold(files.fitted(name) / "threshold.json"), fitted))
    return applicable, refused


@dataclass(frozen=True)
class Evaluated:
    """All that is computed for one method.

    Args:
        results: As in `evaluation/<run>.json` under `methods`, without the comparisons with other methods: `splits`,
            and over all of the benchmark `means`, `misclassification` and `costs` (`farther.evaluation.across`).
        frames: Rows of each kind of plot.
        replicates: {split: {metric: ndarray of shape (B,)}}.
        outcomes: {split: outcomes of the regions and the objects}.
    """

    results: dict[str, Any]
    frames: dict[str, pl.DataFrame]
    replicates: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Writes everything but the outcomes."""
        folder.mkdir(parents=True, exist_ok=True)
        for kind, frame in self.frames.items():
            write_parquet(frame, folder / f"{kind}.parquet")
        for split, values in self.replicates.items():
            write_parquet(pl.DataFrame(values), folder / f"{split}.replicates.parquet")
        write_sealed(folder / "results.json", {**self.results, "files": _digests(folder)})

    @classmethod
    def read(cls, folder: Path, splits: Sequence[str]) -> Evaluated:
        """What `write` wrote.

        Raises:
            DataError: a file is damaged or was replaced.
        """
        advice, file = f"delete {folder}", folder / "results.json"
        results = read_sealed(file, advice)
        expected, found = results.pop("files", None), _digests(folder)
        if expected != found:
            names = {*found, *expected} if isinstance(expected, dict) else ()
            wrong = min((name for name in names if expected.get(name) != found.get(name)), default=file.name)
            raise DataError(
                f"damaged or replaced: not the file that was written beside the others; {advice}", file=folder / wrong
            )
        replicates = {split: read_parquet(folder / f"{split}.replicates.parquet") for split in splits}
        return cls(
            results=results,
            frames={kind: read_parquet(folder / f"{kind}.parquet") for kind in plots.OF_METHODS},
            replicates={split: {column.name: column.to_numpy() for column in of} for split, of in replicates.items()},
        )


def _digests(folder: Path) -> dict[str, str]:
    """Digest of each table of a kept part."""
    return {file.name: digest(file) for file in sorted(folder.glob("*.parquet"))}


def evaluate_method(method: Method, inputs: RunInputs, user_defined: Mapping[str, UserDefinedMetric]) -> Evaluated:
    """Evaluates one method on all OOD test splits."""
    for split in () if inputs.whole_images else inputs.test_splits:
        if "mixed" not in vars(split):  # made before all else, as that takes the most memory
            _ = split.mixed
            give_back_memory()
    stored = inputs.scores(method.name, inputs.id_split)
    id_scores = stored[inputs.id_above]
    share = float(np.mean(id_scores >= method.tau)) if len(id_scores) else None
    counts = {"tau": method.tau, "id_regions": len(id_scores), "id_regions_kept": share}
    remarks = [*method.fitted.get("remarks", []), *_leaks(method, inputs)]
    results: dict[str, Any] = {"fitted": {**method.fitted, "remarks": remarks}, **counts, "splits": {}}
    spectrum = inputs.spectrum_scores(method.name) if inputs.shifted else None
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in plots.OF_METHODS}
    replicates, outcomes = {}, {}
    map50 = sweeps.closed_set_over_tau(inputs.closed_set, id_scores, inputs.settings.kept)
    for split in inputs.test_splits:
        all_scores = inputs.scores(method.name, split.data)
        scores = all_scores[split.above]
        of_split = _OnSplit(method, split, (stored, all_scores), spectrum)
        replicates[split.name] = of_split.replicates()
        within = of_split.intervals(replicates[split.name])
        results["splits"][split.name] = of_split.metrics(user_defined) | within
        outcomes[split.name] = of_split.outcome
        del of_split  # and all that is cached in it
        swept = sweeps.over_tau(split.split, scores, id_scores, inputs.settings.kept)
        drawn = {
            "roc": plots.roc(id_scores, scores[split.is_ood]),
            "pr": plots.precision_recall(open_set.curve(outcomes[split.name], -scores)),
            "tau": [{**row, "map50": map50.get(row["kept"])} for row in swept],
            "confidence": sweeps.over_confidence(split.steps(), all_scores, stored, method.tau, inputs.settings.aupr),
        }
        for kind, of_kind in drawn.items():
            rows[kind] += [{"split": split.name, "method": method.name, **row} for row in of_kind]
    results["means"] = across.means(results["splits"], replicates, inputs.roles.distance)
    results["misclassification"] = across.errors(inputs, id_scores)
    results["costs"] = across.costs(inputs, id_scores, method.tau)
    return Evaluated(results, {kind: plots.frame(kind, found) for kind, found in rows.items()}, replicates, outcomes)


def _leaks(method: Method, inputs: RunInputs) -> list[str]:
    """A remark on negative prompts that name a category of an OOD test split: those that the method or labels use."""
    header = inputs.id_split.folder.header
    prompts = {header.classes[column] for column in header.unknown_columns}
    if method.fitted["name"] == "neg_label":
        fitted_on = method.fitted["state"]["fitted_on_"]
        prompts |= {fitted_on["classes"][column] for column in fitted_on["unknown_columns"]}
    categories = {str(name) for split in inputs.tested for name in set(split.objects.category)}
    folded = {name.replace("_", " ").casefold() for name in prompts}
    named = sorted(name for name in categories if name.replace("_", " ").casefold() in folded)
    if not named:
        return []
    listed = ", ".join(named[:LISTED]) + (" and more" if len(named) > LISTED else "")
    return [f"negative prompts name {len(named)} of the {len(categories)} categories of the test splits: {listed}"]


class _OnSplit:
    """A method on one OOD split: its scores, and the outcomes of the regions that it flags.

    Args:
        method, split: The two.
        stored: The method's scores of the stored regions of the ID split, and of this one.
        spectrum: Its scores of `RunInputs.spectrum`; None without shifted splits.
    """

    def __init__(
        self, method: Method, split: TestSplit, stored: tuple[np.ndarray, np.ndarray], spectrum: np.ndarray | None
    ):
        self.split, self.inputs, self.stored = split, split.inputs, stored
        id_scores, scores = stored[0][self.inputs.id_above], stored[1][split.above]
        self.method, self.id_scores, self.scores, self.spectrum = method, id_scores, scores, spectrum
        self.is_unknown = scores < method.tau
        self.outcome = split.split.match(self.is_unknown)
        ood_image = split.regions.image_id[split.is_ood]
        self.sides = ((self.inputs.id_regions.image_id, id_scores), (ood_image, scores[split.is_ood]))
        of_id, of_ood = (ood.per_image(image, of_side) for image, of_side in self.sides)
        self.by_image = (of_id, of_ood)

    def metrics(self, user_defined: Mapping[str, UserDefinedMetric]) -> dict[str, Any]:
        """All metrics of regions, images, objects, and parts of the objects."""
        settings, outcome = self.inputs.settings, self.outcome
        aupr = settings.aupr
        (_, id_scores), (_, scores) = self.sides
        (_, id_images), (_, images) = self.by_image
        found: dict[str, Any] = {
            "ood": {
                "id_regions": len(id_scores),
                "ood_regions": len(scores),
                **ood.evaluate(id_scores, scores, aupr=aupr),
            },
            **{name: self._sided(*sides) for name, sides in self._chosen_sides().items()},
            "ood_per_image": {
                "id_images": len(id_images),
                "ood_images": len(images),
                **ood.evaluate(id_images, images, aupr=aupr),
            },
            "open_set": open_set.metrics(outcome, -self.scores),
            "ap_u_by_confidence": open_set.metrics(outcome)["ap_u"],
            **{part: open_set.by_group(outcome, group) for part, group in self._groups().items()},
            "open_set_over_iou": None,
            "error_budget": error_budget.of_method(self.split, outcome, -self.scores),
        }
        if settings.ious:
            found["open_set_over_iou"] = open_set.metrics_over(
                outcome.split, settings.ious, self.is_unknown, -self.scores
            )
        if self.split.data.shows_known:
            found["known"] = known_classes.metrics(self._paper(), self.split.regions, unknown_score=-self.scores)
        if self.mixed is not None:
            found["open_world"] = self.split.mixed.metrics(self.mixed)
        if self.split.pairs is not None:
            found["pairs"] = self.split.pairs.metrics(*self._flagged_in_pairs(self.split.pairs))
        if self.spectrum is not None:
            measured = ood.evaluate(self.spectrum, scores, aupr=aupr)
            found["full_spectrum"] = {"id_regions": len(self.spectrum), "ood_regions": len(scores), **measured}
        if self.inputs.whole_images:
            found["recognition"] = across.recognition(self.inputs, self.split, self.id_scores, self.scores)
        case = Case(
            id_regions=self.inputs.id_regions,
            id_scores=self.id_scores,
            regions=self.split.regions,
            scores=self.scores,
            tau=self.method.tau,
            outcome=outcome,
        )
        return {**found, "user_defined": {name: metric.compute(case) for name, metric in user_defined.items()}}

    def replicates(self) -> dict[str, np.ndarray]:
        """Replicates of the metrics that methods are compared by; none without draws."""
        id_draws, draws = self.inputs.id_draws, self.split.draws
        if id_draws is None or draws is None:
            return {}
        return {
            **self._separation(id_draws, draws, self.sides),
            **open_set.metrics(self.outcome, -self.scores, draws.of(self.outcome.split.images)),
            **{f"per_image_{name}": v for name, v in self._separation(id_draws, draws, self.by_image).items()},
            **({f"known_{name}": v for name, v in self._known(draws).items()} if self.split.data.shows_known else {}),
            **{f"full_spectrum_{name}": v for name, v in self._full_spectrum(draws).items()},
            **{
                f"{section}_{name}": v
                for section, sides in self._chosen_sides().items()
                for name, v in self._separation(id_draws, draws, sides).items()
            },
            **{f"open_world_{name}": v for name, v in self._open_world().items()},
            **{f"pairs_{name}": v for name, v in self._of_pairs().items()},
            **(
                across.recognition(self.inputs, self.split, self.id_scores, self.scores, (id_draws, draws))
                if self.inputs.whole_images
                else {}
            ),
        }

    def intervals(self, replicates: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """95% intervals of all metrics, also of parts of the objects; {} without draws."""
        if self.split.draws is None:
            return {}
        settings, split = self.inputs.settings, self.outcome.split
        weights = self.split.draws.of(split.images)
        found: dict[str, Any] = {
            f"intervals_{part}": {
                name: intervals.within(values)
                for name, values in open_set.by_group(self.outcome, group, weights).items()
            }
            for part, group in self._groups().items()
        }
        if settings.ious:
            over = open_set.metrics_over(split, settings.ious, self.is_unknown, -self.scores, weights)
            found["intervals_over_iou"] = intervals.within(over)
        return {**found, "intervals": intervals.within(replicates)}

    def _separation(self, id_draws: ImageDraws, draws: ImageDraws, sides: _Sides) -> dict[str, np.ndarray]:
        (id_image, id_scores), (image, scores) = sides
        weights = id_draws.rows(id_image), draws.rows(image)
        return ood.evaluate(id_scores, scores, *weights, aupr=self.inputs.settings.aupr)

    def _chosen_sides(self) -> dict[str, _Sides]:
        """Images and scores of both sides, by the entries of the setting `separation`."""
        (id_image, id_scores), _ = self.sides
        correct, image = self.inputs.is_correct, self.split.regions.image_id
        of_id = {"correct_id": (id_image[correct], id_scores[correct])}
        of_ood = {name: (image[rows], self.scores[rows]) for name, rows in self.split.sides.items()}
        chosen = self.inputs.settings.separation
        return {name: (of_id.get(name, self.sides[0]), of_ood.get(name, self.sides[1])) for name in chosen}

    def _sided(self, of_id: _Side, of_ood: _Side) -> dict[str, Any]:
        (_, id_scores), (_, scores) = of_id, of_ood
        measured = ood.evaluate(id_scores, scores, aupr=self.inputs.settings.aupr)
        return {"id_regions": len(id_scores), "ood_regions": len(scores), **measured}

    @cached_property
    def mixed(self) -> Outcome | None:
        """The outcome in the ID images and the split's as one set, from all stored regions; None for a classifier."""
        if self.inputs.whole_images:
            return None
        return self.split.mixed.match(np.concatenate(self.stored) < self.method.tau)

    def _open_world(self) -> dict[str, np.ndarray]:
        weights = self.split.mixed_weights
        return {} if self.mixed is None or weights is None else self.split.mixed.counted(self.mixed, weights)

    def _full_spectrum(self, draws: ImageDraws) -> dict[str, np.ndarray]:
        spectrum_draws = self.inputs.spectrum_draws
        if self.spectrum is None or spectrum_draws is None:
            return {}
        return self._separation(spectrum_draws, draws, ((self.inputs.spectrum, self.spectrum), self.sides[1]))

    def _flagged_in_pairs(self, pairs: PairedSplit) -> tuple[np.ndarray, np.ndarray]:
        """Flagged regions at or above t* of the split, and flagged stored regions of its partners."""
        return self.is_unknown, self.inputs.scores(self.method.name, pairs.base) < self.method.tau

    def _of_pairs(self) -> dict[str, np.ndarray]:
        pairs, settings = self.split.pairs, self.inputs.settings
        if pairs is None:
            return {}
        return pairs.replicates(*self._flagged_in_pairs(pairs), settings.replicates, settings.seed + 1)

    def _known(self, draws: ImageDraws) -> dict[str, np.ndarray]:
        outcome = self._paper()
        found: dict[str, np.ndarray] = known_classes.metrics(
            outcome, self.split.regions, unknown_score=-self.scores, weights=draws.of(outcome.split.images)
        )
        return found

    def _paper(self) -> Outcome:
        """The outcome under protocol "paper", by which the known classes are always measured."""
        settings = self.outcome.split.settings
        if settings.protocol == "paper":
            return self.outcome
        split = Split.of(self.split.data.objects, self.split.regions, replace(settings, protocol="paper"))
        return split.match(self.is_unknown)

    def _groups(self) -> dict[str, np.ndarray]:
        """The group of each object, by part."""
        split, names = self.outcome.split, self.inputs.settings.supercategories
        groups = {"by_category": split.objects.category, "by_size": split.sizes()}
        return {**groups, "by_supercategory": split.supercategories(names)} if names else groups


#: Images and scores of one side, and of the ID side and the OOD side.
_Side = tuple[np.ndarray, np.ndarray]
_Sides = tuple[_Side, _Side]
