"""What each setting of a run finds and costs, small enough for a page that moves the thresholds.

The report's page *Deploy* computes outcomes in the browser, by the rules of
`farther.metrics.open_set.outcomes`, for any t*, τ and objectness among some *stops*. Stored is only
what these rules read, quantised without an error at any stop: instead of a score the number of the
first τ above it, instead of a confidence the number of the last t* up to it. So a comparison with a
stop is exact, that with the run's own thresholds, too; the page interpolates nothing.

Left out is what cannot change an outcome: regions that lie on no unknown object, and detections of
ID images that another one of the image is flagged before at each t*. Where the rest is larger than
`LARGEST`, images are left out, evenly spread over each split, and the page says so.

Columns are base64 texts of little-endian numbers; *levels* are of one byte:

- of t*: a region is a detection at the stops up to its level;
- of τ: it is flagged at the stops from its level on;
- of objectness: a proposal is called unknown at the stops below its level.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import to_jsonable_python

from farther.evaluation.deploy.knobs import NOTHING_FLAGGED
from farther.evaluation.deploy.results import CONFIDENCES, DeploySetting
from farther.evaluation.deploy.steps import ThresholdSteps
from farther.evaluation.files import RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import FittedMethod
from farther.evaluation.tau import Calibration
from farther.metrics.closed_set import ClosedSet
from farther.metrics.matching.boxes import OverlapPairs, places
from farther.naming.registry import STRICT

#: Largest size of a run's data in bytes.
LARGEST = 1_000_000

#: Largest number of stops of a threshold; a level is a byte, and one more than the last stop.
STOPS = 250


@checked_dataclass(config=STRICT, kw_only=True, frozen=True)
class DialPairs:
    """R regions and the objects that they may be matched to, the most confident region first.

    Args:
        operating: Level of t* of each region.
        number: Number of its objects, 16 bits each.
        object: The objects of all regions, one region after the other, and of one region the
            preferred first; 32 bits each.
    """

    operating: str
    number: str
    object: str


@checked_dataclass(config=STRICT, kw_only=True, frozen=True)
class DialAlarms:
    """Detections of ID images that raise an alarm at a t* and τ at which no other one does.

    Args:
        image: Number of each one's image, 32 bits.
        operating, tau: Levels of t* and of τ.
    """

    image: str
    operating: str
    tau: str


@checked_dataclass(config=STRICT, kw_only=True, frozen=True)
class DialMethod:
    """A method.

    Args:
        taus: Stops of τ, rising.
        own: Number of the stop that `evaluate` takes, for each stop of t*.
        unknown, known: Level of τ of each region of `DialData.unknown` and of `DialData.known`.
        alarms: False alarms by detections.
    """

    taus: list[float]
    own: list[int]
    unknown: str
    known: str
    alarms: DialAlarms


@checked_dataclass(config=STRICT, kw_only=True, frozen=True)
class DialImages:
    """The images of some splits.

    Args:
        names: Of the images that are taken, in the order of their numbers.
        splits: Number of the split of each, one byte.
        of: Number of images of the splits.
    """

    names: list[str]
    splits: str
    of: int

    @property
    def split_numbers(self) -> np.ndarray:
        """Number of the split of each image, ndarray of shape (I,)."""
        return np.frombuffer(base64.b64decode(self.splits), dtype="<u1")


@checked_dataclass(config=STRICT, kw_only=True, frozen=True)
class DialData:
    """The content of `dials/<run>.json`; see the module.

    Args:
        run: Its name.
        operating: Stops of t*, rising.
        own: Number of the stop that is the run's t*.
        id_split: The ID split that is measured on.
        splits: The OOD splits.
        id_images, ood_images: Their images.
        unknown: Regions on unknown objects; objects are those of `object_image`.
        keeps: Of each of these regions, 1 if it misclassifies objects where it is not flagged.
        takes_first: Whether a flagged region matches only the object that it prefers (protocol
            "published-code").
        object_image: Number of each unknown object's image, 32 bits.
        known: Regions on known objects of their class; objects are those of `reusable`.
        reusable: Of each known object, 1 if it is not counted and any number of regions match it.
        source: Source of proposals; None for none.
        objectness: Stops of objectness, rising; [] without proposals, which are called unknown at
            the run's own t* only.
        recovered: Level of the objectness of the proposal that finds each unknown object, where no
            detection matches it.
        called: Level of the largest objectness of a proposal on no detection, of each ID image.
        methods: Name → method.
    """

    run: str
    operating: list[float]
    own: int
    id_split: str
    splits: list[str]
    id_images: DialImages
    ood_images: DialImages
    unknown: DialPairs
    keeps: str
    takes_first: bool
    object_image: str
    known: DialPairs
    reusable: str
    source: str | None = None
    objectness: list[float] = Field(default_factory=list)
    recovered: str = ""
    called: str = ""
    methods: dict[str, DialMethod] = Field(default_factory=dict)


@dataclass(frozen=True)
class DialSource:
    """What the data are made from.

    Args:
        inputs: The run's inputs.
        methods: Name → fitted method, of the methods that have scores.
        calibration: What τ is taken from.
        settings: Settings whose thresholds are stops.
        source: Source of proposals; None for none.
        recovered: The objectness of the proposal that finds each counted unknown object of the OOD
            splits at the run's own t*, as `OodSteps.recovered`.
        called: Proposals of ID images on no detection, as `IdSteps.proposals`.
    """

    inputs: RunInputs
    methods: Mapping[str, FittedMethod]
    calibration: Calibration
    settings: Sequence[DeploySetting]
    source: str | None
    recovered: ThresholdSteps
    called: ThresholdSteps


def dial_data(source: DialSource, largest: int = LARGEST) -> DialData:
    """The data of a run.

    Args:
        source: What they are made from.
        largest: Largest size in bytes of their JSON.
    """
    share = 1.0
    while True:
        data = _Dial(source, share).data()
        size = len(json.dumps(to_jsonable_python(data)))
        # The stops remain, however few the images are.
        if size <= largest or share < 0.01:
            return data
        share *= 0.95 * largest / size


class _Dial:
    """Computes the data of a share of the images of each split.

    Args:
        source: What they are made from.
        share: The share.
    """

    def __init__(self, source: DialSource, share: float):
        self._source = source
        self._share = share
        self._inputs = source.inputs
        self._id = _Taken.of([source.inputs.id_split], share)
        self._ood = _Taken.of(source.inputs.tested, share)

    def data(self) -> DialData:
        """The data."""
        inputs = self._inputs
        recovered = self._source.recovered
        objects = self._ood.number[self._object_image]
        is_taken = objects >= 0
        unknown_rows, unknown_pairs = self._unknown_pairs(is_taken)
        known_rows, known_pairs, reusable = self._known_pairs()
        methods = {}
        for name in self._source.methods:
            methods[name] = self._method(name, unknown_rows, known_rows)

        proposed = self._objectness
        highest = np.full(len(self._id.names), -np.inf)
        image = self._id.number[self._source.called.image]
        np.maximum.at(highest, image[image >= 0], self._source.called.at[image >= 0])
        return DialData(
            run=inputs.files.run,
            operating=self._operating,
            own=self._operating.index(inputs.threshold),
            id_split=inputs.id_split.name,
            splits=[split.name for split in inputs.tested],
            id_images=self._id.images,
            ood_images=self._ood.images,
            unknown=unknown_pairs,
            keeps=packed(self._keeps(unknown_rows), "<u1"),
            takes_first=inputs.settings.protocol == "published-code",
            object_image=packed(objects[is_taken], "<u4"),
            known=known_pairs,
            reusable=packed(reusable, "<u1"),
            source=self._source.source,
            objectness=proposed.tolist(),
            recovered=packed(np.searchsorted(proposed, recovered.at[is_taken]), "<u1"),
            called=packed(np.searchsorted(proposed, highest), "<u1"),
            methods=methods,
        )

    @cached_property
    def _operating(self) -> list[float]:
        """Stops of t*: the run's own, those of settings, and round ones."""
        own = self._inputs.threshold
        stops = {own}
        stops.update(setting.operating for setting in self._source.settings)
        if not self._inputs.whole_images:
            lowest = float(self._inputs.id_split.regions().score.min(initial=1))
            stops.update(value for value in CONFIDENCES if value >= lowest)
        return sorted(stops)

    @cached_property
    def _objectness(self) -> np.ndarray:
        """Stops of objectness: those of settings, and others evenly spread over ID images."""
        if self._source.source is None:
            return np.zeros(0)
        needed = set()
        for setting in self._source.settings:
            if setting.objectness is not None:
                needed.add(setting.objectness)
        recovered = self._source.recovered.at
        found = recovered[np.isfinite(recovered)]
        return _stops(needed, [self._source.called.at, found], 60)

    def _levels_of_operating(self, confidence: np.ndarray) -> np.ndarray:
        """Level of t* of regions, −1 for those that are a detection at no stop."""
        level = np.full(len(confidence), -1)
        for stop in self._operating:
            level += confidence >= stop
        return level

    @cached_property
    def _object_image(self) -> np.ndarray:
        """Index of the image of each counted unknown object among the images of all OOD splits."""
        return self._source.recovered.image

    def _unknown_pairs(self, is_taken: np.ndarray) -> tuple[list[np.ndarray], DialPairs]:
        """The rows of the regions of each OOD split, and their pairs.

        Args:
            is_taken: Whether each counted unknown object is in an image that is taken.
        """
        object_number = np.where(is_taken, np.cumsum(is_taken) - 1, -1)
        rows_by_split = []
        levels = []
        pairs_by_split = []
        first_object = 0
        first_region = 0
        for split in self._inputs.tested:
            open_set = split.stored_open_set
            counted = open_set.is_counted
            number_of_row = np.full(len(counted), -1)
            objects = int(counted.sum())
            number_of_row[counted] = object_number[first_object : first_object + objects]
            first_object += objects

            level = self._levels_of_operating(split.regions().score)
            pairs = open_set.candidates
            may_match = number_of_row[pairs.target] >= 0
            may_match &= open_set.detections.counted[pairs.region] & (level[pairs.region] >= 0)
            pairs = pairs[may_match]
            rows = _by_rank(pairs, open_set.detections.rank)
            moved = pairs.moved(rows, len(level))
            numbered = OverlapPairs(
                moved.region + first_region, number_of_row[moved.target], moved.overlap
            )
            first_region += len(rows)
            rows_by_split.append(rows)
            levels.append(level[rows])
            pairs_by_split.append(numbered)
        return rows_by_split, _dial_pairs(levels, pairs_by_split)

    def _keeps(self, rows_by_split: Sequence[np.ndarray]) -> np.ndarray:
        """Whether each region misclassifies objects where it is not flagged."""
        keeps = [np.zeros(0, dtype=bool)]
        for split, rows in zip(self._inputs.tested, rows_by_split, strict=True):
            keeps.append(~split.stored_open_set.correctly_known[rows])
        return np.concatenate(keeps)

    def _known_pairs(self) -> tuple[np.ndarray, DialPairs, np.ndarray]:
        """The rows of the regions of the ID split, their pairs, and which objects are reusable."""
        split = self._inputs.id_split
        regions = split.regions()
        closed = ClosedSet.of(split.objects, regions)
        pairs = closed.candidates(self._inputs.settings.iou, closed.is_ignored)

        names = np.array(sorted(split.images), dtype=object)
        object_image = self._id.number[places(names, closed.images)][closed.object_image]
        is_taken = object_image >= 0
        object_number = np.where(is_taken, np.cumsum(is_taken) - 1, -1)
        level = self._levels_of_operating(regions.score)[closed.detections.row]
        may_match = is_taken[pairs.target] & (level[pairs.region] >= 0)
        pairs = pairs[may_match]
        # Detections of a class are sorted in the order in which they choose.
        detections = np.unique(pairs.region)
        moved = pairs.moved(detections, len(level))
        numbered = OverlapPairs(moved.region, object_number[moved.target], moved.overlap)
        rows = closed.detections.row[detections]
        reusable = ~closed.counted()[is_taken]
        return rows, _dial_pairs([level[detections]], [numbered]), reusable

    def _method(
        self, name: str, unknown_rows: Sequence[np.ndarray], known_rows: np.ndarray
    ) -> DialMethod:
        inputs = self._inputs
        own = self._own_taus(name)
        id_scores = inputs.scores(name, inputs.id_split)
        ood_scores = [np.zeros(0)]
        on_unknown = [np.zeros(0)]
        for split, rows in zip(inputs.tested, unknown_rows, strict=True):
            scores = inputs.scores(name, split)
            ood_scores.append(scores[split.above_threshold])
            on_unknown.append(scores[rows])
        spread = [np.concatenate(ood_scores), id_scores[inputs.id_above_threshold]]

        needed = {NOTHING_FLAGGED, *own}
        for setting in self._source.settings:
            if setting.method == name:
                needed.add(setting.tau)
        highest = max(scores.max(initial=NOTHING_FLAGGED) for scores in spread)
        needed.add(float(np.nextafter(highest, np.inf)))  # all are flagged
        taus = _stops(needed, spread, 150)
        return DialMethod(
            taus=taus.tolist(),
            own=np.searchsorted(taus, own).tolist(),
            unknown=packed(np.searchsorted(taus, np.concatenate(on_unknown), "right"), "<u1"),
            known=packed(np.searchsorted(taus, id_scores[known_rows], "right"), "<u1"),
            alarms=self._alarms(id_scores, taus),
        )

    def _own_taus(self, name: str) -> list[float]:
        """τ that `evaluate` would take at each stop of t*.

        Where no detection is left to take it from, it is that of the stop before.
        """
        fitted = self._source.methods[name]
        taus = []
        latest = NOTHING_FLAGGED
        for operating in self._operating:
            tau = self._source.calibration.tau_at(name, fitted, operating)
            if tau is not None:
                latest = tau
            taus.append(latest)
        return taus

    def _alarms(self, scores: np.ndarray, taus: np.ndarray) -> DialAlarms:
        """The false alarms of a method.

        Args:
            scores: Of the stored regions of the ID split.
            taus: Stops of τ.
        """
        split = self._inputs.id_split
        regions = split.regions()
        names = np.array(sorted(split.images), dtype=object)
        image = self._id.number[places(names, regions.image_id)]
        operating = self._levels_of_operating(regions.score)
        tau = np.searchsorted(taus, scores, "right")
        can_raise = (image >= 0) & (operating >= 0) & (tau < len(taus))
        image = image[can_raise]
        operating = operating[can_raise]
        tau = tau[can_raise]

        # The most confident first: a later one counts only if it is flagged at a lower τ. The term
        # of the image makes the running minimum begin anew with each image.
        order = np.lexsort((tau, -operating, image))
        falling = tau[order] - 1000 * image[order]
        lowest_before = np.minimum.accumulate(np.append(1000, falling[:-1]))
        order = order[falling < lowest_before[: len(order)]]
        return DialAlarms(
            image=packed(image[order], "<u4"),
            operating=packed(operating[order], "<u1"),
            tau=packed(tau[order], "<u1"),
        )


