"""The session of a reviewer: the queue of images, decisions, and agreement with others."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from farther.curation import (
    CHOICES,
    UNDO,
    Decision,
    DecisionsFile,
    ImageKey,
    JointDecision,
    decided_fate,
    joint_decision,
    time_after,
    why,
)
from farther.errors import ParameterError
from farther.registry import STRICT
from farther.tools.review.agreement import agreements
from farther.tools.review.catalogue import Catalogue

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
        Decision(time_after(None), reviewer, ImageKey("", "", ""), "keep")
        self._lock = threading.RLock()
        self._known = catalogue.known()
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
            images, current = catalogue.images, self._decisions.current.get(key, {})
            mine = current.get(self.reviewer)
            # Others' decisions, shown earlier, would influence the reviewer and make agreement meaningless.
            joint = self._joint.get(key) if mine else None
            fate = str(self._fate[row] if mine else catalogue.fates.fate[row])
            others = [_decision(one) for name, one in sorted(current.items()) if name != self.reviewer]
            return {
                "row": row,
                **key._asdict(),
                "file": images.file[row],
                "width": int(images.width[row]),
                "height": int(images.height[row]),
                "fate": fate,
                "split": catalogue.split(row, fate),
                "decided": f"{joint.rule}, by {joint.reviewers}" if joint and joint.fate else "",
                "by_rules": f"{catalogue.fates.fate[row]}; {why(catalogue.fates, row)}",
                "choices": self._choices(row),
                "labels": self._labels(row),
                "detections": self._detections(row),
                "suspicious": bool(catalogue.suspicion[row] >= SUSPICIOUS),
                "similarity": self._similarity(row),
                "mine": None if mine is None else _decision(mine),
                "others": others if mine else [],
                "hidden": 0 if mine else len(others),
                "disagree": bool(joint and joint.disagree),
            }

    def decide(self, row: int, decision: str, id_class: str = "", note: str = "") -> None:
        """Writes a decision, unless it repeats the reviewer's last one on the image: a page may send it twice.

        Raises:
            ParameterError: the row or class is unknown, or the decision is `near` or `far` where a split takes both.
            DataError: the decision is incomplete or contradictory.
            FartherError: it could not be written to disk.
        """
        if decision not in self._choices(row):
            raise ParameterError(f"expected one of {', '.join(self._choices(row))}, found {decision!r}")
        if id_class and id_class not in self.catalogue.id_classes:
            raise ParameterError(f"{id_class!r} is not an ID class. Known: {', '.join(self.catalogue.id_classes)}")
        with self._lock, self.file.locked() as descriptor:
            self._refresh()
            key = self.catalogue.key(row)
            before = self._decisions.current.get(key, {}).get(self.reviewer)
            if before is None or (before.decision, before.id_class, before.note) != (decision, id_class, note):
                self._append(descriptor, key, decision, id_class, note)

    def undo(self, expected: str) -> int:
        """Undoes the reviewer's last decision; returns the row of its image.

        Args:
            expected: Its time as given by `summary`, so that a request sent twice undoes one decision.

        Raises:
            ParameterError: the last decision is another one, or there is none.
            FartherError: it could not be written to disk.
        """
        with self._lock, self.file.locked() as descriptor:
            self._refresh()
            latest = self._decisions.latest(self.reviewer)
            if latest is None or latest.time.isoformat() != expected:
                raise ParameterError("this decision was already undone, or another one followed it")
            self._append(descriptor, latest.image, UNDO)
            return self.catalogue.row(latest.image)

    def summary(self) -> dict[str, Any]:
        """Progress, the decision that `undo` would undo, and agreement of the reviewers."""
        with self._lock:
            self._refresh()
            latest = self._decisions.latest(self.reviewer)
            outcomes = list(self._outcomes.values())
            counts = {name: sum(name in said for said in outcomes) for name in self._decisions.reviewers()}
            return {
                "benchmark": self.catalogue.name,
                "reviewer": self.reviewer,
                "run": self.catalogue.run,
                "images": len(self.catalogue),
                "mine": counts.get(self.reviewer, 0),
                "anyone": len(outcomes),
                "disagreements": sum(joint.disagree for joint in self._joint.values()),
                "undecided": sum(not joint.fate for joint in self._joint.values()),
                "reviewers": [[name, count] for name, count in counts.items()],
                "agreement": [asdict(one) for one in agreements(outcomes)],
                "undo": None if latest is None else {"time": latest.time.isoformat(), "text": str(latest)},
            }

    def _read(self) -> None:
        """Reads the whole file; a damaged one stops the session from showing or writing anything."""
        state, decisions = self.file.state(), self.file.read()
        decisions.check(self._known, self.catalogue.id_classes)
        self._decisions, self._state = decisions, state
        self._fate = self.catalogue.fates.fate.copy()
        self._joint: dict[ImageKey, JointDecision] = {}
        self._outcomes: dict[ImageKey, dict[str, str]] = {}
        for key in self._decisions.current:
            self._settle(key)

    def _refresh(self) -> None:
        """Rereads the file if another program has written to it."""
        if self.file.state() != self._state:
            self._read()

    def _append(self, descriptor: int, key: ImageKey, decision: str, id_class: str = "", note: str = "") -> None:
        time = time_after(self._decisions.last_time(self.reviewer))
        written = Decision(time, self.reviewer, key, decision, id_class, note)
        self.file.append(descriptor, written)
        self._decisions.add(written, row=len(self._decisions) + 2)
        self._settle(key)
        self._state = self.file.state()

    def _settle(self, key: ImageKey) -> None:
        """Updates an image's fate to the current decisions."""
        row, said = self.catalogue.row(key), self._decisions.current.get(key)
        self._fate[row] = self.catalogue.fates.fate[row]
        self._joint.pop(key, None)
        self._outcomes.pop(key, None)
        if said:
            kept = self.catalogue.kept[row]
            joint = self._joint[key] = joint_decision(said, kept)
            self._outcomes[key] = {reviewer: decided_fate(one, kept) for reviewer, one in said.items()}
            self._fate[row] = joint.fate or self._fate[row]

    def _choices(self, row: int) -> list[str]:
        self.catalogue.key(row)
        farther = self.catalogue.kept[row] == "farther"
        return ["keep", "remove"] if farther else list(CHOICES)

    def _in_state(self, state: str) -> np.ndarray:
        current = self._decisions.current
        if state == "disagreed":
            return self._mask(key for key, joint in self._joint.items() if joint.disagree)
        if state == "new":
            return ~self._mask(current)
        mine = self._mask(key for key, said in current.items() if self.reviewer in said)
        return mine if state == "decided" else ~mine

    def _mask(self, keys: Iterable[ImageKey]) -> np.ndarray:
        mask = np.zeros(len(self.catalogue), bool)
        mask[[self.catalogue.row(key) for key in keys]] = True
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


def _decision(decision: Decision) -> dict[str, str]:
    return {name: getattr(decision, name) for name in ("reviewer", "decision", "id_class", "note")}
