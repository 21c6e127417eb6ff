"""Distances of a benchmark's splits from the in-distribution (ID) classes."""

from __future__ import annotations

from typing import Literal

#: Distance of an OOD split: its objects resemble those of ID classes, do not resemble them, or are
#: not even of the same domain.
OodDistance = Literal["near", "far", "farther"]

#: Distance of any split; "ID" for a split of the ID dataset itself.
SplitDistance = Literal["ID", "near", "far", "farther"]