@dataclass(frozen=True)
class _Taken:
    """The images of some splits that are taken.

    Args:
        names: Their names, one split after the other, object array of shape (I,).
        split: Index of the split of each, ndarray of shape (I,).
        number: Of each image of the splits its index among those taken, −1 for others.
    """

    names: np.ndarray
    split: np.ndarray
    number: np.ndarray

    @classmethod
    def of(cls, splits: Sequence[RunSplit], share: float) -> _Taken:
        """A share of the images of each split, evenly spread."""
        names = [np.array([], dtype=object)]
        split_index = [np.zeros(0, dtype=np.int64)]
        is_taken = [np.zeros(0, dtype=bool)]
        for index, split in enumerate(splits):
            in_split = np.array(sorted(split.images), dtype=object)
            taken = np.diff(np.floor(np.arange(len(in_split) + 1) * share)) > 0
            names.append(in_split[taken])
            split_index.append(np.full(int(taken.sum()), index))
            is_taken.append(taken)
        taken = np.concatenate(is_taken)
        number = np.where(taken, np.cumsum(taken) - 1, -1)
        return cls(np.concatenate(names), np.concatenate(split_index), number)

    @property
    def images(self) -> DialImages:
        """The images as they are stored."""
        return DialImages(
            names=self.names.tolist(), splits=packed(self.split, "<u1"), of=len(self.number)
        )


