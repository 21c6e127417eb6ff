"""Two sets of metrics side by side: what they are read from, how they differ, and whether by more than chance."""

from farther.command.comparison.changes import Change, changes
from farther.command.comparison.sides import Side, open_side
from farther.command.comparison.significance import compared_methods, tested_changes

__all__ = ["Change", "Side", "changes", "compared_methods", "open_side", "tested_changes"]
