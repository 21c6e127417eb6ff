"""Extensions that the docs explain work in a project's folder of extensions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import EXAMPLES, Page

ROOT = Path(__file__).parents[2]
PLACED = re.compile(r"^# (extensions/\S+\.py)\n")
ROTATED = "image,name,conf,cx,cy,w,h,angle\nb.jpg,rocket,0.5,60,50,6,2,90\n"
ROWS = "file,xmin,ymin,xmax,ymax,category\na.jpg,10,20,110,220,kangaroo\n"

#: Uses all that was added, in one process, as loading PyTorch takes longer than the rest.
USE = """
import json, sys
import numpy as np, torch
from PIL import Image
from torchvision.models import resnet18
from farther import datasets, detectors, methods
from farther.datasets.ingest import ingest
from farther.metrics.open_set.outcomes import OpenSetSplit
from farther.metrics.user_defined import METRICS, Case, create_all
from farther.errors import DataError
from farther.projects import recognise, recognise_detector
from farther.tables import Objects, Regions
from pathlib import Path

Path("mine/test").mkdir(parents=True)
for name in ("a", "b"):
    Image.new("RGB", (320, 240), "khaki").save(f"mine/test/{name}.jpg")
Path("mine/test.csv").write_text(CSV + "b.jpg,0,0,50,60,rocket\\n")
ingest(datasets.create(format="boxes_csv", root="mine"), "mine", "tables")
objects = Objects.read("tables/test/objects.parquet")

Path("rotated.csv").write_text(ROTATED)
recognised = recognise_detector(Path("rotated.csv"), recognise(Path("mine")))
reader = detectors.of_entry(recognised.entry)
(source,) = reader.sources()
(batch,) = reader.batches(source)
Path("rotated.csv").write_text(ROTATED.replace("90", "ninety"))
try:
    list(reader.batches(source))
except DataError as error:
    refused = [error.row, str(error)]

torch.manual_seed(0)
torch.save(resnet18(num_classes=3).state_dict(), "resnet18.pth")
detector = detectors.create(
    "resnet18", weights="resnet18.pth", classes=["x", "y", "z"], side=64, device="cpu"
)
found = detector.detect(["mine/test/a.jpg", "mine/test/b.jpg"])

scores = methods.create("margin").fit(found).score(found)

# One region on each object: the first is kept as known.
on = Regions(
    header=found.header,
    image_id=objects.image_id,
    region_id=np.arange(2),
    box=objects.box,
    score=np.array([0.75, 0.25]),
    label=found.label,
    logits=found.logits,
    features=found.features,
)
outcome = OpenSetSplit.of(objects, on).match(np.array([False, True]))
case = Case(found, scores, on, np.array([1.0, 0.0]), 0.5, outcome)
wanted = create_all({"confidence_of_errors": {"least": 0.3}}, taken=["nose"])
logits = found.features @ found.weight.T + found.bias
print(json.dumps({
    "format": recognise(Path("mine")).entry["format"],
    "imported": [recognised.entry["adapter"], *batch.regions.box[0].round(6).tolist()],
    "refused": refused,
    "boxes": objects.box.tolist(),
    "categories": objects.category.tolist(),
    "regions": found.box.tolist(),
    "agree": bool(np.allclose(logits, found.logits, atol=1e-4)),
    "scores": len(scores),
    "figure": wanted["confidence_of_errors"].compute(case),
    "known": METRICS.names(),
}))
"""


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory, commands: Path) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "extensions").mkdir()
    for code in Page("extending.md").blocks("python"):
        place = PLACED.match(code)
        assert place, f"no place is named for: {code[:60]}"
        (folder / place[1]).write_text(code)
    for page, name in (
        ("detectors.md", "resnet18.py"),
        ("extending.md", "boxes_csv.py"),
        ("extending.md", "rotated_csv.py"),
    ):
        assert f"](examples/{name})" in Page(page).text
        shutil.copy(EXAMPLES / name, folder / "extensions")
    (method,) = [code for code in Page("methods.md").blocks("python") if "@register(" in code]
    (folder / "extensions/scores.py").write_text(method)
    (folder / "use.py").write_text(f"CSV = {ROWS!r}\nROTATED = {ROTATED!r}\n{USE}")
    command = [commands / "python", "use.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_dataset_format_gives_the_tables_of_its_rows(used):
    assert used["boxes"] == [[10, 20, 110, 220], [0, 0, 50, 60]]
    assert used["categories"] == ["kangaroo", "rocket"]


def test_the_dataset_format_and_the_imported_format_are_recognised(used):
    assert used["format"] == "boxes_csv"
    assert used["imported"] == ["rotated_csv", 59, 47, 61, 53]


def test_a_damaged_row_of_the_imported_format_is_named(used):
    row, message = used["refused"]
    assert row == 2
    assert "rotated.csv: row 2: could not convert string to float: 'ninety'" in message


def test_the_adapter_gives_regions_whose_last_layer_fits(used):
    assert used["regions"] == [[0, 0, 320, 240]] * 2
    assert used["agree"]


def test_the_method_scores_what_the_adapter_found(used):
    assert used["scores"] == 2


def test_the_metric_is_computed_from_what_became_of_the_objects(used):
    assert used["known"] == ["confidence_of_errors"]
    assert used["figure"] == 0.75