def _by_rank(pairs: OverlapPairs, rank: np.ndarray) -> np.ndarray:
    """Rows of the regions that have pairs, the most confident first."""
    rows = np.unique(pairs.region)
    return rows[np.argsort(rank[rows], kind="stable")]


def _dial_pairs(levels: Sequence[np.ndarray], pairs: Sequence[OverlapPairs]) -> DialPairs:
    """The pairs of several splits, one split after the other.

    Args:
        levels: Level of t* of the regions of each split.
        pairs: Their pairs, sorted by region; regions are numbered over all splits.
    """
    operating = np.concatenate([np.zeros(0, dtype=np.int64), *levels])
    region = np.concatenate([np.zeros(0, dtype=np.int64), *[each.region for each in pairs]])
    target = np.concatenate([np.zeros(0, dtype=np.int64), *[each.target for each in pairs]])
    return DialPairs(
        operating=packed(operating, "<u1"),
        number=packed(np.bincount(region, minlength=len(operating)), "<u2"),
        object=packed(target, "<u4"),
    )


def _stops(needed: set[float], spread: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Stops of a threshold, rising.

    Args:
        needed: Thresholds that are stops.
        spread: Sets of scores; further stops are evenly spread over each.
        count: Number of further stops.
    """
    stops = set(needed)
    sets = [scores[scores > NOTHING_FLAGGED] for scores in spread]
    sets = [np.unique(scores) for scores in sets if len(scores)]
    count = max(0, min(count, STOPS - len(stops) - len(sets)))
    for scores in sets:
        places_in_set = np.linspace(0, len(scores) - 1, max(2, count // len(sets)))
        stops.update(scores[np.unique(places_in_set.astype(int))].tolist())
    return np.array(sorted(stops))


def packed(values: np.ndarray, dtype: str) -> str:
    """Base64 text of little-endian numbers."""
    return base64.b64encode(values.astype(dtype).tobytes()).decode("ascii")
