"""FindMeIfYouCan as its authors published it: Parquet, one configuration per split (`coco_far_voc`)."""

from __future__ import annotations

from itertools import chain
from typing import Any, ClassVar

from pydantic.dataclasses import dataclass

from farther.datasets.base import register
from farther.datasets.huggingface import HuggingFace
from farther.datasets.huggingface_files import data_files, split_of
from farther.datasets.records import Record
from farther.errors import shorten
from farther.registry import STRICT
from farther.tables.folders import listed

IDS = ("id", "ids", "category_id", "category_ids")
NAMES = ("name", "names")


@register("fmiyc")
@dataclass(config=STRICT, kw_only=True)
class FMIYC(HuggingFace):
    """The published FindMeIfYouCan benchmark (`CEAai/FindMeIfYouCan`), and datasets with its columns.

    A configuration is a subset: those of `README.md`, else each folder with Parquet files. Columns:
    `image`, `file_name`, `image_id`, `height`, `width`, `dataset_origin`, `distance_category`,
    `objects` (id, area, bbox as x, y, width, height, category_id) and `categories`. Origin and
    distance are not read: the configuration's name gives both.

    The names in `categories` belong to the ids beside them; where there are none, to the objects,
    one each. Errors, beside those of the format `huggingface`: an object whose class has no name; a
    `category_id` with two names; two with one name.

    Args:
        categories: Names by `category_id` instead of the column's.
        See `farther.datasets.huggingface.HuggingFace` for the others.
    """

    SOURCE: ClassVar[str] = "huggingface.co/datasets/CEAai/FindMeIfYouCan"

    def absent_subsets(self) -> dict[str, str]:
        """Configurations of `README.md` of which no file is there; see `Reader`."""
        configs = self._configurations()
        if self.subset_names or self.files or not configs:
            return {}
        present = self._shards()
        return {name: "README.md" for name in configs if name not in present}

    def _shards(self) -> dict[str, list[str]]:
        """Files of each configuration, within the root."""
        if self.files:
            return self._chosen()
        configs = self._configurations()
        if configs:
            by_split = {name: data_files(config) for name, config in configs.items()}
            return self._matching(
                {name: list(chain(*files.values())) for name, files in by_split.items()}
            )
        shards: dict[str, list[str]] = {}
        for path in listed(self.root, "**/*.parquet"):
            inner = path.relative_to(self.root)
            name = inner.parts[0] if inner.parts[:-1] not in ((), ("data",)) else split_of(inner)
            shards.setdefault(name, []).append(inner.as_posix())
        return shards

    def _described(self) -> None:
        """Nothing: `README.md` describes each configuration by itself, and here each is a subset."""

    def _classes(self, row: Record, records: list[Record], names: list[str]) -> list[str]:
        """Name of the class of each object of a row."""
        if self.categories:
            return super()._classes(row, records, names)
        numbers = [record.integer("category_id") for record in records]
        ids, called = _columns(row, IDS), _columns(row, NAMES)
        if ids is None and called is not None and len(called) == len(numbers):
            ids = numbers
        if called is None or ids is None or len(ids) != len(called):
            found = shorten(row.values.get("categories"))
            problem = f"expected names with ids, or a name for each of {len(numbers)} objects, found {found}"
            raise row.error(f"{problem}; parameter 'categories' gives them", "categories")
        known, numbered = dict[Any, str](), dict[str, Any]()
        for number, name in zip(ids, called, strict=True):
            if not isinstance(name, str) or not name or known.setdefault(number, name) != name:
                raise row.error(
                    f"the class {number!r} is called {name!r} and {known.get(number)!r}",
                    "categories",
                )
            if numbered.setdefault(name, number) != number:
                problem = f"the classes {numbered[name]!r} and {number!r} are both called {name!r}"
                raise row.error(problem, "categories")
        for record, number in zip(records, numbers, strict=True):
            if number not in known:
                raise record.error(
                    f"no category has the id {number}; known: {shorten(sorted(known))}",
                    "category_id",
                )
        return [known[number] for number in numbers]


def _columns(row: Record, fields: tuple[str, ...]) -> list[Any] | None:
    """A field of `categories`, which is a list of records or a record of lists; None where it has none."""
    value = row.values.get("categories")
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        value = {key: [item.get(key) for item in value] for key in (value[0] if value else {})}
    if not isinstance(value, dict):
        return None
    return next((value[field] for field in fields if isinstance(value.get(field), list)), None)
