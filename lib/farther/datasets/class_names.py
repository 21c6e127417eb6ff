"""Names of the same class in different datasets: `tvmonitor`, `tv`, `Television`."""

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

    Raises:
        DataError: the file is absent, is not YAML of this form, or gives a dataset's name to two
            classes; names file and field.

    Example:
        >>> import tempfile
        >>> content = "tv: {voc: [tvmonitor], coco: [tv], openimages: [Television, TV set]}"
        >>> with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        ...     _ = file.write(content)
        ...     file.flush()
        ...     ClassNames(file.name).same("tvmonitor", "voc", "openimages")
        ('Television', 'TV set')
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._names: dict[str, dict[str, tuple[str, ...]]] = {}
        self._class_of: dict[tuple[str, str], str] = {}
        content = read_mapping(self.path, "a mapping from classes to names")
        for name, names_by_dataset in content.items():
            self._add(str(name), names_by_dataset)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that the file knows, in the order in which they first occur."""
        return tuple(dict.fromkeys(dataset for dataset, _ in self._class_of))

    def knows(self, name: str, dataset: str) -> bool:
        """True if a class of a dataset has this name; case is ignored."""
        return (dataset, name.casefold()) in self._class_of

    def meaning(self, name: str, dataset: str) -> str:
        """The class that a name means in a dataset, by its name in the file.

        Raises:
            KeyError: `knows` is false.
        """
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

    def _add(self, class_name: str, names_by_dataset: Any) -> None:
        """Adds a class of the file."""
        if not _is_names_by_dataset(names_by_dataset):
            problem = f"expected {{dataset: [names]}}, found {shorten(names_by_dataset)}"
            raise DataError(problem, file=self.path, field=class_name)

        self._names[class_name] = {}
        for dataset, names in names_by_dataset.items():
            self._names[class_name][str(dataset)] = tuple(names)

        for dataset, names in self._names[class_name].items():
            for name in names:
                owner = self._class_of.setdefault((dataset, name.casefold()), class_name)
                if owner != class_name:
                    raise DataError(
                        f"{name!r} of {dataset} is {owner!r} as well; a name belongs to one class",
                        file=self.path,
                        field=class_name,
                    )


def _is_names_by_dataset(value: Any) -> bool:
    """True for a mapping from datasets to lists of non-empty names."""
    if not isinstance(value, dict):
        return False
    return all(are_texts(names) and all(names) for names in value.values())
