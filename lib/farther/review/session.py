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
from farther.registry import STRICT
from farther.review.agreement import agreements
from farther.review.catalogue import Catalogue

#: Least suspicion of suspicious images.
SUSPICIOUS = 0.3


@dataclass(config=STRICT, kw_only=True)
class Filters:
    """Filters and order of the queue; "" filters nothing.

    Args:
        split: Current split.
        fate: Current fate: `near`, `far`, `farther`, `removed`.
        rule: Rule that decided on the image.
        state: `undecided` or `decided` by the reviewer; `new`: without any decision; `disagreed`: reviewers differ.
        suspicious: "yes" for images with a detection that suggests an unlabelled object.
        image: Text in the image's name.
        order: `suspicion`: most suspicious first; `similarity`: most doubtful distance first; `table`: dataset order.
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
        DataError: the file is damaged or contains a decision on an unknown image or class, or the reviewer's name is
            invalid.
    """

    def __init__(self, catalogue: Catalogue, file: DecisionsFile, reviewer: str):
        self.catalogue, self.file, self.reviewer = catalogue, file, reviewer
        Decision(time_after(None), reviewer, "", "", "", "keep")
        self._lock = threading.RLock()
        self._read()

    def filters(self) -> dict[str, list[list[Any]]]:
        """Values of each filter and their labels, with the number of images of each rule."""
        fates = self.catalogue.fates
        rules, counts = np.unique(fates.rule.astype(str), return_counts=True)
        return {
            "split": [[name, name] for name in self.catalogue.benchmark.splits],
            "fate": [[fate, fate] for fate in np.unique([*fates.fate, *self.catalogue.kept, "removed"]).tolist()],
            "rule": [
                [rule, f"{rule} ({count:,})"] for rule, count in zip(rules.tolist(), counts.tolist(), strict=True)
            ],
        }

    def queue(self, filters: Filters) -> list[int]:
        """Rows of the images that pass the filters, in order."""
        with self._lock:
            self._refresh()
            catalogue = self.catalogue
            passes = np.ones(len(catalogue), bool)
            if filters.fate:
                passes &= self._fate == filters.fate
            if filters.rule:
                passes &= catalogue.fates.rule == filters.rule
            if filters.suspicious:
                passes &= catalogue.suspicion >= SUSPICIOUS
            if filters.state:
                passes &= self._in_state(filters.state)
            rows = np.flatnonzero(passes).tolist()
            if filters.split:
                rows = [row for row in rows if catalogue.split(row, self._fate[row]) == filters.split]
            if filters.image:
                rows = [row for row in rows if filters.image in catalogue.images.image_id[row]]
            return self._ordered(rows, filters.order)

    def image(self, row: int) -> dict[str, Any]:
        """Everything that the page shows of an image; ParameterError if the row is out of range."""
        with self._lock:
            self._refresh()
            catalogue, key = self.catalogue, self.catalogue.key(row)
            images, current = catalogue.images, self._votes.filter(pl.col("image") == row).to_dicts()
            mine = next((one for one in current if one["reviewer"] == self.reviewer), None)
            # Others' decisions, shown earlier, would influence the reviewer and make agreement meaningless.
            joint = self._joint.get(row) if mine else None
            fate = str(self._fate[row] if mine else catalogue.fates.fate[row])
            others = [_shown(one) for one in current if one is not mine]
            return {
                "row": row,
                **key._asdict(),
                "file": images.file[row],
                "width": int(images.width[row]),
                "height": int(images.height[row]),
                "fate": fate,
                "split": catalogue.split(row, fate),
                "decided": f"{joint['rule']}, by {joint['reviewers']}" if joint and joint["fate"] else "",
                "by_rules": f"{catalogue.fates.fate[row]}; {why(catalogue.fates, row)}",
                "choices": self._choices(row),
                "labels": self._labels(row),
                "detections": self._detections(row),
                "suspicious": bool(catalogue.suspicion[row] >= SUSPICIOUS),
                "similarity": self._similarity(row),
                "mine": None if mine is None else _shown(mine),
                "others": others if mine else [],
                "hidden": 0 if mine else len(others),
                "disagree": bool(joint and joint["disagree"]),
            }

    def decide(self, row: int, decision: str, id_class: str = "", note: str = "") -> None:
        """Writes a decision, unless it repeats the reviewer's last one on the image: a page may send it twice."""
        if decision not in self._choices(row):
            raise ParameterError(f"expected one of {', '.join(self._choices(row))}, found {shorten(decision)}")
        if id_class and id_class not in self.catalogue.id_classes:
            raise ParameterError(f"{id_class!r} is not an ID class. Known: {', '.join(self.catalogue.id_classes)}")
        with self._lock, self.file.locked() as opened:
            self._refresh()
            key = self.catalogue.key(row)
            said = {"image": row, "reviewer": self.reviewer, "decision": decision, "id_class": id_class, "note": note}
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
            joint = self._joint.values()
            counts = dict(self._votes.group_by("reviewer").len().sort("reviewer").iter_rows())
            return {
                "benchmark": self.catalogue.name,
                "reviewer": self.reviewer,
                "run": self.catalogue.run,
                "images": len(self.catalogue),
                "mine": counts.get(self.reviewer, 0),
                "anyone": len(joint),
                "disagreements": sum(one["disagree"] for one in joint),
                "undecided": sum(not one["fate"] for one in joint),
                "reviewers": [[name, count] for name, count in counts.items()],
                "agreement": [asdict(one) for one in agreements(self._votes)],
                "undo": None if latest is None else {"time": latest.time.isoformat(), "text": str(latest)},
            }

    def _read(self) -> None:
        """Reads the whole file; a damaged one stops the session from showing or writing anything."""
        state, decisions = self.file.state(), self.file.read()
        catalogue = self.catalogue
        decisions.check(catalogue.fates.frame.select(IMAGE), catalogue.id_classes)
        self._decisions, self._state = decisions, state
        self._votes = votes(decisions, catalogue.fates, catalogue.kept)
        self._joint = {one["image"]: one for one in joint_decisions(self._votes).iter_rows(named=True)}
        self._fate = catalogue.fates.fate.copy()
        for row, joint in self._joint.items():
            self._fate[row] = joint["fate"] or self._fate[row]

    def _refresh(self) -> None:
        """Rereads the file if another program has written to it."""
        if self.file.state() != self._state:
            self._read()

    def _append(self, opened: FileIO, key: ImageKey, decision: str, id_class: str = "", note: str = "") -> None:
        time = time_after(self._decisions.last_time(self.reviewer))
        self.file.append(opened, Decision(time, self.reviewer, *key, decision, id_class, note))
        self._read()

    def _choices(self, row: int) -> list[str]:
        self.catalogue.key(row)
        farther = self.catalogue.kept[row] == "farther"
        return ["keep", "remove"] if farther else list(CHOICES)

    def _in_state(self, state: str) -> np.ndarray:
        decided = self._votes
        if state == "disagreed":
            return self._mask([row for row, joint in self._joint.items() if joint["disagree"]])
        if state == "new":
            return ~self._mask(decided["image"].to_list())
        mine = self._mask(decided.filter(reviewer=self.reviewer)["image"].to_list())
        return mine if state == "decided" else ~mine

    def _mask(self, rows: list[int]) -> np.ndarray:
        mask = np.zeros(len(self.catalogue), bool)
        mask[rows] = True
        return mask

    def _ordered(self, rows: list[int], order: str) -> list[int]:
        similarity = self.catalogue.similarity
        if order == "suspicion":
            return sorted(rows, key=lambda row: -self.catalogue.queue[row])
        if order == "similarity":
            return sorted(rows, key=lambda row: similarity[row]["margin"] if row in similarity else np.inf)
        return rows

    def _labels(self, row: int) -> list[dict[str, Any]]:
        objects, decider = self.catalogue.objects_of(row), self.catalogue.fates.object_id[row]
        return [
            {
                "box": _edges(objects.box[one]),
                "name": objects.category[one] + (" (group)" if objects.is_crowd[one] else ""),
                "decides": bool(objects.object_id[one] == decider),
            }
            for one in range(len(objects))
        ]

    def _detections(self, row: int) -> list[dict[str, Any]]:
        found, suspicion = self.catalogue.detections, self.catalogue.suspicion[row]
        return [
            {
                "box": _edges(found.box[one]),
                "name": found.name[one],
                "score": round(float(found.score[one]), 3),
                "unlabelled": round(float(found.unlabelled[one]), 3),
                "suspect": bool(place == 0 and suspicion >= SUSPICIOUS),
            }
            for place, one in enumerate(self.catalogue.detections_of(row).tolist())
        ]

    def _similarity(self, row: int) -> dict[str, Any] | None:
        known = self.catalogue.similarity.get(row)
        if known is None:
            return None
        shown = {"id_class": known["id_class"], "suggested": known["suggested"]}
        return {"similarity": round(known["similarity"], 3), **shown}


def _edges(box: np.ndarray) -> list[float]:
    return [round(float(edge), 1) for edge in box]


def _shown(decision: dict[str, Any]) -> dict[str, str]:
    return {name: decision[name] for name in ("reviewer", "decision", "id_class", "note")}
