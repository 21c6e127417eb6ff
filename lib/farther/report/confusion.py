"""Confusion of a detector with a method: true categories against predicted classes, at t* and τ.

Rows are unknown categories, of all OOD splits, and known ones, of the ID test split. Columns are
the classes that objects are detected and kept as, "unknown" for objects that are flagged, and
"missed" for objects that no detection matches. Each counted object counts once, so that a row adds
up to the objects of its category, and the rows of unknown categories to the outcomes of unknown
objects. Of many categories and classes, those with most confusions are shown, and the others are
one row or one column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from farther.evaluation.long_table import WHOLE, Results
from farther.report.linked_table import Cell, LinkedTable, Row
from farther.report.links import GalleryLinks, View
from farther.report.results import Run

#: Headings of the columns that are no class.
FLAGGED = "unknown (flagged)"
MISSED = "missed"


@dataclass
class Predictions:
    """What the objects of a category are detected as.

    Args:
        kept_as: Class → number of objects that are detected and kept as that class.
        flagged: Number of objects that are flagged as unknown.
        missed: Number of objects that no detection matches.
    """

    kept_as: Counter[str] = field(default_factory=Counter)
    flagged: int = 0
    missed: int = 0

    @property
    def objects(self) -> int:
        """Number of objects."""
        return self.kept_as.total() + self.flagged + self.missed

    def add(self, other: Predictions) -> None:
        """Adds the objects of another category."""
        self.kept_as.update(other.kept_as)
        self.flagged += other.flagged
        self.missed += other.missed


@dataclass(frozen=True)
class _Outcomes:
    """Outcomes of the objects of a split by their categories, under a method.

    Args:
        run, split, method: Of which.
        group: The group of the counts in the long table.
        kept_as: Key of the objects of a category that are kept as a class.
    """

    run: Run
    group: str
    split: str
    method: str
    kept_as: str

    def predictions(self, flagged: str, missed: str) -> dict[str, Predictions]:
        """Category → predictions of its objects.

        Args:
            flagged, missed: Keys of the objects with these outcomes.
        """
        predictions = {}
        for category, counts in self._by_part("category").items():
            kept_as: Counter[str] = Counter()
            for name, of_class in self._by_part("class", {"category": category}).items():
                kept_as[name] = int(of_class[self.kept_as].value or 0)
            predictions[category] = Predictions(
                kept_as, int(counts[flagged].value or 0), int(counts[missed].value or 0)
            )
        return predictions

    def _by_part(self, key: str, within: Mapping[str, object] = WHOLE) -> Mapping[str, Results]:
        """See `farther.evaluation.long_table.LongTable.by_part`."""
        return self.run.results.table.by_part(
            self.group, key, split=self.split, method=self.method, within=within
        )


@dataclass(frozen=True)
class Confusion:
    """Predictions of all objects of a run.

    Args:
        unknown: Unknown category → predictions of its objects in all OOD splits.
        known: Known category → predictions of its objects in the ID test split.
    """

    unknown: Mapping[str, Predictions]
    known: Mapping[str, Predictions]

    @classmethod
    def of(cls, run: Run, method: str) -> Confusion:
        """The predictions under a method.

        Without rows where the details are not on this machine.
        """
        unknown: dict[str, Predictions] = {}
        for split in run.splits:
            outcomes = _Outcomes(run, "open_set", split.name, method, "taken_for")
            for category, of_category in outcomes.predictions("tp_u", "fn_missed").items():
                unknown.setdefault(category, Predictions()).add(of_category)
        outcomes = _Outcomes(run, "known_objects", run.id_split or "", method, "kept_as")
        return cls(unknown, outcomes.predictions("flagged", "missed"))

    def table(self, links: GalleryLinks, id_split: str, limit: int) -> LinkedTable | None:
        """The matrix as a table; None without objects.

        Args:
            links: The page's links to the run's images, with the outcomes of the method that the
                report shows.
            id_split: Name of the ID test split.
            limit: Largest number of unknown categories, and of classes.
        """
        if not self.unknown and not self.known:
            return None
        classes = self._most_confused_classes(limit)
        columns = list(classes.shown)
        if classes.others:
            columns.append(f"{classes.others:,} other classes")
        columns += [FLAGGED, MISSED]

        unknown = _Rows(self.unknown, classes.shown, classes.others, links, View())
        known = _Rows(self.known, classes.shown, classes.others, links, View(id_split))
        known_shown = [name for name in classes.shown if name in self.known]
        rows = [
            *unknown.of(
                "Unknown, in OOD images",
                self._most_confused_unknown(limit),
                "other unknown categories",
            ),
            *known.of("Known, in ID test images", known_shown, "other known classes"),
        ]
        return LinkedTable(self._caption(), "True category", ["objects", *columns], rows)

    def _most_confused_unknown(self, limit: int) -> list[str]:
        """The unknown categories with most misclassified objects, then with most objects."""

        def order(category: str) -> tuple[int, int, str]:
            predictions = self.unknown[category]
            return (-predictions.kept_as.total(), -predictions.objects, category)

        return sorted(self.unknown, key=order)[:limit]

    def _most_confused_classes(self, limit: int) -> Classes:
        """The classes with most confusions: of objects with them, and of their own objects."""
        confusions: Counter[str] = Counter()
        for predictions in self.unknown.values():
            confusions.update(predictions.kept_as)
        for category, predictions in self.known.items():
            confusions[category] += predictions.flagged + predictions.missed
            for name, count in predictions.kept_as.items():
                if name != category:
                    confusions[name] += count
                    confusions[category] += count
        most_first = sorted(confusions, key=lambda name: (-confusions[name], name))
        return Classes(tuple(sorted(most_first[:limit])), len(most_first[limit:]))

    def _caption(self) -> str:
        """All outcomes in words."""
        sentences = []
        unknown = _sum(self.unknown.values())
        if unknown.objects:
            sentences.append(
                f"Of {unknown.objects:,} unknown objects, {unknown.flagged:,} are found "
                f"(flagged), {unknown.kept_as.total():,} misclassified and {unknown.missed:,} "
                "missed."
            )
        known = _sum(self.known.values())
        if known.objects:
            correct = 0
            for category, predictions in self.known.items():
                correct += predictions.kept_as[category]
            sentences.append(
                f"Of {known.objects:,} known objects, {correct:,} are correct, "
                f"{known.kept_as.total() - correct:,} detected as a wrong class, "
                f"{known.flagged:,} flagged as unknown and {known.missed:,} missed."
            )
        return " ".join(sentences)


@dataclass(frozen=True)
class Classes:
    """The classes that are columns.

    Args:
        shown: The columns, by name.
        others: Number of classes that share one column.
    """

    shown: tuple[str, ...]
    others: int


@dataclass(frozen=True)
class _Rows:
    """Makes the rows of unknown or of known categories.

    Args:
        predictions: Category → its predictions.
        classes: The classes that are columns.
        others: Number of classes that share one column.
        links: Links to the run's images.
        view: The split.
    """

    predictions: Mapping[str, Predictions]
    classes: Sequence[str]
    others: int
    links: GalleryLinks
    view: View

    def of(self, title: str, categories: Sequence[str], others: str) -> list[Row]:
        """One row per category, and one for all others.

        Args:
            title: Title of the rows.
            categories: The categories of the rows.
            others: What the others are called.
        """
        rows = []
        for category in categories:
            rows.append(Row(category, self._cells(category, self.predictions[category])))
        left_out = [name for name in self.predictions if name not in categories]
        if left_out:
            together = _sum(self.predictions[name] for name in left_out)
            rows.append(Row(f"{len(left_out):,} {others}", self._cells("", together)))
        if rows:
            rows[0] = replace(rows[0], begins=title)
        return rows

    def _cells(self, category: str, predictions: Predictions) -> list[Cell]:
        """The cells of a row.

        Args:
            category: The category; "" for several, whose numbers are no links.
            predictions: Of its objects.
        """
        objects = predictions.objects
        is_known = bool(self.view.split)
        cells = [Cell(f"{objects:,}", self._href(category, "", (), objects))]
        for name in self.classes:
            is_right = is_known and name == category
            outcome = "misclassified"
            if is_known:
                outcome = "correct" if is_right else "wrong class"
            count = predictions.kept_as[name]
            href = self._href(category, name, (outcome,), count)
            cells.append(_cell(count, objects, href, is_right=is_right))
        if self.others:
            shown = sum(predictions.kept_as[name] for name in self.classes)
            cells.append(_cell(predictions.kept_as.total() - shown, objects, ""))
        outcome = "flagged as unknown" if is_known else "found"
        href = self._href(category, "", (outcome,), predictions.flagged)
        cells.append(_cell(predictions.flagged, objects, href, is_right=not is_known))
        href = self._href(category, "", ("missed",), predictions.missed)
        cells.append(_cell(predictions.missed, objects, href))
        return cells

    def _href(self, category: str, predicted: str, outcomes: Sequence[str], count: int) -> str:
        """The address of the images behind a number; "" for 0, and for several categories."""
        if not count or not category:
            return ""
        view = replace(
            self.view, category=category, predicted=predicted, outcomes=outcomes, count=count
        )
        return self.links.to(view)


def _cell(count: int, objects: int, href: str, *, is_right: bool = False) -> Cell:
    """A number of objects, of all objects of the row."""
    if not count:
        return Cell("", is_right=is_right)
    return Cell(f"{count:,}", href, count / objects, is_right)


def _sum(parts: Iterable[Predictions]) -> Predictions:
    """The predictions of several categories."""
    total = Predictions()
    for predictions in parts:
        total.add(predictions)
    return total
