"""What each dataset calls a class: `tvmonitor` is `tv` is `Television`. The names are data, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from farther.errors import DataError


class ClassNames:
    """Names of classes by dataset.

    Args:
        path: A YAML file: a class a line, and of each what the datasets call it,
            `tv: {voc: [tvmonitor], coco: [tv], openimages: [Television, Computer monitor]}`.

    Attributes:
        path: The file.
        datasets: The datasets that it knows, in the order in which they first occur.

    Raises:
        DataError: the file is absent, is not YAML of this form, or gives a dataset's name to two classes; names file
            and field.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        ...     written = file.write("tv: {voc: [tvmonitor], coco: [tv], openimages: [Television, Computer monitor]}")
        ...     file.flush()
        ...     ClassNames(file.name).same("tvmonitor", "voc", "openimages")
        ('Television', 'Computer monitor')
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._names: dict[str, dict[str, tuple[str, ...]]] = {}
        self._class_of: dict[tuple[str, str], str] = {}
        for name, by_dataset in _read(self.path).items():
            self._add(name, by_dataset)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that the file knows, in the order in which they first occur."""
        return tuple(dict.fromkeys(dataset for dataset, _ in self._class_of))

    def same(self, name: str, dataset: str, other: str) -> tuple[str, ...]:
        """What another dataset calls a class of a dataset; () where it has no such class.

        Upper and lower case are the same in `name`.

        Raises:
            DataError: the file does not know the class.
        """
        key = (dataset, name.casefold())
        if key not in self._class_of:
            raise DataError(f"no class is called {name!r} by {dataset}; add it", file=self.path)
        return self._names[self._class_of[key]].get(other, ())

    def _add(self, name: str, by_dataset: Any) -> None:
        if not isinstance(by_dataset, dict) or not all(map(_is_names, by_dataset.values())):
            problem = f"expected {{dataset: [names]}}, found {by_dataset!r}"
            raise DataError(problem, file=self.path, field=name)
        self._names[name] = {str(dataset): tuple(names) for dataset, names in by_dataset.items()}
        for dataset, names in self._names[name].items():
            for called in names:
                other = self._class_of.setdefault((dataset, called.casefold()), name)
                if other != name:
                    problem = f"{called!r} of {dataset} is {other!r} too; a name belongs to one class"
                    raise DataError(problem, file=self.path, field=name)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("the file does not exist", file=path) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"not YAML: {error}", file=path) from None
    if not isinstance(content, dict):
        raise DataError(f"expected a mapping from classes to names, found {content!r}", file=path)
    return {str(name): by_dataset for name, by_dataset in content.items()}
