"""Division of an ID dataset's classes into known and unknown ones, for open-set recognition."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import field

from pydantic import field_validator
from pydantic.dataclasses import dataclass

from farther.errors import LISTED, ParameterError
from farther.naming.registry import STRICT, Parameters
from farther.tables.files import digest


@dataclass(config=STRICT, kw_only=True)
class Division(Parameters):
    """Division of the ID dataset's classes into known and unknown ones.

    Images of known classes are the ID splits. Images of unknown classes are in no ID split, and may
    be an OOD split of the same dataset (Scheirer et al. 2013, doi:10.1109/TPAMI.2012.256; OpenOOD,
    Section 2.2).

    Args:
        known: Number of known classes, which `seed` draws; or their names.
        seed: Draws the known classes: those whose names have the smallest digests together with the
            seed. The same classes are drawn on every machine and by every version of the libraries.
    """

    known: int | tuple[str, ...]
    seed: int | None = field(default=None)

    @field_validator("known", mode="before")
    @classmethod
    def _as_names(cls, known: object) -> object:
        """A list's names as text: YAML reads the names of digits, [0, 1, 2], as numbers."""
        if isinstance(known, int) and not isinstance(known, bool):
            return known
        if not isinstance(known, (list, tuple)):
            raise ValueError("expected the number of known classes, or a list of their names")
        names = []
        for name in known:
            is_number = isinstance(name, int) and not isinstance(name, bool)
            names.append(str(name) if is_number else name)
        return tuple(names)

    def __post_init__(self) -> None:
        if isinstance(self.known, int):
            if self.known < 1:
                raise ValueError(
                    f"known: {self.known} leaves no known class; write a number from 1 on"
                )
            if self.seed is None:
                raise ValueError(
                    f"seed: give the seed that draws {self.known} classes, as in seed: 1"
                )
            return
        if not self.known:
            raise ValueError(
                "known: an empty list leaves no known class; write the names of the known classes"
            )
        if self.seed is not None:
            raise ValueError("seed: it draws nothing where 'known' lists the classes; leave it out")
        for name in self.known:
            if self.known.count(name) > 1:
                raise ValueError(f"known: {name!r} is listed twice")

    def known_classes(self, classes: Sequence[str]) -> tuple[str, ...]:
        """The known classes, in the order of `classes`.

        Args:
            classes: All classes of the dataset.

        Raises:
            ParameterError: a listed name is not a class, or no class would be unknown.
        """
        if isinstance(self.known, int):
            count = self.known
        else:
            count = len(self.known)
            _refuse_absent(self.known, classes)
        if count > len(classes):
            raise ParameterError(f"division: known: {count} classes, but there are {len(classes)}")
        if count == len(classes):
            raise ParameterError(
                f"division: known: all {count} classes are known, which leaves no unknown class"
            )

        if isinstance(self.known, int):
            known = set(self._drawn(count, classes))
        else:
            known = set(self.known)
        return tuple(name for name in classes if name in known)

    def _drawn(self, count: int, classes: Sequence[str]) -> list[str]:
        """The classes whose names have the smallest digests together with the seed."""
        seed = str(self.seed)

        def digest_with_seed(name: str) -> str:
            return digest(seed, name)

        return heapq.nsmallest(count, classes, key=digest_with_seed)


def _refuse_absent(known: Sequence[str], classes: Sequence[str]) -> None:
    for name in known:
        if name in classes:
            continue
        listed = ", ".join(classes[:LISTED])
        if len(classes) > LISTED:
            listed = f"{listed}, …"
        raise ParameterError(f"division: known: {name!r} is not a class. Classes: {listed}")
