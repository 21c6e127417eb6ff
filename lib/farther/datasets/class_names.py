"""Names of the same class in different datasets: `tvmonitor`, `tv`, `Television`. They are read from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from farther.datasets.records import are_texts, read_mapping
from farther.errors import DataError, shorten


class ClassNames:
    """Names of classes by dataset.

    Args:
        path: A YAML file: one class per line, with its names by dataset,
            `tv: {voc: [tvmonitor], coco: [tv], openimages: [Television, Computer monitor]}`.

    Attributes:
        path: The file.
        datasets: The datasets that it knows, in the order in which they first occur.

    Raises:
        DataError: the file is absent, is not YAML of this form, or gives a dataset's name to two
            classes; names file and field.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        ...     written = file.write(
        ...         "tv: {voc: [tvmonitor], coco: [tv], openimages: [Television, Computer monitor]}"
        ...     )
        ...     file.flush()
        ...     ClassNames(file.name).same("tvmonitor", "voc", "openimages")
        ('Television', 'Computer monitor')
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._names: dict[str, dict[str, tuple[str, ...]]] = {}
        self._class_of: dict[tuple[str, str], str] = {}
        for name, by_dataset in read_mapping(self.path, "a mapping from classes to names").items():
            self._add(str(name), by_dataset)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that the file knows, in the order in which they first occur."""
        return tuple(dict.fromkeys(dataset for dataset, _ in self._class_of))

    def knows(self, name: str, dataset: str) -> bool:
        """True if a class of a dataset has this name; case is ignored."""
        return (dataset, name.casefold()) in self._class_of

    def meaning(self, name: str, dataset: str) -> str:
        """The class, as the file calls it, that a name means in a dataset; a KeyError where `knows` is false."""
        return self._class_of[dataset, name.casefold()]

    def same(self, name: str, dataset: str, other: str) -> tuple[str, ...]:
        """Names in another dataset of a class of a dataset; () if it does not have the class.

        Case is ignored in `name`.

        Raises:
            DataError: the file does not know the class.
        """
        key = (dataset, name.casefold())
        if key not in self._class_of:
            raise DataError(f"{dataset} has no class called {name!r}; add it", file=self.path)
        return self._names[self._class_of[key]].get(other, ())

    def _add(self, name: str, by_dataset: Any) -> None:
        if not isinstance(by_dataset, dict) or not all(
            are_texts(names) and all(names) for names in by_dataset.values()
        ):
            problem = f"expected {{dataset: [names]}}, found {shorten(by_dataset)}"
            raise DataError(problem, file=self.path, field=name)
        self._names[name] = {str(dataset): tuple(names) for dataset, names in by_dataset.items()}
        for dataset, names in self._names[name].items():
            for called in names:
                other = self._class_of.setdefault((dataset, called.casefold()), name)
                if other != name:
                    problem = (
                        f"{called!r} of {dataset} is {other!r} as well; a name belongs to one class"
                    )
                    raise DataError(problem, file=self.path, field=name)
