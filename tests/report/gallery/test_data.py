"""What the gallery's page is told, compared with what the stages before have measured and with hand-made scenes."""

import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from farther.errors import DataError
from farther.metrics import open_set
from farther.report.gallery.data import split_data
from farther.report.results import Run, read_run
from farther.tables import Header, Images, Objects, Regions
from farther.tables.files import read_json

FOUND, MISCLASSIFIED, MISSED, NOT_COUNTED = range(4)
TRUE_UNKNOWN, FALSE_UNKNOWN, KEPT, IGNORED = range(4)


def numbers(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype)


def data_of(project, split: str, most: int = 100, run: Run | None = None) -> tuple[dict, dict]:
    page = project.artifacts / "report"
    return split_data(run or project.run, split, project.artifacts, project.roots, page, most)


def outcomes(method: dict) -> dict[str, int]:
    """How often each outcome occurs, under the names of the metrics."""
    fate, kind = numbers(method["fate"], "u1"), numbers(method["kind"], "u1")
    return {
        "tp_u": int(np.sum(fate == FOUND)),
        "fn_misclassified": int(np.sum(fate == MISCLASSIFIED)),
        "fn_missed": int(np.sum(fate == MISSED)),
        "fp_u": int(np.sum(kind == FALSE_UNKNOWN)),
    }


# ---------------------------------------------------------------------------------------------- the tables' own counts


def test_outcomes_are_counted_as_in_the_evaluation(evaluated, params):
    artifacts = evaluated / "artifacts"
    run = read_run("pets-net", params, artifacts)
    written = read_json(artifacts / "evaluation" / "pets-net.json")["methods"]
    roots = {"photos": evaluated / "photos"}
    for split in run.splits:
        _, methods = split_data(run, split.name, artifacts, roots, artifacts / "report", 100)
        assert list(methods) == list(run.methods)
        for method, judged in methods.items():
            figures = written[method]["splits"][split.name]["open_set"]
            assert outcomes(judged) == {name: figures[name] for name in outcomes(judged)}, (split.name, method)
            assert judged["tau"] == written[method]["tau"]
            compared = read_json(artifacts / "metrics" / "pets-net" / split.name / f"{method}.json")
            found, confounded, ignored, false = outcomes(judged).values()
            assert compared["r_u"] == found / (found + confounded + ignored)
            assert compared["nose"] == confounded / (found + confounded + ignored)
            assert compared["p_u"] == (found / (found + false) if found + false else None)


def test_outcomes_follow_the_method(project):
    _, methods = data_of(project, "wild")
    assert outcomes(methods["one"]) == {"tp_u": 1, "fn_misclassified": 1, "fn_missed": 2, "fp_u": 1}
    assert outcomes(methods["two"]) == {"tp_u": 1, "fn_misclassified": 1, "fn_missed": 2, "fp_u": 0}
    # Rows of objects: w1 zebra, w2 zebra, w2 gnu, w3 gnu. `two` finds the second zebra by the less confident detection.
    assert numbers(methods["one"]["fate"], "u1").tolist() == [FOUND, MISCLASSIFIED, MISSED, MISSED]
    assert numbers(methods["one"]["region"], "<i4").tolist() == [0, 3, -1, -1]
    assert numbers(methods["two"]["fate"], "u1").tolist() == [MISCLASSIFIED, FOUND, MISSED, MISSED]
    assert numbers(methods["two"]["region"], "<i4").tolist() == [0, 2, -1, -1]


def test_the_classes_that_the_detector_knows_are_not_unknown_objects(tmp_path, project):
    root = tmp_path / "artifacts"
    shutil.copytree(project.artifacts, root, ignore=shutil.ignore_patterns("report"))
    file = root / "splits" / "zoo" / "wild" / "objects.parquet"
    objects = Objects.read(file)
    Objects(**{**objects.columns(), "category": ["cat", "gnu", "gnu", "gnu"]}).write(file)
    _, methods = split_data(project.run, "wild", root, project.roots, root / "report", 100)
    # The zebra of w1 is a cat now: that it is flagged is a false alarm, as the other one in this image.
    assert outcomes(methods["one"]) == {"tp_u": 0, "fn_misclassified": 1, "fn_missed": 2, "fp_u": 2}


def test_of_several_kept_detections_the_most_confident_one_decides():
    box = [[0, 0, 10, 10]] * 3
    objects = Objects(image_id=["a", "b"], object_id=[0, 1], box=box[:2], category=["gnu", "gnu"])
    regions = Regions(
        image_id=["a", "a", "a"],
        region_id=[0, 1, 2],
        box=box,
        score=[0.6, 0.9, 0.7],
        label=[0, 0, 0],
        header=Header(classes=("cat",)),
    )
    split = open_set.Split(objects, regions)
    assert split.judge(np.array([False, False, False])).deciding_region().tolist() == [1, -1]
    assert split.judge(np.array([False, False, True])).deciding_region().tolist() == [2, -1]


# -------------------------------------------------------------------------------------------------------------- columns


