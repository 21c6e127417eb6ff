"""The session of a reviewer: the queue of images, decisions, and agreement with others."""

from __future__ import annotations

import threading
from dataclasses import asdict
from io import FileIO
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic.dataclasses import dataclass

from farther.curation import (
    CHOICES,
    UNDO,
    Decision,
    DecisionsFile,
    ImageKey,
    joint_decisions,
    time_after,
    votes,
    why,
)
from farther.curation.decisions import IMAGE
from farther.errors import ParameterError, shorten
from farther.printable import printable_texts
from farther.registry import STRICT
from farther.review.agreement import agreements
from farther.review.catalogue import Catalogue
from farther.tables.annotations import label_of

#: Least suspicion of suspicious images.
SUSPICIOUS = 0.3

#: Conditions of the states and keys of the orders of `Filters`.
STATES = {
    "undecided": ~pl.col("mine"),
    "decided": pl.col("mine"),
    "new": ~pl.col("decided"),
    "disagreed": pl.col("disagree"),
}
ORDERS = {"suspicion": -pl.col("queue"), "similarity": pl.col("margin"), "table": pl.col("image")}


@dataclass(config=STRICT, kw_only=True)
class Filters:
    """Filters and order of the queue; "" filters nothing.

    Args:
        split: Current split.
        fate: Current fate: `near`, `far`, `farther`, `removed`.
        rule: Rule that decided on the image.
        state: `undecided` or `decided` by the reviewer; `new`: without any decision; `disagreed`:
            reviewers differ.
        suspicious: "yes" for images with a detection that suggests an unlabelled object.
        image: Text in the image's name.
        order: `suspicion`: most suspicious first; `similarity`: most doubtful distance first;
            `table`: dataset order.
    """

    split: str = ""
    fate: str = ""
    rule: str = ""
    state: Literal["", "undecided", "decided", "new", "disagreed"] = ""
    suspicious: Literal["", "yes"] = ""
    image: str = ""
    order: Literal["suspicion", "similarity", "table"] = "suspicion"


