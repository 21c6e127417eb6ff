"""Terms that parameters of several packages take as values."""

from __future__ import annotations

from typing import Literal

#: "paper" follows the text of a publication; "published-code" reproduces the numbers of its tables,
#: with all that the code published with it does differently.
Protocol = Literal["paper", "published-code"]

#: Distance of an OOD split: its objects resemble those of ID classes, do not resemble them, or are
#: not even of the same domain.
OodDistance = Literal["near", "far", "farther"]

#: Distance of any split; "ID" for a split of the ID dataset itself.
SplitDistance = Literal["ID", "near", "far", "farther"]
