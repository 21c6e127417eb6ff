"""The regions that methods are fitted on, and settings.

Of a run, at or above its operating threshold t*.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from farther.errors import ParameterError, choose
from farther.incremental.keyed import content_digest
from farther.methods.base import FitError, Method, RegionsLike, count_rows
from farther.methods.imported import ImportedScores
from farther.methods.tau import Rule
from farther.metrics.matching import true_classes
from farther.naming.registry import STRICT, Parameters
from farther.processes import count_cores
from farther.tables import Header, Images, Objects, Regions, RegionsFolder
from farther.tables.files import inside
from farther.tables.folders import listed
from farther.tables.joined import JoinedFolder

if TYPE_CHECKING:
    from farther.scoring.entries import MethodEntry

#: Bytes of regions that are kept in memory while methods are fitted to them one after another.
HELD = 3 << 29


@dataclass(config=STRICT, kw_only=True)
class FitSettings(Parameters):
    """What methods are fitted on: section `fit` of params.yaml, without what is about τ.

    Args:
        split: ID split that methods learn from.
        calibration_split: ID split that τ is taken from, which some methods learn from, too.
        labels: The class of a detection that methods of classes learn from: the predicted one, or
            that of the annotated object that it overlaps most, from an IoU of 0.5 on; detections
            without one are left out.
        max_regions: Largest number of detections to learn from, drawn at random; null takes all.
        seed: Seed of that draw.
    """

    split: str = "train"
    calibration_split: str = "val"
    labels: Literal["predicted", "annotated"] = "predicted"
    max_regions: PositiveInt | None = None
    seed: NonNegativeInt = 0


@dataclass(config=STRICT, kw_only=True)
class TauSettings(Parameters):
    """The threshold τ of each method: section `fit` without what methods are fitted on.

    Args:
        calibration_split: ID split whose scores τ is taken from.
        keep: Share of the scores of `calibration_split` that are at or above τ. A lower one flags
            more detections as unknown, those of known objects included.
        threshold_rule: "percentile": the largest τ that keeps at least this share, as in FMIYC's
            text; "gaussian": mean − 1.645 · standard deviation (for 0.95), as in its code, which
            keeps this share of Gaussian scores only.
    """

    calibration_split: str = "val"
    keep: Annotated[float, Field(gt=0, le=1)] = 0.95
    threshold_rule: Rule = "percentile"


@dataclass(config=STRICT, kw_only=True)
class FitSection(TauSettings, FitSettings):
    """What methods are fitted on, and their threshold τ: section `fit` of params.yaml.

    Detections whose score is below τ are flagged as unknown.

    Args:
        calibration_split: ID split whose scores τ is taken from. Some methods learn from it, too.
    """

    def fit_settings(self) -> FitSettings:
        """What methods are fitted on."""
        return FitSettings(**_fields_of(FitSettings, self))

    def tau_settings(self) -> TauSettings:
        """How τ is taken."""
        return TauSettings(**_fields_of(TauSettings, self))


def _fields_of(cls: type, values: FitSection) -> dict[str, Any]:
    """The values of the fields that a dataclass has."""
    return {field.name: getattr(values, field.name) for field in dataclasses.fields(cls)}


@dataclasses.dataclass(frozen=True)
class RunRegions:
    """The regions of a run, as methods are fitted on them.

    Args:
        folder: Folder that holds one regions folder per split.
        operating: t*; rows with a lower detector score are left out.
        settings: Splits, fraction, rule, size of the sample.
        truth: Table of the calibration split's detections with their true classes, for methods that
            learn from it.
        test_splits: Splits that results are reported on: parameters must not be searched on them.
        passes: Folder of the passes, which holds one folder per pass, which holds one regions
            folder per split.
        fit_folder: Folder of the splits that methods learn from; None for `folder`.
        splits: Folder of the benchmark's splits with their annotated objects, for `labels:
            annotated`.
        known_digests: Content digest of each folder of regions that was read already.
        name: Name of the run.
        beside: Names of the passes whose columns the regions have beside their own.
    """

    folder: Path
    operating: float = 0.0
    settings: FitSettings = dataclasses.field(default_factory=FitSettings)
    truth: Path | None = None
    test_splits: tuple[str, ...] = ()
    passes: Path | None = None
    fit_folder: Path | None = None
    splits: Path | None = None
    known_digests: dict[Path, str] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )
    name: str = ""
    beside: tuple[str, ...] = ()

    def on(self, entry: MethodEntry) -> RunRegions:
        """The regions of an entry of params.yaml: the run's own, or those of one of its passes.

        With columns of passes beside the run's own, where the method reads them.

        Raises:
            FitError: the entry is for other runs; the run has no such pass, or it is of crops that
                t* or `fit_on` do not fit.
            ParameterError: `fit_on` names a split that the run does not have, or one that results
                are reported on.
        """
        if entry.runs is not None and self.name not in entry.runs:
            raise FitError(f"`runs` lists it for {', '.join(entry.runs)} only")
        if entry.fit_split is not None:
            splits = {file.parent.name for file in listed(self.folder, "*/regions.json")}
            known = splits.difference(self.test_splits)
            choose(f"split in methods.{entry.name}.fit_on", entry.fit_split, known)
            settings = dataclasses.replace(self.settings, split=entry.fit_split)
            of_split = dataclasses.replace(self, settings=settings)
            return of_split.on(dataclasses.replace(entry, fit_on="pass"))
        if entry.passes_beside:
            return self._with_passes(entry)
        if entry.pass_name is None:
            return self
        of_pass = self._of_pass(entry.pass_name)
        of_pass.check_crops(entry)
        if entry.fit_on == "detections":
            return dataclasses.replace(of_pass, fit_folder=self.folder)
        return of_pass

    def _with_passes(self, entry: MethodEntry) -> RunRegions:
        """The run's own regions with the columns of the passes that an entry reads."""
        for name in entry.passes_beside:
            self._of_pass(name).check_crops(entry)
        return dataclasses.replace(self, beside=entry.passes_beside)

    def check_crops(self, entry: MethodEntry) -> None:
        """Refuses what cannot be learned from crops.

        Crops with `min_score` above t*, and methods that would learn from the detector's features.

        Raises:
            FitError: see above; says what to write.
        """
        header = self.above(self.settings.calibration_split).header
        pass_params = header.detector.get("pass", {})
        if pass_params.get("kind") != "crops":
            return
        if entry.fit_on == "detections":
            raise FitError(
                f"the pass {entry.pass_name!r} has features of crops: leave `fit_on` out"
            )
        min_score = pass_params["min_score"]
        if min_score > self.operating:
            problem = f"crops only of detections from {min_score:g} on"
            raise FitError(
                f"the pass {entry.pass_name!r} has {problem}, and t* is {self.operating:.4g}: "
                "lower its `min_score`"
            )

    def fit(self, method: Method) -> None:
        """Fits a method in place.

        To the training regions, and to those of the pass or the OOD split that it wants.

        Raises:
            FitError: the method cannot be fitted, or the run has no such pass.
            ParameterError: see `refuse_test_split`.
        """
        if method.wants_split is not None:
            self.refuse_test_split(method.wants_split)
            self.unknown(method.wants_split)
        pass_regions = None
        if method.wants_pass is not None:
            pass_regions = self._of_pass(method.wants_pass).training
        method.fit(self.training_of(method))
        if pass_regions is not None:
            method.learn_pass(self.training, pass_regions)
        if method.wants_validation:
            method.learn_validation(self.calibration)
        if method.wants_split is not None:
            method.learn_split(self.calibration, self.unknown(method.wants_split))
        if isinstance(method, ImportedScores):
            # It imports readers of images, which most methods and no evaluation needs.
            from farther.scoring.imported_scores import learn_imported

            learn_imported(
                method, self.images_by_split, self.settings.calibration_split, self.test_splits
            )

    @property
    def images_by_split(self) -> dict[str, Images]:
        """The images of all splits of the benchmark.

        Raises:
            FitError: the run was given no splits.
        """
        if self.splits is None:
            raise FitError("the images of the splits are needed, and were not given")
        files = listed(self.splits, "*/images.parquet")
        return {file.parent.name: Images.read(file) for file in files}

    def refuse_test_split(self, ood_split: str) -> None:
        """Refuses an OOD split that parameters must not be chosen on.

        Raises:
            ParameterError: results are reported on it, or it is one of the ID splits.
        """
        if ood_split in {"test", *self.test_splits}:
            raise ParameterError(
                f"ood_split: results are reported on {ood_split!r}, so parameters must not be "
                "chosen on it. Make an OOD validation split, or search on it and call it what it "
                "is: `oracle`"
            )
        if ood_split in (self.settings.split, self.settings.calibration_split):
            raise ParameterError(
                f"ood_split: {ood_split!r} is a split of the in-distribution dataset"
            )

    def _of_pass(self, name: str) -> RunRegions:
        folder = None
        if self.passes is not None:
            folder = inside(self.passes, name)
        if folder is None or not folder.is_dir():
            raise FitError(
                f"the run has no pass {name!r}; list it in `passes` of its entry in params.yaml"
            )
        return dataclasses.replace(self, folder=folder, fit_folder=None)

    @cached_property
    def training(self) -> RegionsLike:
        """Those that methods learn from: of the training split, or a sample of them.

        See `labelled_known`.

        Raises:
            FitError: they are those of a pass that leaves the training split out.
            DataError: the split is absent or damaged.
        """
        settings = self.settings
        folder = (self.fit_folder or self.folder) / settings.split
        for left_out in self._left_out(folder):
            problem = f"the pass {left_out!r} has no split {settings.split!r} to learn from"
            advice = "take it out of the pass's `skip`"
            if not self.beside:
                advice = f"write `fit_on: detections`, or {advice}"
            raise FitError(f"{problem}: {advice}")
        regions = labelled_known(self._open(folder))
        if settings.max_regions is not None:
            regions = RegionsSample(regions, settings.max_regions, settings.seed)
        return HeldRegions(regions)

    def training_of(self, method: Method) -> RegionsLike:
        """The training regions of a method.

        By annotated classes where the settings and the method say so, else `training`.

        Raises:
            FitError: no region has an annotated class.
            DataError: the table of annotated objects is absent or damaged.
        """
        if self.settings.labels == "predicted" or method.annotation == "unused":
            return self.training
        predicted, annotated = self._classes
        if method.annotation == "correct":
            annotated = np.where(annotated == predicted, annotated, -1)
        if not (annotated >= 0).any():
            regions = f"no region of split {self.settings.split!r}"
            problem = f"{regions} matches an annotated object that it learns from"
            raise FitError(f"{method.name}: {problem}; write `fit.labels: predicted`")
        return _WithClasses(self.training, annotated)

    @cached_property
    def _classes(self) -> tuple[np.ndarray, np.ndarray]:
        """Predicted and annotated class of each region of `training`, ndarrays of shape (N,).

        −1 for none.
        """
        regions = Regions.empty(self.training.header)
        batches = []
        for batch in self.training.batches([]):
            batches.append(batch.with_frame(batch.frame.drop("logits")))
        if batches:
            regions = Regions.concatenate(batches)

        column_of_class = {}
        for k, name in enumerate(regions.classes):
            if name in regions.header.known_classes:
                column_of_class[name] = k
        objects = Objects.read(self._objects(self.settings.split))
        categories = true_classes(objects, regions).frame["category"]
        annotated = categories.replace_strict(column_of_class, default=-1, return_dtype=pl.Int16)
        return regions.label, annotated.to_numpy()

    def _objects(self, split: str) -> Path:
        """The table of the annotated objects of a split.

        Raises:
            FitError: the run was given none.
        """
        if self.splits is None:
            raise FitError(
                "annotated classes of the training regions are needed, and were not given"
            )
        return inside(self.splits, f"{split}/objects.parquet")

    @cached_property
    def calibration(self) -> RegionsLike:
        """Those that τ is taken from; see `labelled_known`."""
        return HeldRegions(labelled_known(self.above(self.settings.calibration_split)), HELD // 4)

    def above(self, split: str) -> RegionsLike:
        """The regions of a split at or above t*.

        Raises:
            FitError: they are those of a pass that leaves the split out.
            DataError: the split is absent or damaged.
        """
        folder = self.folder / split
        for left_out in self._left_out(folder):
            problem = f"the pass {left_out!r} has no split {split!r}"
            raise FitError(
                f"{problem}, which τ or parameters are chosen on: take it out of the pass's `skip`"
            )
        return self._open(folder)

    def unknown(self, ood_split: str) -> RegionsLike:
        """The regions at or above t* of an OOD split that parameters or methods learn from.

        Raises:
            FitError: the run has no such split; says which it has. Or see `above`.
        """
        splits = [file.parent.name for file in listed(self.folder, "*/regions.json")]
        if ood_split not in splits and not self._left_out(self.folder / ood_split):
            raise FitError(
                f"the run has no split {ood_split!r} to learn from (`ood_split`); it has "
                f"{', '.join(splits)}"
            )
        return self.above(ood_split)

    def _open(self, folder: Path) -> RegionsLike:
        """The regions of a split at or above t*, with the columns of passes beside their own."""
        if not self.beside:
            return RegionsFolder(folder).above(self.operating)
        return JoinedFolder(folder, self._folders_beside(folder.name), self.operating)

    def _folders_beside(self, split: str) -> dict[str, Path]:
        """The folder of a split in each pass whose columns the regions have."""
        folders = {}
        for name in self.beside:
            assert self.passes is not None
            folders[name] = inside(self.passes, name) / split
        return folders

    def _left_out(self, folder: Path) -> list[str]:
        """The passes that leave a split out, of those that the regions are of."""
        passes = []
        if self.passes is not None and folder.is_relative_to(self.passes) and not folder.is_dir():
            passes.append(folder.parent.name)
        for name, folder_beside in self._folders_beside(folder.name).items():
            if folder.is_dir() and not folder_beside.is_dir():
                passes.append(name)
        return passes

    def digests_for(self, entry: MethodEntry) -> dict[str, str]:
        """Content digest of each folder that an entry is fitted from, by its path in the run.

        Folders that do not exist count as absent.
        """
        source = self.folder
        if entry.pass_name is not None and self.passes is not None:
            source = inside(self.passes, entry.pass_name)
        training = self.folder if entry.fit_on == "detections" else source
        split = entry.fit_split or self.settings.split
        folders = [training / split, source / self.settings.calibration_split]
        if entry.ood_split is not None:
            folders.append(source / entry.ood_split)
        if self.passes is not None:
            splits = [folder.name for folder in folders]
            for name in entry.passes_beside:
                folders += [inside(self.passes, name) / own_split for own_split in splits]
        if entry.learns_passes and self.passes is not None:
            folders += listed(self.passes, f"*/{split}")
        with ThreadPoolExecutor(count_cores()) as pool:
            digests = list(pool.map(self._digest, folders))
        return {
            f"{folder.parent.name}/{folder.name}": digest
            for folder, digest in zip(folders, digests, strict=True)
        }

    def objects_of(self, entry: MethodEntry) -> Path:
        """The table of the annotated objects of the split that an entry learns from.

        Raises:
            FitError: the run was given none.
        """
        return self._objects(entry.fit_split or self.settings.split)

    def _digest(self, folder: Path) -> str:
        if folder not in self.known_digests:
            self.known_digests[folder] = content_digest(folder)
        return self.known_digests[folder]


def labelled_known(regions: RegionsLike) -> RegionsLike:
    """The regions without those that the detector itself labels as unknown.

    Methods do not decide about those.
    """
    return _LabelledKnown(regions) if regions.header.unknown_columns else regions


class _View:
    """Base of regions whose header and columns are those of others; see `RegionsLike`."""

    def __init__(self, regions: RegionsLike):
        self._regions = regions
        self.path = getattr(regions, "path", None)

    @property
    def header(self) -> Header:
        """What all rows share."""
        return self._regions.header

    def has(self, column: str) -> bool:
        """True if the rows have this column (or, for `last_layer`, the header)."""
        return self._regions.has(column)


class _LabelledKnown(_View):
    """See `labelled_known`."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        for batch in self._regions.batches(columns):
            yield batch[~batch.is_labelled_unknown]


class _WithClasses(_View):
    """Regions with classes in place of the predicted ones, shape (N,).

    Those of class −1 are left out.
    """

    def __init__(self, regions: RegionsLike, classes: np.ndarray):
        super().__init__(regions)
        self._classes = classes

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        first = 0
        for batch in self._regions.batches(columns):
            label = self._classes[first : first + len(batch)]
            first += len(batch)
            yield batch.with_frame(batch.frame.with_columns(label=pl.Series(label)))[label >= 0]


class HeldRegions(_View):
    """Regions whose columns stay in memory once they were read, as long as they fit.

    See `RegionsLike`.

    Args:
        regions: The rows.
        limit: Bytes to keep; a column that would take more is read again each time.
    """

    def __init__(self, regions: RegionsLike, limit: int = HELD):
        super().__init__(regions)
        self._left = limit
        self._batches: list[Regions] = []
        self._held: set[str] = set()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        """The rows in batches of the size in which they are stored."""
        if columns is None or not all(
            self._hold(name) for name in ("score", *columns) if self.has(name)
        ):
            return self._regions.batches(columns)
        return iter(self._batches)

    def _hold(self, column: str) -> bool:
        """Reads a column, unless it is held or too large; whether it is held."""
        if column in self._held or self._left <= 0:
            return column in self._held
        batches = []
        for number, batch in enumerate(self._regions.batches([column])):
            frame = batch.frame
            if column not in frame.columns:  # a folder without rows
                return False
            if self._held:
                frame = self._batches[number].frame.hstack([frame[column]])
            self._left -= int((frame.select(column) if self._held else frame).estimated_size())
            if self._left <= 0:
                return False
            batches.append(batch.with_frame(frame))
        self._batches = batches
        self._held.update(batches[0].names if batches else [column])
        return True


class RegionsSample(_View):
    """Rows of a regions table drawn at random without replacement, in stored order.

    See `RegionsLike`.

    Args:
        regions: The rows to draw from.
        size: How many to draw; all rows when there are no more.
        seed: Of the draw.
    """

    def __init__(self, regions: RegionsLike, size: int, seed: int):
        super().__init__(regions)
        self._count = count_rows(regions)
        drawn = np.random.default_rng(seed).choice(
            self._count, min(size, self._count), replace=False
        )
        self._drawn = np.sort(drawn)

    def __len__(self) -> int:
        return len(self._drawn)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        """The drawn rows of each batch."""
        first = 0
        for batch in self._regions.batches(columns):
            low, high = np.searchsorted(self._drawn, [first, first + len(batch)])
            if high > low:
                yield batch[self._drawn[low:high] - first]
            first += len(batch)
