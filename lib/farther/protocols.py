"""The two protocols of an evaluation: the formulas of a paper, or those of the code behind it."""

from __future__ import annotations

from typing import Literal

#: "paper" follows the text of a publication; "published-code" reproduces the numbers of its tables,
#: with all that the code published with it does differently.
Protocol = Literal["paper", "published-code"]
