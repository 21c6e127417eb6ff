"""All figures of a run, from files to files."""

import csv
import json

import numpy as np
import pytest

from farther.errors import DataError
from farther.metrics import run
from farther.tables import Images, Objects, Regions, Scores

FIRST, SECOND, NOWHERE = [0, 0, 100, 100], [200, 0, 300, 100], [700, 700, 800, 800]


@pytest.fixture
def files(tmp_path, objects, regions):
    """A run on a benchmark with an ID split and one OOD split, method `msp` that applies and `vim` that does not."""
    files = run.RunFiles("r", "voc", tmp_path)
    id_objects = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    id_regions = regions(("i1", FIRST, 0.9, "cat"), ("i2", FIRST, 0.7, "dog"), ("i2", NOWHERE, 0.1, "dog"))
    ood_objects = objects(("o1", FIRST, "fox"), ("o1", SECOND, "fox"), ("o2", FIRST, "bear"))
    ood_regions = regions(("o1", FIRST, 0.8), ("o1", SECOND, 0.6), ("o2", FIRST, 0.2), ("o2", NOWHERE, 0.3))
    for split, table, found in (("val", id_objects, id_regions), ("test", id_objects, id_regions)):
        write_split(files, split, table, found)
    write_split(files, "far", ood_objects, ood_regions, extra="o3")
    write_json(files.threshold, {"threshold": 0.5, "rule": 0.5})
    write_json(files.fitted("msp") / "method.json", {"name": "msp", "params": {}})
    write_json(files.fitted("msp") / "threshold.json", {"threshold": 0.65})
    write_json(files.fitted("vim") / "method.json", {"name": "vim", "not_applicable": "there are no features"})
    write_scores(files, "msp", "test", id_regions, [0.9, 0.7, 0.1])
    # Shuffled rows: the join is by image and region, not by place.
    write_scores(files, "msp", "far", ood_regions[[3, 1, 0, 2]], [0.3, 0.6, 0.8, 0.2])
    return files


def write_split(files, split, objects, regions, extra=None):
    names = sorted({*objects.image_id, *([extra] if extra else [])})
    count = len(names)
    Images(
        image_id=names,
        dataset=["d"] * count,
        file=names,
        width=np.full(count, 900),
        height=np.full(count, 900),
        digest=["0"] * count,
    ).write(files.images(split))
    objects.write(files.objects(split))
    regions.write(files.regions(split))


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_scores(files, method, split, regions, scores):
    table = Scores(image_id=regions.image_id, region_id=regions.region_id, score=scores)
    table.write(files.scores(method, split))


def evaluate(files, methods=("msp", "vim")):
    return run.evaluate_run(files, methods, ["far"], run.EvaluationSettings())


def test_figures_of_a_case_worked_by_hand(files):
    report = evaluate(files)
    figures = json.loads((files.metrics / "far" / "msp.json").read_text())
    # Above t* = 0.5: ID 0.9 and 0.7; OOD 0.8 (kept: misclassified) and 0.6 (unknown: found); "o2" has nothing.
    assert figures == {"auroc": 0.75, "fpr95": 0.5, "nose": 1 / 3, "ap_u": 1 / 3, "p_u": 1.0, "r_u": 1 / 3}
    detector = json.loads((files.metrics / "detector.json").read_text())
    assert detector["threshold"] == 0.5
    assert (detector["map50"], detector["map"]) == (1, 1)
    # Of the images o1, o2, o3 only the first shows a detection.
    assert detector["no_detection"] == pytest.approx({"test": 0, "far": 2 / 3})
    assert report["methods"]["msp"]["id_regions_kept"] == 1
    assert report["methods"]["msp"]["splits"]["far"]["by_category"]["bear"]["fn_dismissed"] == 1
    assert json.loads(files.evaluation.read_text()) == report


def test_a_method_that_does_not_apply_is_named_with_its_reason_and_has_no_figures(files):
    report = evaluate(files)
    assert report["not_applicable"] == {"vim": "there are no features"}
    assert not (files.metrics / "far" / "vim.json").exists()


def test_a_method_that_is_asked_for_no_longer_leaves_nothing_behind(files):
    evaluate(files)
    evaluate(files, methods=["vim"])
    assert [path.name for path in files.metrics.rglob("*.json")] == ["detector.json"]