def test_boxes_are_parts_of_the_image(project):
    data, methods = data_of(project, "wild")
    box = numbers(data["regions"]["box"], "<u2").reshape(-1, 4) / 65535 * [64, 48, 64, 48]
    assert np.allclose(box[:2], [[4, 8, 28, 40], [30, 2, 40, 8]], atol=64 / 65535)
    assert numbers(data["regions"]["image"], "<u4").tolist() == [0, 0, 1, 1, 3]
    assert numbers(data["regions"]["label"], "<u2").tolist() == [0, 1, 0, 1, 1]
    assert numbers(methods["one"]["score"], "<f4").tolist() == [-2, -1, 1, 0.5, 2]
    assert np.allclose(numbers(data["regions"]["confidence"], "<f4"), [0.9, 0.6, 0.7, 0.8, 0.75])


def test_detections_below_the_operating_threshold_are_not_there(project):
    evaluation = {**project.run.evaluation, "threshold": 0.72}
    data, _ = data_of(project, "wild", run=replace(project.run, evaluation=evaluation))
    assert np.allclose(numbers(data["regions"]["confidence"], "<f4"), [0.9, 0.8, 0.75])


def test_of_too_many_images_evenly_spread_ones_are_taken_with_all_that_is_in_them(project):
    data, methods = data_of(project, "wild", most=2)
    assert data["images"]["id"] == ["w1", "w3"]
    assert data["of"] == 4
    assert numbers(data["objects"]["image"], "<u4").tolist() == [0, 1]
    assert numbers(data["regions"]["image"], "<u4").tolist() == [0, 0]
    assert numbers(methods["one"]["region"], "<i4").tolist() == [0, -1]


def test_limits_change_no_outcome(project):
    _, whole = data_of(project, "many")
    data, part = data_of(project, "many", most=20)
    assert data["images"]["id"][:3] == ["m00", "m03", "m06"]
    assert numbers(part["one"]["fate"], "u1").tolist() == numbers(whole["one"]["fate"], "u1")[::3].tolist()


# ---------------------------------------------------------------------------------------------------------------- files


def test_links_lead_from_the_page_to_the_original_files(project):
    data, _ = data_of(project, "wild")
    assert data["images"]["file"][0] == "wild/0%20%231%25.png"
    for file in data["images"]["file"]:
        assert (project.artifacts / "report" / unquote(f"{data['roots'][0]}/{file}")).resolve().is_file()


def test_a_dataset_without_a_folder_has_no_links(project):
    data, _ = split_data(project.run, "wild", project.artifacts, {}, project.artifacts / "report", 100)
    assert data["roots"] == [None]


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd", "a/../../secret.png"])
def test_no_link_leaves_the_folder_of_its_dataset(project, tmp_path, name):
    root = tmp_path / "artifacts"
    shutil.copytree(project.artifacts, root, ignore=shutil.ignore_patterns("report"))
    file = root / "splits" / "zoo" / "wild" / "images.parquet"
    images = Images.read(file)
    Images(**{**images.columns(), "file": ["ok.png", "ok.png", name, "ok.png"]}).write(file)
    with pytest.raises(DataError, match="leaves its folder"):
        split_data(project.run, "wild", root, project.roots, root / "report", 100)


# ------------------------------------------------------------------------------------------------------------- the page


def argument(script: Path, call: str) -> dict:
    """The last argument of the only call in a script, which is ASCII."""
    text = script.read_text(encoding="ascii")
    assert text.startswith(f"gallery.{call}")
    return json.loads(text.removeprefix(f"gallery.{call}").removesuffix(");\n"))


def test_the_page_names_its_data_files_and_how_much_they_hold(gallery: Path):
    source = gallery.read_text()
    start = source.index('id="gallery-index">') + len('id="gallery-index">')
    (run,) = json.loads(source[start : source.index("</script>", start)])
    assert run["name"] == "net"
    assert run["method"] == "one"
    assert [(s["name"], s["images"], s["of"]) for s in run["splits"]] == [
        ("wild", 4, 4),
        ("tame", 2, 2),
        ("many", 60, 60),
    ]
    for split in run["splits"]:
        assert argument(gallery.parent / split["file"], f'add("net","{split["name"]}",')["of"] == split["of"]
        assert list(split["methods"]) == ["one", "two"]
        for method, file in split["methods"].items():
            assert argument(gallery.parent / file, f'judge("net","{split["name"]}","{method}",')["tau"] == 0


@pytest.mark.parametrize("absent", ["regions", "scores"])
def test_of_a_run_whose_detections_are_elsewhere_the_page_says_so(project, tmp_path, absent):
    shutil.copytree(project.root, tmp_path / "copy", ignore=shutil.ignore_patterns("report"))
    copy = type(project)(tmp_path / "copy")
    shutil.rmtree(copy.artifacts / absent)
    page = copy.write_gallery()
    assert "not on this machine: net" in page.read_text()
    assert not (page.parent / "gallery").exists()


def test_a_report_without_a_gallery_says_so(project, tmp_path):
    copy = type(project)(tmp_path)
    page = copy.write_gallery(images=0)
    assert "<code>report.gallery.images</code> is 0" in page.read_text()
    assert not (page.parent / "gallery").exists()
