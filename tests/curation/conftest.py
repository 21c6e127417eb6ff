"""The rules and the ingested tables of the benchmark of photos."""

from pathlib import Path

import pytest
from tests.curation.photos import CATEGORIES, PARENTS, RULES
from tests.support.labelled import labelled, write_tables

from farther.curation import TablesFolder
from farther.tables.documents import write_json


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def ingested(
    folder: Path, dataset: str, categories_by_image: dict[str, list[str]], subset: str = "val"
) -> None:
    write_tables(folder / dataset / subset, labelled(dataset, categories_by_image))
    write_json(folder / dataset / "categories.json", {"categories": CATEGORIES, "parents": PARENTS})


@pytest.fixture
def tables(tmp_path: Path) -> TablesFolder:
    folder = tmp_path / "tables"
    ingested(folder, "photos", {"a": ["Leopard"], "b": ["Kite"], "c": ["Cat"]})
    ingested(folder, "drawings", {"x": ["Kite"], "y": ["Otter"]})
    ingested(folder, "id", {"t": ["cat"]})
    return TablesFolder(folder)
