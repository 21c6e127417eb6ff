"""Drift: whether windows of monitored images look as the ID validation split did.

Three shares are compared: of detections flagged unknown, of images rejected, and of images without
a detection. If the images of a window and those of validation are exchangeable, the number of such
images in the window is hypergeometric, given the number in both (Fisher's exact test, Fisher, 1922,
https://doi.org/10.2307/2340521); the interval of a window holds the shares that this test does not
refuse. So the size of the validation split counts as well as that of the window. Detections in one
image are not independent: both numbers of them are divided by the design effect (Kish, 1965; Rao
and Scott, 1992, https://doi.org/10.2307/2532311), the variance of the share over images by that of
independent detections.

Of a bundle with proposals two values more are compared: the share of the proposals called unknown
whose objectness is above its median in validation; and their number per image, by the conditional
test of two Poisson counts (Przyborowski and Wilenski, 1940,
https://doi.org/10.1093/biomet/31.3-4.313), divided by the variance of the number over its mean.

Over many windows some would leave an interval of fixed level by chance. The k-th window is tested
at the level `level` / (s k (k + 1)), which adds up to `level` over s values and any number of
windows: the probability that a stream without drift ever raises a false alarm is at most `level`
(5%).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from farther.errors import DataError, ParameterError
from farther.monitor.monitored import Monitored
from farther.monitor.proposal_rates import ProposalRates, consistent_number, design_effect
from farther.tables.arguments import (
    boolean,
    booleans,
    floats,
    instance,
    number,
    texts,
    whole_number,
)

#: Windows that are kept in memory, the last ones.
KEPT = 1000

#: The shares that are compared, in words.
SHARES = {
    "unknown": "of the detections are unknown",
    "rejected": "of the images are rejected",
    "empty": "of the images have no detections",
}

#: What is compared besides where the bundle has proposals.
OF_PROPOSALS = {
    "proposals": "proposals per image are called unknown",
    "objectness": "of the proposals have an objectness above its median there",
}


@dataclass(frozen=True)
class Share:
    """A share as two numbers.

    Args:
        count: Its numerator.
        total: Its denominator.
    """

    count: int
    total: int


@dataclass(frozen=True)
class Rates:
    """Numbers of images and detections, which shares are computed from.

    Args:
        images: Number of images.
        rejected: Images that were rejected.
        empty: Images without a detection.
        detections: Number of detections.
        unknown: Detections that were flagged unknown.
        design_effect: Variance of the share of unknown detections over images, by that of as many
            independent detections; 1 or more.
        proposals: Proposals that are called unknown; None where the bundle has none.
    """

    images: int = 0
    rejected: int = 0
    empty: int = 0
    detections: int = 0
    unknown: int = 0
    design_effect: float = 1.0
    proposals: ProposalRates | None = None

    @classmethod
    def of(
        cls,
        image_id: np.ndarray,
        unknown: np.ndarray,
        images: Sequence[str],
        rejected: Sequence[str],
        proposals: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> Rates:
        """The rates of a set of images.

        Args:
            image_id: Image of each detection, ndarray of shape (N,).
            unknown: Whether it was flagged unknown, ndarray of shape (N,), bool.
            images: Names of all images.
            rejected: Names of those that were rejected.
            proposals: Image and objectness of each proposal that is called unknown, ndarrays of
                shape (P,).

        Raises:
            DataError: lengths differ, or an image is not among `images`; names argument and row.
        """
        image_names = texts(images, "images").tolist()
        row_by_image = {name: row for row, name in enumerate(image_names)}
        rejected_rows = _rows_of(texts(rejected, "rejected"), row_by_image, "rejected")
        image_of_detection = _rows_of(texts(image_id, "image_id"), row_by_image, "image_id")
        unknown = booleans(unknown, "unknown", shape=(len(image_of_detection),))
        detections = np.bincount(image_of_detection, minlength=len(image_names))
        image_of_unknown = image_of_detection[unknown]
        unknown_by_image = np.bincount(image_of_unknown, minlength=len(image_names))

        proposal_rates = None
        if proposals is not None:
            names_of_proposals, objectness = proposals
            image_of_proposal = _rows_of(
                texts(names_of_proposals, "proposals"), row_by_image, "proposals"
            )
            objectness = floats(objectness, "objectness", shape=(len(image_of_proposal),))
            proposal_rates = ProposalRates.of(image_of_proposal, objectness, len(image_names))
        return cls(
            images=len(image_names),
            rejected=len(rejected_rows),
            empty=int((detections == 0).sum()),
            detections=int(detections.sum()),
            unknown=int(unknown_by_image.sum()),
            design_effect=design_effect(detections, unknown_by_image),
            proposals=proposal_rates,
        )

    @property
    def compared(self) -> dict[str, str]:
        """The values that are compared with these, in words."""
        if self.proposals is None:
            return SHARES
        return {**SHARES, **OF_PROPOSALS}

    def emptied(self) -> Rates:
        """Rates of no image yet, to be compared with these."""
        if self.proposals is None:
            return Rates()
        return Rates(proposals=ProposalRates.none(self.proposals.edges))

    def with_image(
        self, detections: int, unknown: int, *, accepted: bool, objectness: np.ndarray | None = None
    ) -> Rates:
        """These rates and one more image."""
        proposals = None
        if self.proposals is not None and objectness is not None:
            proposals = self.proposals.adding(objectness)
        return Rates(
            images=self.images + 1,
            rejected=self.rejected + (not accepted),
            empty=self.empty + (detections == 0),
            detections=self.detections + detections,
            unknown=self.unknown + unknown,
            design_effect=self.design_effect,
            proposals=proposals,
        )

    def counts(self, share: str) -> Share:
        """Numerator and denominator of a share; of proposals, their number and that of images."""
        proposals = self.proposals or ProposalRates.none(())
        if share == "proposals":
            return Share(proposals.number, self.images)
        if share == "objectness":
            return Share(proposals.above_median, proposals.number)
        if share == "unknown":
            return Share(self.unknown, self.detections)
        return Share(getattr(self, share), self.images)

    def share(self, share: str) -> float | None:
        """A share; None where its denominator is 0."""
        counts = self.counts(share)
        if not counts.total:
            return None
        return counts.count / counts.total

    def to_json(self) -> dict[str, Any]:
        """All values, as JSON holds them."""
        values = {field.name: getattr(self, field.name) for field in fields(Rates)}
        if self.proposals is not None:
            values["proposals"] = asdict(self.proposals)
        return values


def _rows_of(names: np.ndarray, row_by_image: Mapping[str, int], field: str) -> np.ndarray:
    """The row of each image, shape (N,); `field` is the argument in messages."""
    rows = np.zeros(len(names), np.int64)
    for row, name in enumerate(names.tolist()):
        if name not in row_by_image:
            raise DataError(f"{name!r} is not among `images`", row=row, field=field)
        rows[row] = row_by_image[name]
    return rows


@dataclass(frozen=True)
class Window:
    """A window of monitored images.

    Args:
        number: Its number, from 1.
        first: Number of its first image, from 1.
        rates: Its rates.
        intervals: For each share, the smallest and the largest that are consistent with validation;
            None where there is nothing to compare.
        validation: The rates that it is compared with.
        before: The shares that were outside in the window before.
    """

    number: int
    first: int
    rates: Rates
    intervals: dict[str, tuple[float, float] | None]
    validation: Rates
    before: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[str, ...]:
        """The shares that left their interval with this window."""
        return tuple(name for name in self.outside if name not in self.before)

    @property
    def outside(self) -> tuple[str, ...]:
        """The shares outside their interval."""
        outside = []
        for name, interval in self.intervals.items():
            share = self.rates.share(name)
            if interval is None or share is None:
                continue
            low, high = interval
            if not low <= share <= high:
                outside.append(name)
        return tuple(outside)

    def describe(self, name: str) -> str:
        """One line about a share outside its interval."""
        low, high = self.intervals[name] or (0.0, 1.0)
        last = self.first + self.rates.images - 1
        share = format_share(name, self.rates.share(name))
        share_in_validation = format_share(name, self.validation.share(name))
        interval = f"[{format_share(name, low)}, {format_share(name, high)}]"
        return (
            f"images {self.first:,} to {last:,}: {share} {self.validation.compared[name]}; "
            f"ID validation showed {share_in_validation}, and {interval} is consistent with it"
        )

    def to_json(self) -> dict[str, Any]:
        """Its numbers, and shares with their intervals."""
        shares = {
            name: {"share": self.rates.share(name), "interval": interval}
            for name, interval in self.intervals.items()
        }
        counts = self.rates.to_json()
        del counts["design_effect"]  # that of validation counts
        return {
            "number": self.number,
            "first": self.first,
            **counts,
            "shares": shares,
            "outside": list(self.outside),
        }


class Drift:
    """Compares windows of monitored images with the ID validation split.

        drift = Drift(monitor.bundle.validation)
        for monitored in monitor.stream(images):
            window = drift.update(monitored)
            if window is not None and window.left:
                print(window.describe(window.left[0]))

    Args:
        validation: What validation showed: `bundle.validation`.
        window: Images in a window. Images of one scene are alike: a window should show many scenes.
        level: Probability of at least one false alarm, over all windows and shares.

    Attributes:
        total: Rates of all images so far.
        count: Number of windows so far.
        alarms: Number of windows in which a share was outside its interval.
        windows: The last `KEPT` windows.

    Raises:
        ParameterError: the window is empty, the level is not between 0 and 1, or validation has no
            image.
        DataError: validation is not `Rates`.
    """

    def __init__(self, validation: Rates, *, window: int = 200, level: float = 0.05):
        self.validation = instance(validation, Rates, "validation")
        self.window = whole_number(window, "window", at_least=1)
        self.level = number(level, "level", above=0, below=1)
        if not validation.images:
            raise ParameterError("the ID validation split has no image to compare with")
        self.total = validation.emptied()
        self.count = 0
        self.alarms = 0
        self.windows: deque[Window] = deque(maxlen=KEPT)
        self._current = validation.emptied()

    def update(self, monitored: Monitored) -> Window | None:
        """Counts an image; the window that it completes, if it does."""
        objectness = None
        if monitored.proposals is not None:
            objectness = monitored.proposals.score
        return self.add(
            len(monitored.unknown),
            int(np.sum(monitored.unknown)),
            accepted=bool(monitored.accepted),
            objectness=objectness,
        )

    def add(
        self,
        detections: int,
        unknown: int,
        *,
        accepted: bool = True,
        objectness: np.ndarray | None = None,
    ) -> Window | None:
        """The same by the numbers of the image's detections.

        Args:
            detections, unknown: Number of them, and of those that are unknown.
            accepted: Whether the image is.
            objectness: Of its proposals that are called unknown; None for a bundle without
                proposals.

        Raises:
            ParameterError: there are proposals here and none in the validation, or the other way
                round; or a number is not one, or more detections are unknown than there are.
            DataError: `objectness` is not finite numbers.
        """
        detections = whole_number(detections, "detections", at_least=0)
        unknown = whole_number(unknown, "unknown", at_least=0, at_most=detections)
        accepted = boolean(accepted, "accepted")
        if objectness is not None:
            objectness = floats(objectness, "objectness")
        if objectness is not None and self.validation.proposals is None:
            problem = "ID validation of the bundle has no proposals to compare with"
            raise ParameterError(f"{problem}: write it again by `farther bundle`")
        if objectness is None and self.validation.proposals is not None:
            raise ParameterError(
                "the bundle has proposals: give the objectness of those of each image"
            )
        self.total = self.total.with_image(
            detections, unknown, accepted=accepted, objectness=objectness
        )
        self._current = self._current.with_image(
            detections, unknown, accepted=accepted, objectness=objectness
        )
        if self._current.images < self.window:
            return None
        return self.close()

    def close(self) -> Window | None:
        """Ends the current window, however many images it has; None where it has none."""
        if not self._current.images:
            return None
        self.count += 1
        names = self.validation.compared
        level = self.level / (len(names) * self.count * (self.count + 1))
        intervals = {
            name: consistent(self.validation, self._current, name, level) for name in names
        }
        first = self.total.images - self._current.images + 1
        before = self.windows[-1].outside if self.windows else ()
        window = Window(self.count, first, self._current, intervals, self.validation, before)
        self.windows.append(window)
        self.alarms += bool(window.outside)
        self._current = self.validation.emptied()
        return window

    def to_json(self) -> dict[str, Any]:
        """Validation, totals and the last windows."""
        total = self.total.to_json()
        del total["design_effect"]  # that of validation counts
        return {
            "format": "farther.drift",
            "version": 1,
            "window": self.window,
            "level": self.level,
            "validation": self.validation.to_json(),
            "total": total,
            "windows": self.count,
            "alarms": self.alarms,
            "last_windows": [window.to_json() for window in self.windows],
        }


def consistent(
    validation: Rates, window: Rates, share: str, level: float
) -> tuple[float, float] | None:
    """Smallest and largest share of a window that are consistent with validation.

    None where either has nothing to count.

    Args:
        validation: The rates of the ID validation split.
        window: Those of the window, of which only the size counts.
        share: A key of `Rates.compared`.
        level: Of the two-sided test.
    """
    proposals = validation.proposals
    if share == "proposals" and proposals is not None:
        return consistent_number(proposals, validation.images, window.images, level)
    effect = 1.0
    if share == "unknown":
        effect = validation.design_effect
    elif share == "objectness" and proposals is not None:
        effect = proposals.design_effect

    in_validation = validation.counts(share)
    count = round(in_validation.count / effect)
    total = int(in_validation.total / effect)
    size = int(window.counts(share).total / effect)
    if not total or not size:
        return None
    low, high = _limits(count, total, size, level)
    return low / size, high / size


@lru_cache(maxsize=4096)
def _limits(count: int, total: int, size: int, level: float) -> tuple[int, int]:
    """Smallest and largest number of `size` that Fisher's test does not refuse beside validation.

    Args:
        count, total: Number of the share in validation, and what it is a share of.
        size: What the window's number is a share of.
        level: Of the two-sided test.
    """
    from scipy.stats import hypergeom  # takes a second, which a monitor need not wait for

    def below(number: int) -> float:
        return float(hypergeom.cdf(number, total + size, count + number, size))

    def above(number: int) -> float:
        return float(hypergeom.sf(number - 1, total + size, count + number, size))

    # Both tails are monotone in the number: that of fewer rises with it, that of more falls.
    low = bisect_left(range(size), level / 2, key=below)
    high = size - bisect_left(range(size), level / 2, key=lambda missing: above(size - missing))
    return low, high


def format_share(name: str, share: float | None) -> str:
    """A value in words: a share in per cent, a number of proposals as it is."""
    if share is None:
        return "none"
    if name == "proposals":
        return f"{share:.2f}"
    return f"{100 * share:.1f}%"
