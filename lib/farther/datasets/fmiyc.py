"""FindMeIfYouCan as published: Parquet, one configuration per split (`coco_far_voc`)."""

from __future__ import annotations

from itertools import chain
from typing import Any, ClassVar

from pydantic.dataclasses import dataclass

from farther.datasets.base import register
from farther.datasets.huggingface import HuggingFace
from farther.datasets.huggingface_files import data_files, split_of
from farther.datasets.records import Record
from farther.errors import shorten
from farther.naming.registry import STRICT
from farther.tables.folders import listed

#: Possible fields of `categories` with the ids of the classes, and with their names.
ID_FIELDS = ("id", "ids", "category_id", "category_ids")
NAME_FIELDS = ("name", "names")


@register("fmiyc")
@dataclass(config=STRICT, kw_only=True)
class FMIYC(HuggingFace):
    """The FindMeIfYouCan benchmark (`CEAai/FindMeIfYouCan`), and datasets with its columns.

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
        """Configurations of `README.md` without any file; see `Reader`."""
        configs = self._configurations()
        if self.subset_names or self.files or not configs:
            return {}
        present = self._shards()
        return {name: "README.md" for name in configs if name not in present}

    def _shards(self) -> dict[str, list[str]]:
        """Files of each configuration, within the root."""
        if self.files:
            return self._files_of_parameter()
        configs = self._configurations()
        if configs:
            patterns = {}
            for name, config in configs.items():
                patterns[name] = list(chain(*data_files(config).values()))
            return self._matching(patterns)

        shards: dict[str, list[str]] = {}
        for path in listed(self.root, "**/*.parquet"):
            relative = path.relative_to(self.root)
            folders = relative.parts[:-1]
            name = split_of(relative) if folders in ((), ("data",)) else folders[0]
            shards.setdefault(name, []).append(relative.as_posix())
        return shards

    def _card_features(self) -> None:
        """None: `README.md` describes each configuration by itself, and here each is a subset."""

    def _classes(self, row: Record, records: list[Record], names: list[str]) -> list[str]:
        """Name of the class of each object of a row."""
        if self.categories:
            return super()._classes(row, records, names)
        category_ids = [record.integer("category_id") for record in records]
        name_by_id = _name_by_id(row, category_ids)
        for record, category_id in zip(records, category_ids, strict=True):
            if category_id not in name_by_id:
                raise record.error(
                    f"no category has the id {category_id}; known: {shorten(sorted(name_by_id))}",
                    "category_id",
                )
        return [name_by_id[category_id] for category_id in category_ids]


def _name_by_id(row: Record, category_ids: list[int]) -> dict[Any, str]:
    """Names of the classes by their ids, as the column `categories` of a row gives them.

    Args:
        row: The row.
        category_ids: `category_id` of each object of the row, which names without ids belong to.

    Raises:
        DataError: names and ids do not match, or an id has several names, or a name several ids.
    """
    ids = _field_of_categories(row, ID_FIELDS)
    names = _field_of_categories(row, NAME_FIELDS)
    if ids is None and names is not None and len(names) == len(category_ids):
        ids = category_ids
    if names is None or ids is None or len(ids) != len(names):
        raise row.error(
            f"expected names with ids, or a name for each of {len(category_ids)} objects, found "
            f"{shorten(row.values.get('categories'))}; parameter 'categories' gives them",
            "categories",
        )

    name_by_id: dict[Any, str] = {}
    id_by_name: dict[str, Any] = {}
    for id_, name in zip(ids, names, strict=True):
        is_name = isinstance(name, str) and name
        if not is_name or name_by_id.setdefault(id_, name) != name:
            raise row.error(
                f"the class {id_!r} is called {name!r} and {name_by_id.get(id_)!r}", "categories"
            )
        if id_by_name.setdefault(name, id_) != id_:
            raise row.error(
                f"the classes {id_by_name[name]!r} and {id_!r} are both called {name!r}",
                "categories",
            )
    return name_by_id


def _field_of_categories(row: Record, fields: tuple[str, ...]) -> list[Any] | None:
    """The first of several fields of the column `categories` that is there; None without any.

    The column is a list of records, or a record of lists.
    """
    categories = row.values.get("categories")
    if isinstance(categories, dict):
        for field in fields:
            if isinstance(categories.get(field), list):
                return list(categories[field])
        return None

    is_list_of_records = isinstance(categories, list) and all(
        isinstance(record, dict) for record in categories
    )
    if not is_list_of_records or not categories:
        return None
    for field in fields:
        if field in categories[0]:
            return [record.get(field) for record in categories]
    return None