class Session:
    """A reviewer's view of a benchmark; safe to use from several threads. Other programs may append to the file, too.

    Raises:
        DataError: the file is damaged or contains a decision on an unknown image or class, or the
            reviewer's name is invalid.
    """

    def __init__(self, catalogue: Catalogue, file: DecisionsFile, reviewer: str):
        self.catalogue, self.file, self.reviewer = catalogue, file, reviewer
        Decision(time_after(None), reviewer, "", "", "", "keep")
        self._lock = threading.RLock()
        self._by_rules = catalogue.with_split(catalogue.frame)
        self._read()

    def filters(self) -> dict[str, list[list[Any]]]:
        """Values of each filter and their labels, with the number of images of each rule."""
        fates = self.catalogue.fates
        return {
            "split": [[name, name] for name in self.catalogue.benchmark.splits],
            "fate": [
                [fate, fate]
                for fate in np.unique([*fates.fate, *self.catalogue.kept, "removed"]).tolist()
            ],
            "rule": [
                [rule, f"{rule} ({count:,})"]
                for rule, count in fates.frame.group_by("rule").len().sort("rule").iter_rows()
            ],
        }

    def queue(self, filters: Filters) -> list[int]:
        """Rows of the images that pass the filters, in order."""
        with self._lock:
            self._refresh()
            passes = [
                pl.col(name) == value
                for name in ("split", "fate", "rule")
                if (value := getattr(filters, name))
            ]
            if filters.suspicious:
                passes.append(pl.col("suspicion") >= SUSPICIOUS)
            if filters.state:
                passes.append(STATES[filters.state])
            if filters.image:
                passes.append(pl.col("image_id").str.contains(filters.image, literal=True))
            now = self._decided.select(
                "image", "decided", "mine", "disagree", fate_now="fate", split_now="split"
            )
            images = self._by_rules.join(
                now, on="image", how="left", maintain_order="left"
            ).with_columns(
                pl.col("decided", "mine", "disagree").fill_null(value=False),
                fate=pl.coalesce("fate_now", "fate"),
                split=pl.coalesce("split_now", "split"),
            )
            found = images.filter(*passes).sort(
                ORDERS[filters.order], nulls_last=True, maintain_order=True
            )
            return found["image"].to_list()

    def image(self, row: int) -> dict[str, Any]:
        """Everything that the page shows of an image; ParameterError if the row is out of range."""
        with self._lock:
            self._refresh()
            catalogue, key = self.catalogue, self.catalogue.key(row)
            images, current = catalogue.images, self._votes.filter(image=row).to_dicts()
            mine = next((vote for vote in current if vote["reviewer"] == self.reviewer), None)
            # Others' decisions, shown earlier, would influence the reviewer and make agreement
            # meaningless.
            by_rules = self._by_rules.row(row, named=True)
            joint = (
                self._decided.row(by_predicate=pl.col("image") == row, named=True) if mine else None
            )
            shown = joint or by_rules
            others = [_shown(vote) for vote in current if vote is not mine]
            about = {
                "row": row,
                **key._asdict(),
                "file": images.file[row],
                "width": int(images.width[row]),
                "height": int(images.height[row]),
                "fate": catalogue.words.get(shown["fate"], shown["fate"]),
                "split": shown["split"],
                "decided": f"{joint['decision']}, by {joint['reviewers']}"
                if joint and joint["reviewers"]
                else "",
                "by_rules": f"{catalogue.words.get(by_rules['fate'], by_rules['fate'])}; {why(catalogue.fates, row)}",
                "choices": self._choices(row),
                "labels": self._labels(row),
                "detections": self._detections(row),
                "suspicious": bool(catalogue.suspicion[row] >= SUSPICIOUS),
                "similarity": _similarity(by_rules),
                "mine": None if mine is None else _shown(mine),
                "others": others if mine else [],
                "hidden": 0 if mine else len(others),
                "disagree": bool(joint and joint["disagree"]),
            }
        return dict(printable_texts(about))

    def decide(self, row: int, decision: str, id_class: str = "", note: str = "") -> None:
        """Writes a decision, unless it repeats the reviewer's last one on the image: a page may send it twice."""
        if decision not in self._choices(row):
            raise ParameterError(
                f"expected one of {', '.join(self._choices(row))}, found {shorten(decision)}"
            )
        if id_class and id_class not in self.catalogue.id_classes:
            raise ParameterError(
                f"{id_class!r} is not an ID class. Known: {', '.join(self.catalogue.id_classes)}"
            )
        with self._lock, self.file.locked() as opened:
            self._refresh()
            key = self.catalogue.key(row)
            said = {
                "image": row,
                "reviewer": self.reviewer,
                "decision": decision,
                "id_class": id_class,
                "note": note,
            }
            if not self._votes.filter(**said).height:
                self._append(opened, key, decision, id_class, note)

    def undo(self, expected: str) -> int:
        """Undoes the reviewer's last decision; returns the row of its image."""
        with self._lock, self.file.locked() as opened:
            self._refresh()
            latest = self._decisions.latest(self.reviewer)
            if latest is None or latest.time.isoformat() != expected:
                raise ParameterError("this decision was already undone, or another one followed it")
            self._append(opened, latest.image, UNDO)
            return self.catalogue.row(latest.image)

    def summary(self) -> dict[str, Any]:
        """Progress, the decision that `undo` would undo, and agreement of the reviewers."""
        with self._lock:
            self._refresh()
            latest = self._decisions.latest(self.reviewer)
            counts = dict(self._votes.group_by("reviewer").len().sort("reviewer").iter_rows())
            return {
                "benchmark": self.catalogue.name,
                "reviewer": self.reviewer,
                "run": self.catalogue.run,
                "images": len(self.catalogue),
                "mine": counts.get(self.reviewer, 0),
                "anyone": self._decided.height,
                "disagreements": int(self._decided["disagree"].sum()),
                "undecided": self._decided.filter(reviewers="").height,
                "reviewers": [[name, count] for name, count in counts.items()],
                "agreement": [asdict(one) for one in agreements(self._votes)],
                "undo": None
                if latest is None
                else {"time": latest.time.isoformat(), "text": str(latest)},
            }

    def _read(self) -> None:
        """Reads the whole file; a damaged one stops the session from showing or writing anything."""
        state, decisions = self.file.state(), self.file.read()
        catalogue = self.catalogue
        decisions.check(catalogue.fates.frame.select(IMAGE), catalogue.id_classes)
        self._decisions, self._state = decisions, state
        self._votes = votes(decisions, catalogue.fates, catalogue.kept)
        joint = joint_decisions(self._votes)
        mine = self._votes.filter(reviewer=self.reviewer)["image"]
        of_joint = joint.select(
            "fate",
            "reviewers",
            "disagree",
            decision="rule",
            mine=pl.col("image").is_in(mine.implode()),
        )
        decided = (
            self._by_rules[joint["image"]]
            .select(*IMAGE, "image", by_rules="fate")
            .with_columns(of_joint)
        )
        fate = pl.when(pl.col("fate") != "").then("fate").otherwise("by_rules")
        self._decided = catalogue.with_split(decided.with_columns(fate=fate, decided=True))

    def _refresh(self) -> None:
        """Rereads the file if another program has written to it."""
        if self.file.state() != self._state:
            self._read()

    def _append(
        self, opened: FileIO, key: ImageKey, decision: str, id_class: str = "", note: str = ""
    ) -> None:
        time = time_after(self._decisions.last_time(self.reviewer))
        self.file.append(opened, Decision(time, self.reviewer, *key, decision, id_class, note))
        self._read()

    def _choices(self, row: int) -> list[str]:
        self.catalogue.key(row)
        farther = self.catalogue.kept[row] == "farther"
        return ["keep", "remove"] if farther else list(CHOICES)

    def _labels(self, row: int) -> list[dict[str, Any]]:
        objects, decider = self.catalogue.objects_of(row), self.catalogue.fates.object_id[row]
        columns = (objects.box, objects.category, objects.is_crowd, objects.object_id)
        return [
            {
                "box": _edges(box),
                "name": label_of(name, is_crowd=is_crowd),
                "decides": bool(number == decider),
            }
            for box, name, is_crowd, number in zip(*columns, strict=True)
        ]

    def _detections(self, row: int) -> list[dict[str, Any]]:
        found, suspicion = self.catalogue.detections_of(row), self.catalogue.suspicion[row]
        return [
            {
                "box": _edges(found.box[one]),
                "name": found.name[one],
                "score": round(float(found.score[one]), 3),
                "unlabelled": round(float(found.unlabelled[one]), 3),
                "suspect": bool(one == 0 and suspicion >= SUSPICIOUS),
            }
            for one in range(len(found))
        ]


def _similarity(image: dict[str, Any]) -> dict[str, Any] | None:
    if image["similarity"] is None:
        return None
    return {
        "similarity": round(image["similarity"], 3),
        **{name: image[name] for name in ("id_class", "suggested")},
    }


def _edges(box: np.ndarray) -> list[float]:
    return [round(float(edge), 1) for edge in box]


def _shown(decision: dict[str, Any]) -> dict[str, str]:
    return {name: decision[name] for name in ("reviewer", "decision", "id_class", "note")}
