import json
import runpy
from pathlib import Path

import pytest
from PIL import Image

from farther.errors import ParameterError

STAGES = Path(__file__).parents[2] / "stages"


@pytest.fixture
def main(tmp_path, monkeypatch):
    """The stage's function, in a project with one dataset of one image."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(STAGES))
    Path("pets/val2017").mkdir(parents=True)
    Image.new("RGB", (30, 20)).save("pets/val2017/1.jpg")
    content = {
        "images": [{"id": 1, "file_name": "1.jpg"}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}],
    }
    Path("pets/annotations").mkdir()
    Path("pets/annotations/instances_val2017.json").write_text(json.dumps(content), encoding="utf-8")
    Path("params.yaml").write_text("datasets: {pets: {format: coco, root: pets}}\n", encoding="utf-8")
    return runpy.run_path(str(STAGES / "ingest.py"))["main"]


def test_the_stage_writes_tables_and_counts(main):
    main("pets")
    assert Path("artifacts/tables/pets/val2017/images.parquet").exists()
    assert Path("artifacts/tables/pets/val2017/objects.parquet").exists()
    counts = json.loads(Path("artifacts/counts/ingest/pets.json").read_text())["val2017"]
    assert counts == {"images": 1, "objects": 1, "categories": 1, "warnings": 0}


def test_a_dataset_that_params_do_not_name_is_an_error(main):
    with pytest.raises(ParameterError, match=r"no 'datasets.dogs'. Known here: pets"):
        main("dogs")
