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
    reason_of,
    time_after,
    votes,
)
from farther.curation.decisions import IMAGE
from farther.errors import ParameterError, known_names, shorten
from farther.naming.registry import STRICT, Parameters
from farther.review.agreement import agreements
from farther.review.catalogue import Catalogue
from farther.tables.annotations import label_of
from farther.text.printable import printable_texts

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
class Filters(Parameters):
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
    """A reviewer's view of a benchmark; safe to use from several threads.

    Other programs may append to the file, too.

    Args:
        catalogue: The images.
        file: The decisions of all reviewers.
        reviewer: Name of the reviewer.

    Raises:
        DataError: the file is damaged or contains a decision on an unknown image or class, or the
            reviewer's name is invalid.
    """

    def __init__(self, catalogue: Catalogue, file: DecisionsFile, reviewer: str):
        Decision(time_after(None), reviewer, "", "", "", "keep")  # refuses an invalid name
        self.catalogue = catalogue
        self.file = file
        self.reviewer = reviewer
        self._lock = threading.RLock()
        self._by_rules = catalogue.with_split(catalogue.frame)
        self._read()

    def filters(self) -> dict[str, list[list[Any]]]:
        """Values of each filter and their labels, with the number of images of each rule."""
        fates = self.catalogue.fates
        present = np.unique([*fates.fate, *self.catalogue.kept, "removed"]).tolist()
        rules = []
        for rule, count in fates.frame.group_by("rule").len().sort("rule").iter_rows():
            rules.append([rule, f"{rule} ({count:,})"])
        return {
            "split": [[name, name] for name in self.catalogue.benchmark.splits],
            "fate": [[fate, fate] for fate in present],
            "rule": rules,
        }

    def queue(self, filters: Filters) -> list[int]:
        """Rows of the images that pass the filters, in order."""
        with self._lock:
            self._refresh()
            images = self._current_images().filter(*_conditions(filters))
            order = ORDERS[filters.order]
            return images.sort(order, nulls_last=True, maintain_order=True)["image"].to_list()

    def _current_images(self) -> pl.DataFrame:
        """The images with fate and split by decisions, and the state of these."""
        decided = self._decided.select(
            "image", "decided", "mine", "disagree", decided_fate="fate", decided_split="split"
        )
        return self._by_rules.join(
            decided, on="image", how="left", maintain_order="left"
        ).with_columns(
            pl.col("decided", "mine", "disagree").fill_null(value=False),
            fate=pl.coalesce("decided_fate", "fate"),
            split=pl.coalesce("decided_split", "split"),
        )

    def image(self, row: int) -> dict[str, Any]:
        """Everything that the page shows of an image; ParameterError if the row is out of range."""
        with self._lock:
            self._refresh()
            catalogue = self.catalogue
            key = catalogue.key(row)
            by_rules = self._by_rules.row(row, named=True)
            rules_text = (
                f"{catalogue.fate_title(by_rules['fate'])}; {reason_of(catalogue.fates, row)}"
            )
            content = {
                "row": row,
                **key._asdict(),
                "file": catalogue.images.file[row],
                "width": int(catalogue.images.width[row]),
                "height": int(catalogue.images.height[row]),
                "by_rules": rules_text,
                "choices": self._choices(row),
                "labels": self._labels(row),
                "detections": self._detections(row),
                "suspicious": bool(catalogue.suspicion[row] >= SUSPICIOUS),
                "similarity": _similarity(by_rules),
                **self._decisions_on(row, by_rules),
            }
        return dict(printable_texts(content))

    def _decisions_on(self, row: int, by_rules: dict[str, Any]) -> dict[str, Any]:
        """Fate and split of an image, and the decisions on it that the reviewer may see.

        Others' decisions, shown before the reviewer's own, would influence the reviewer and make
        agreement meaningless.
        """
        mine = None
        other_votes = []
        for vote in self._votes.filter(image=row).to_dicts():
            if vote["reviewer"] == self.reviewer:
                mine = vote
            else:
                other_votes.append(_shown_fields(vote))
        if mine is None:
            return {
                "fate": self.catalogue.fate_title(by_rules["fate"]),
                "split": by_rules["split"],
                "decided": "",
                "mine": None,
                "others": [],
                "hidden": len(other_votes),
                "disagree": False,
            }
        joint = self._decided.row(by_predicate=pl.col("image") == row, named=True)
        decided = ""
        if joint["reviewers"]:
            decided = f"{joint['decision']}, by {joint['reviewers']}"
        return {
            "fate": self.catalogue.fate_title(joint["fate"]),
            "split": joint["split"],
            "decided": decided,
            "mine": _shown_fields(mine),
            "others": other_votes,
            "hidden": 0,
            "disagree": bool(joint["disagree"]),
        }

    def decide(self, row: int, decision: str, id_class: str = "", note: str = "") -> None:
        """Writes a decision, unless it repeats the reviewer's last one on the image.

        A page may send it twice.
        """
        choices = self._choices(row)
        if decision not in choices:
            raise ParameterError(f"expected one of {', '.join(choices)}, found {shorten(decision)}")
        if id_class and id_class not in self.catalogue.id_classes:
            raise ParameterError(
                f"{id_class!r} is not an ID class. {known_names(self.catalogue.id_classes)}"
            )
        with self._lock, self.file.locked() as opened:
            self._refresh()
            same_vote = self._votes.filter(
                image=row,
                reviewer=self.reviewer,
                decision=decision,
                id_class=id_class,
                note=note,
            )
            if same_vote.is_empty():
                self._append(opened, self.catalogue.key(row), decision, id_class, note)

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
            undo = None
            if latest is not None:
                undo = {"time": latest.time.isoformat(), "text": str(latest)}
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
                "agreement": [asdict(agreement) for agreement in agreements(self._votes)],
                "undo": undo,
            }

    def _read(self) -> None:
        """Reads the file anew.

        A damaged one stops the session from showing or writing anything.
        """
        state = self.file.state()
        decisions = self.file.read()
        catalogue = self.catalogue
        decisions.check(catalogue.fates.frame.select(IMAGE), catalogue.id_classes)
        self._decisions = decisions
        self._state = state
        self._votes = votes(decisions, catalogue.fates, catalogue.kept)
        self._decided = self._join_votes()

    def _join_votes(self) -> pl.DataFrame:
        """One row per image with a vote: its fate by all reviewers together, and who they are."""
        joint = joint_decisions(self._votes)
        images_of_reviewer = self._votes.filter(reviewer=self.reviewer)["image"]
        columns = joint.select(
            "fate",
            "reviewers",
            "disagree",
            decision="rule",
            mine=pl.col("image").is_in(images_of_reviewer.implode()),
        )
        by_rules = self._by_rules[joint["image"]].select(*IMAGE, "image", by_rules="fate")
        fate = pl.when(pl.col("fate") != "").then("fate").otherwise("by_rules")
        decided = by_rules.with_columns(columns).with_columns(fate=fate, decided=True)
        return self.catalogue.with_split(decided)

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
        if self.catalogue.kept[row] == "farther":
            return ["keep", "remove"]
        return list(CHOICES)

    def _labels(self, row: int) -> list[dict[str, Any]]:
        objects = self.catalogue.objects_of(row)
        deciding_object = self.catalogue.fates.object_id[row]
        labels = []
        for box, category, is_crowd, object_id in zip(
            objects.box, objects.category, objects.is_crowd, objects.object_id, strict=True
        ):
            labels.append(
                {
                    "box": _edges(box),
                    "name": label_of(category, is_crowd=is_crowd),
                    "decides": bool(object_id == deciding_object),
                }
            )
        return labels

    def _detections(self, row: int) -> list[dict[str, Any]]:
        """The detections, the most suspicious first; only that one can be the suspect."""
        detections = self.catalogue.detections_of(row)
        is_suspicious = self.catalogue.suspicion[row] >= SUSPICIOUS
        rows = []
        for number in range(len(detections)):
            rows.append(
                {
                    "box": _edges(detections.box[number]),
                    "name": detections.name[number],
                    "score": round(float(detections.score[number]), 3),
                    "unlabelled": round(float(detections.unlabelled[number]), 3),
                    "suspect": bool(number == 0 and is_suspicious),
                }
            )
        return rows


def _conditions(filters: Filters) -> list[pl.Expr]:
    """Conditions that the images of a queue fulfil."""
    conditions = []
    for name in ("split", "fate", "rule"):
        value = getattr(filters, name)
        if value:
            conditions.append(pl.col(name) == value)
    if filters.suspicious:
        conditions.append(pl.col("suspicion") >= SUSPICIOUS)
    if filters.state:
        conditions.append(STATES[filters.state])
    if filters.image:
        conditions.append(pl.col("image_id").str.contains(filters.image, literal=True))
    return conditions


def _similarity(image: dict[str, Any]) -> dict[str, Any] | None:
    if image["similarity"] is None:
        return None
    return {
        "similarity": round(image["similarity"], 3),
        "id_class": image["id_class"],
        "suggested": image["suggested"],
    }


def _edges(box: np.ndarray) -> list[float]:
    return [round(float(edge), 1) for edge in box]


def _shown_fields(vote: dict[str, Any]) -> dict[str, str]:
    return {name: vote[name] for name in ("reviewer", "decision", "id_class", "note")}
