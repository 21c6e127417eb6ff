"""One reviewer at work: which image comes next, what was decided, and what the others say."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from farther.curation import (
    UNDO,
    VERDICTS,
    Decision,
    DecisionsFile,
    ImageKey,
    JointDecision,
    joint_decision,
    outcome,
    time_after,
    why,
)
from farther.errors import ParameterError
from farther.registry import STRICT
from farther.tools.review.agreement import agreements
from farther.tools.review.catalogue import Catalogue

#: An image of at least this suspicion counts as suspicious.
SUSPICIOUS = 0.3


@dataclass(config=STRICT, kw_only=True)
class Filters:
    """Which images the queue holds, and in which order. What is "" is not asked for.

    Args:
        split: Images that are now in this split.
        fate: Images of this fate now: `near`, `far`, `farther`, `removed`.
        rule: Images on which this rule decided.
        state: `undecided` and `decided` by the reviewer; `new`: by nobody; `disagreed`: reviewers differ.
        suspicious: Images on which a detector sees what nobody labelled.
        image: Images whose name holds this text.
        order: `suspicion`: the most suspicious first; `similarity`: those whose distance is the most doubtful first;
            `table`: as in the dataset.
    """

    split: str = ""
    fate: str = ""
    rule: str = ""
    state: Literal["", "undecided", "decided", "new", "disagreed"] = ""
    suspicious: Literal["", "yes"] = ""
    image: str = ""
    order: Literal["suspicion", "similarity", "table"] = "suspicion"


class Session:
    """A reviewer's view of a benchmark. Any number of threads may use it.

    Args:
        catalogue: The images.
        file: Where decisions are kept; other programs may write there too.
        reviewer: Who decides.

    Raises:
        DataError: the file is damaged, or has a decision on what the benchmark does not have; or the reviewer's name
            cannot be written in it.
    """

    def __init__(self, catalogue: Catalogue, file: DecisionsFile, reviewer: str):
        self.catalogue, self.file, self.reviewer = catalogue, file, reviewer
        Decision(time_after(None), reviewer, ImageKey("", "", ""), "keep")
        self._lock = threading.RLock()
        self._known = catalogue.known()
        self._read()

    def filters(self) -> dict[str, list[list[Any]]]:
        """What can be asked for, with the number of images of each rule by dataset."""
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
        """The rows of the images that pass the filters, in order."""
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
        """All that the page shows of an image.

        Raises:
            ParameterError: there is no such row.
        """
        with self._lock:
            self._refresh()
            catalogue, key = self.catalogue, self.catalogue.key(row)
            images, standing = catalogue.images, self._decisions.standing.get(key, {})
            mine = standing.get(self.reviewer)
            # Seen before one's own decision, another's would sway it, and agreement would say nothing.
            joint = self._joint.get(key) if mine else None
            fate = str(self._fate[row] if mine else catalogue.fates.fate[row])
            others = [_said(one) for name, one in sorted(standing.items()) if name != self.reviewer]
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
                "mine": None if mine is None else _said(mine),
                "others": others if mine else [],
                "hidden": 0 if mine else len(others),
                "disagree": bool(joint and joint.disagree),
            }

    def decide(self, row: int, decision: str, id_class: str = "", note: str = "") -> None:
        """Writes a decision. What the reviewer said already is not written again: a page may ask twice.

        Raises:
            ParameterError: there is no such row or class, or `near` or `far` where a split takes both.
            DataError: the decision cannot be written in this way.
            FartherError: the disk does not take it.
        """
        if decision not in self._choices(row):
            raise ParameterError(f"expected one of {', '.join(self._choices(row))}, found {decision!r}")
        if id_class and id_class not in self.catalogue.id_classes:
            raise ParameterError(f"{id_class!r} is no ID class. Known: {', '.join(self.catalogue.id_classes)}")
        with self._lock, self.file.locked() as descriptor:
            self._refresh()
            key = self.catalogue.key(row)
            before = self._decisions.standing.get(key, {}).get(self.reviewer)
            if before is None or (before.decision, before.id_class, before.note) != (decision, id_class, note):
                self._append(descriptor, key, decision, id_class, note)

    def undo(self, expected: str) -> int:
        """Takes back the reviewer's last decision.

        Args:
            expected: Its time, as `summary` gave it: a page that asks twice takes back one decision.

        Returns:
            The row of its image.

        Raises:
            ParameterError: the last decision is another one, or there is none.
            FartherError: the disk does not take it.
        """
        with self._lock, self.file.locked() as descriptor:
            self._refresh()
            latest = self._decisions.latest(self.reviewer)
            if latest is None or latest.time.isoformat() != expected:
                raise ParameterError("this decision was already taken back, or another one came after it")
            self._append(descriptor, latest.image, UNDO)
            return self.catalogue.row(latest.image)

    def summary(self) -> dict[str, Any]:
        """Progress, what `undo` would take back, and how far the reviewers agree."""
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
                "undo": None if latest is None else {"time": latest.time.isoformat(), "said": str(latest)},
            }

    def _read(self) -> None:
        """Reads the whole file. While it is damaged, nothing is shown or written."""
        state, decisions = self.file.state(), self.file.read()
        decisions.check(self._known, self.catalogue.id_classes)
        self._decisions, self._state = decisions, state
        self._fate = self.catalogue.fates.fate.copy()
        self._joint: dict[ImageKey, JointDecision] = {}
        self._outcomes: dict[ImageKey, dict[str, str]] = {}
        for key in self._decisions.standing:
            self._settle(key)

    def _refresh(self) -> None:
        """Reads the file again if another program wrote there."""
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
        """Brings an image's fate up to what its reviewers say now."""
        row, said = self.catalogue.row(key), self._decisions.standing.get(key)
        self._fate[row] = self.catalogue.fates.fate[row]
        self._joint.pop(key, None)
        self._outcomes.pop(key, None)
        if said:
            kept = self.catalogue.kept[row]
            joint = self._joint[key] = joint_decision(said, kept)
            self._outcomes[key] = {reviewer: outcome(one, kept) for reviewer, one in said.items()}
            self._fate[row] = joint.fate or self._fate[row]

    def _choices(self, row: int) -> list[str]:
        self.catalogue.key(row)
        farther = self.catalogue.kept[row] == "farther"
        return ["keep", "remove"] if farther else list(VERDICTS)

    def _in_state(self, state: str) -> np.ndarray:
        standing = self._decisions.standing
        if state == "disagreed":
            return self._mask(key for key, joint in self._joint.items() if joint.disagree)
        if state == "new":
            return ~self._mask(standing)
        mine = self._mask(key for key, said in standing.items() if self.reviewer in said)
        return mine if state == "decided" else ~mine

    def _mask(self, keys: Iterable[ImageKey]) -> np.ndarray:
        mask = np.zeros(len(self.catalogue), bool)
        mask[[self.catalogue.row(key) for key in keys]] = True
        return mask

    def _ordered(self, rows: list[int], order: str) -> list[int]:
        similarity = self.catalogue.similarity
        if order == "suspicion":
            by = -self.catalogue.queue[rows]
        elif order == "similarity" and similarity is not None:
            by = similarity.margin[rows]
        else:
            return rows
        return np.array(rows, dtype=np.int64)[np.argsort(by, kind="stable")].tolist()

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
        known = self.catalogue.similarity
        if known is None or np.isnan(known.similarity[row]):
            return None
        return {
            "similarity": round(float(known.similarity[row]), 3),
            "id_class": known.id_class[row],
            "suggested": known.suggested[row],
        }


def _edges(box: np.ndarray) -> list[float]:
    return [round(float(edge), 1) for edge in box]


def _said(decision: Decision) -> dict[str, str]:
    return {
        "reviewer": decision.reviewer,
        "decision": decision.decision,
        "id_class": decision.id_class,
        "note": decision.note,
    }