def test_curves_have_a_row_a_point(files):
    evaluate(files)
    with (files.plots / "roc.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["x"], row["y"]) for row in rows] == [
        ("0.0", "0.0"),
        ("0.0", "0.5"),
        ("0.5", "0.5"),
        ("0.5", "1.0"),
        ("1.0", "1.0"),
    ]
    assert {(row["split"], row["method"]) for row in rows} == {("far", "msp")}
    assert (files.plots / "pr.csv").read_text() == "split,method,x,y\nfar,msp,0.333333,1.0\n"


def test_the_same_inputs_give_the_same_bytes(files):
    evaluate(files)
    before = {path: path.read_bytes() for path in files.root.rglob("*") if path.is_file()}
    evaluate(files)
    assert {path: path.read_bytes() for path in files.root.rglob("*") if path.is_file()} == before


def test_the_inputs_are_named_by_their_content(files, objects):
    before = evaluate(files)["splits"]["far"]["inputs"]
    objects(("o1", FIRST, "fox")).write(files.objects("far"))
    after = evaluate(files)["splits"]["far"]["inputs"]
    assert before["objects"] != after["objects"]
    assert before["images"] == after["images"]


def test_images_that_the_detector_could_not_read_count_on_no_side(files, regions):
    folder = files.regions("far") / "regions.json"
    info = json.loads(folder.read_text())
    info["failures"] = [{"image_id": "o3", "reason": "truncated"}]
    folder.write_text(json.dumps(info))
    split = evaluate(files)["splits"]["far"]
    assert (split["images"], split["failed_images"], split["no_detection"]) == (2, 1, 0.5)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [([0, 1, 2], "3 scores, but 4 regions"), ([0, 1, 2, 2], "scored twice"), ([0, 1, 2, 9], "has no score")],
)
def test_scores_of_other_regions_are_refused(files, rows, problem):
    regions = Regions.read(files.regions("far"))
    images = np.array([*regions.image_id, *["zz"] * 6], dtype=object)
    numbers = np.array([*regions.region_id, *range(6)])
    Scores(image_id=images[rows], region_id=numbers[rows], score=np.zeros(len(rows))).write(files.scores("msp", "far"))
    if "no score" in problem:
        files.threshold.write_text('{"threshold": 0.1}')
    with pytest.raises(DataError, match=problem):
        evaluate(files)


def test_regions_of_an_image_outside_the_split_are_refused(files, regions):
    regions(("stranger", FIRST, 0.9)).write(files.regions("far"))
    with pytest.raises(DataError, match="'stranger' is no readable image of split 'far'"):
        evaluate(files)


def test_a_detector_of_other_classes_is_refused(files, objects):
    objects(("i1", FIRST, "Cat"), ("i2", FIRST, "Dog")).write(files.objects("test"))
    with pytest.raises(DataError, match="names must agree"):
        evaluate(files)


@pytest.mark.parametrize("name", ["../up", "/root", ""])
def test_names_do_not_lead_out_of_the_artifacts(name, tmp_path):
    with pytest.raises(DataError):
        run.RunFiles("r", "b", tmp_path).scores("msp", f"../../../../{name}")
    with pytest.raises(DataError):
        run.RunFiles("../r/../..", "b", tmp_path)


def test_a_threshold_that_is_no_number_is_refused(files):
    files.threshold.write_text('{"threshold": null}')
    with pytest.raises(DataError, match=r"r\.json: field 'threshold': expected a number"):
        evaluate(files)


def test_the_operating_threshold_is_written_with_its_rule_and_inputs(files):
    run.choose_threshold(files, run.ThresholdSettings(rule="best_f1"))
    chosen = json.loads(files.threshold.read_text())
    assert chosen["threshold"] == pytest.approx((np.float32(0.9) + np.float32(0.7)) / 2)
    assert chosen["rule"] == "best_f1"
    assert set(chosen["inputs"]) == {"images", "objects", "regions from 0"}


def test_splits_without_any_detection_or_object_give_nulls(files, regions):
    regions().write(files.regions("far"))
    Objects.empty().write(files.objects("far"))
    write_scores(files, "msp", "far", Regions.empty(), [])
    evaluate(files)
    figures = json.loads((files.metrics / "far" / "msp.json").read_text())
    assert set(figures.values()) == {None}


def test_a_thinned_curve_keeps_its_ends_and_its_shape():
    x = np.linspace(0, 1, 5000)
    y = np.sqrt(x)
    at, value = run.thin(x, y)
    assert len(at) <= run.CURVE_POINTS
    assert (at[0], at[-1], value[-1]) == (0, 1, 1)
    assert np.abs(np.interp(x, at, value) - y).max() < 0.01
