"""The data of the gallery's page, compared with the evaluation and with hand-made scenes."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from tests.report.conftest import evaluation_in
from tests.support.messages import OUTSIDE

from farther.errors import DataError
from farther.evaluation.files import RunSplit
from farther.evaluation.stored_results import StoredResults
from farther.report.gallery.data import SplitData, folder_url
from farther.report.gallery.outcomes import SplitOutcomes
from farther.report.gallery.packing import unpacked
from farther.report.results import Run, read_run
from farther.tables import Images, RegionOutcomes
from farther.tables.documents import read_json
from farther.tables.unknown_proposals import UnknownProposalTable

FOUND, MISCLASSIFIED, MISSED, NOT_COUNTED = range(4)
FALSE_UNKNOWN = 2
CALLED = ("image", "objectness", "object")


def data_of(project, split: str, most: int = 100, run: Run | None = None) -> tuple[dict, dict]:
    found = SplitOutcomes.read(run or project.run, split, project.artifacts)
    return split_data(found, project.roots, project.artifacts.parent, most)


def split_data(
    found: SplitOutcomes, roots: dict[str, Path], folder: Path, most: int = 100
) -> tuple[dict, dict]:
    data = SplitData(found, roots, folder, most)
    return data.shared(), {name: data.method(name) for name in found.methods}


def outcomes(method: dict) -> dict[str, int]:
    """Number of each outcome, under the names of the metrics."""
    of_objects, of_detections = unpacked(method["object"]), unpacked(method["detection"])
    return {
        "tp_u": int(np.sum(of_objects == FOUND)),
        "fn_misclassified": int(np.sum(of_objects == MISCLASSIFIED)),
        "fn_missed": int(np.sum(of_objects == MISSED)),
        "fp_u": int(np.sum(of_detections == FALSE_UNKNOWN)),
    }


# The tables' own counts


def test_outcomes_are_counted_as_in_the_evaluation(evaluated, params):
    artifacts = evaluated / "artifacts"
    run = read_run("pets-net", params, artifacts)
    written = evaluation_in(evaluated).methods
    roots = {"photos": evaluated / "photos"}
    for split in run.splits:
        _, methods = split_data(
            SplitOutcomes.read(run, split.name, artifacts), roots, artifacts / "report"
        )
        assert list(methods) == list(run.methods)
        for method, data in methods.items():
            counts = written[method].splits[split.name].of_group("open_set")
            assert outcomes(data) == {name: counts[name] for name in outcomes(data)}, (
                split.name,
                method,
            )
            assert data["tau"] == written[method].tau
            compared = read_json(artifacts / "metrics" / "pets-net" / split.name / f"{method}.json")
            found, misclassified, missed, false = outcomes(data).values()
            assert compared["r_u"] == found / (found + misclassified + missed)
            assert compared["nose"] == misclassified / (found + misclassified + missed)
            assert compared["p_u"] == (found / (found + false) if found + false else None)


def test_outcomes_follow_the_method(project):
    _, methods = data_of(project, "wild")
    assert outcomes(methods["one"]) == {"tp_u": 1, "fn_misclassified": 1, "fn_missed": 2, "fp_u": 1}
    assert outcomes(methods["two"]) == {"tp_u": 1, "fn_misclassified": 1, "fn_missed": 2, "fp_u": 0}
    # Rows of objects: w1 zebra, w2 zebra, w2 gnu, w3 gnu. `two` finds the second zebra by the less
    # confident detection.
    assert unpacked(methods["one"]["object"]).tolist() == [
        FOUND,
        MISCLASSIFIED,
        MISSED,
        MISSED,
    ]
    assert unpacked(methods["one"]["decided"]).tolist() == [0, 1, -1, -1]
    assert unpacked(methods["two"]["object"]).tolist() == [
        MISCLASSIFIED,
        FOUND,
        MISSED,
        MISSED,
    ]
    assert unpacked(methods["two"]["decided"]).tolist() == [0, 0, -1, -1]


def test_a_detection_without_an_outcome_is_refused_with_its_file(project, tmp_path):
    root = tmp_path / "artifacts"
    shutil.copytree(project.artifacts, root, ignore=shutil.ignore_patterns("report"))
    file = root / "outcomes" / "net" / "one" / "wild.parquet"
    RegionOutcomes.read(file)[np.array([True, True, True, False, True])].write(file)
    found = SplitOutcomes.read(project.run, "wild", root)
    with pytest.raises(
        DataError, match=r"wild\.parquet.*region_id 3 of image 'w2' has no outcome: run"
    ):
        found.detections_of("one")


def test_a_proposal_has_the_row_of_the_object_that_it_finds(proposing):
    data, methods = data_of(proposing, "wild")
    found = {name: unpacked(data["proposals"]["boxes"][name]) for name in CALLED}
    assert (found["image"].tolist(), found["object"].tolist()) == ([0, 1], [-1, 2])
    assert all(unpacked(method["object"])[2] == MISSED for method in methods.values())
    np.testing.assert_allclose(found["objectness"], [0.7, 0.9])
    few, _ = data_of(proposing, "wild", most=2)
    assert unpacked(few["proposals"]["boxes"]["object"]).tolist() == [-1]
    assert data_of(proposing, "tame")[0]["proposals"] == {}


# Columns


def test_boxes_are_parts_of_the_image(project):
    data, methods = data_of(project, "wild")
    box = unpacked(data["detections"]["box"]).reshape(-1, 4) / 65535 * [64, 48, 64, 48]
    assert np.allclose(box[:2], [[4, 8, 28, 40], [30, 2, 40, 8]], atol=64 / 65535)
    assert unpacked(data["detections"]["image"]).tolist() == [0, 0, 1, 1, 3]
    assert unpacked(data["detections"]["label"]).tolist() == [0, 1, 0, 1, 1]
    assert unpacked(methods["one"]["score"]).tolist() == [-2, -1, 1, 0.5, 2]
    assert np.allclose(
        unpacked(data["detections"]["confidence"]) / 65535, [0.9, 0.6, 0.7, 0.8, 0.75], atol=1e-5
    )


def test_detections_below_the_operating_threshold_are_not_there(project):
    evaluation = project.evaluation.model_copy(update={"threshold": 0.72})
    data, _ = data_of(
        project, "wild", run=replace(project.run, results=StoredResults.of(evaluation))
    )
    assert np.allclose(
        unpacked(data["detections"]["confidence"]) / 65535, [0.9, 0.8, 0.75], atol=1e-5
    )


def test_of_too_many_images_evenly_spread_ones_are_taken_with_all_that_is_in_them(project):
    data, methods = data_of(project, "wild", most=2)
    assert data["images"]["id"] == ["w1", "w3"]
    assert data["of"] == 4
    assert unpacked(data["objects"]["image"]).tolist() == [0, 1]
    assert unpacked(data["detections"]["image"]).tolist() == [0, 0]
    assert unpacked(methods["one"]["decided"]).tolist() == [0, -1]


def test_limits_change_no_outcome(project):
    _, whole = data_of(project, "many")
    data, part = data_of(project, "many", most=20)
    assert data["images"]["id"][:3] == ["m00", "m03", "m06"]
    assert (
        unpacked(part["one"]["object"]).tolist() == unpacked(whole["one"]["object"])[::3].tolist()
    )


# Files


def test_links_lead_from_the_page_to_the_original_files(project):
    data, _ = data_of(project, "wild")
    assert data["images"]["file"][0] == "wild/0%20%231%25.png"
    for file in data["images"]["file"]:
        assert (
            (project.artifacts / "report" / unquote(f"{data['roots'][0]}/{file}"))
            .resolve()
            .is_file()
        )


@pytest.mark.parametrize(
    ("root", "url"),
    [
        ("data/a b", "../../data/a%20b"),
        ("./data/../images", "../../images"),
        ("../photos", "../../../photos"),
        ("artifacts/tables/voc/images", "../../artifacts/tables/voc/images"),
        ("/srv/voc #1", "file:///srv/voc%20%231"),
    ],
)
def test_urls_of_folders_do_not_depend_on_where_the_project_is(tmp_path, monkeypatch, root, url):
    for depth in ("a", "a/b/c"):
        folder = tmp_path / depth
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(folder)
        assert folder_url(Path(root), Path()) == url
        assert folder_url(folder / root, folder) == url


def test_a_dataset_without_a_folder_has_no_links(project):
    found = SplitOutcomes.read(project.run, "wild", project.artifacts)
    data, _ = split_data(found, {}, project.artifacts.parent)
    assert data["roots"] == [None]


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd", "a/../../secret.png"])
def test_no_link_leaves_the_folder_of_its_dataset(project, tmp_path, name):
    root = tmp_path / "artifacts"
    shutil.copytree(project.artifacts, root, ignore=shutil.ignore_patterns("report"))
    file = root / "splits" / "zoo" / "wild" / "images.parquet"
    images = Images.read(file)
    Images(**{**images.columns(), "file": ["ok.png", "ok.png", name, "ok.png"]}).write(file)
    found = SplitOutcomes.read(project.run, "wild", root)
    with pytest.raises(DataError, match=OUTSIDE):
        split_data(found, project.roots, root.parent)


# The page


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
        assert (
            argument(gallery.parent / split["file"], f'addSplit("net","{split["name"]}",')["of"]
            == split["of"]
        )
        assert list(split["methods"]) == ["one", "two"]
        for method, file in split["methods"].items():
            assert (
                argument(gallery.parent / file, f'addOutcomes("net","{split["name"]}","{method}",')[
                    "tau"
                ]
                == 0
            )


@pytest.mark.parametrize("absent", ["regions", "scores", "outcomes"])
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


# Accepted and rejected images


def test_as_many_images_are_rejected_as_the_evaluation_says(evaluated, params):
    artifacts = evaluated / "artifacts"
    run = read_run("pets-net", params, artifacts)
    aware = evaluation_in(evaluated).self_awareness
    for split in run.splits:
        found = SplitOutcomes.read(run, split.name, artifacts)
        shared, _ = split_data(found, {"photos": evaluated / "photos"}, artifacts / "report")
        accepting = shared["accepting"]
        assert accepting["threshold"] == aware.detector.image_threshold
        rejected = unpacked(accepting["uncertainty"]) > accepting["threshold"]
        assert len(rejected) == len(shared["images"]["id"])
        assert rejected.sum() == aware.images[split.name].rejected_images > 0


def test_the_uncertainties_of_no_images_have_the_types_of_those_of_some(
    evaluated, params, monkeypatch
):
    run = read_run("pets-net", params, evaluated / "artifacts")
    some = SplitOutcomes.read(run, run.splits[0].name, evaluated / "artifacts")
    types = some.uncertainty(some.self_aware).schema
    stored = RunSplit.regions
    monkeypatch.setattr(RunSplit, "regions", lambda self: stored(self)[:0])
    assert replace(some, images=some.images[:0]).uncertainty(some.self_aware).schema == types


def test_of_too_many_images_the_taken_ones_keep_their_uncertainties(evaluated, params):
    run = read_run("pets-net", params, evaluated / "artifacts")
    found = SplitOutcomes.read(run, run.splits[0].name, evaluated / "artifacts")
    roots, page = {"photos": evaluated / "photos"}, evaluated / "artifacts" / "report"
    (whole, _), (part, _) = (
        split_data(found, roots, page, most) for most in (len(found.images), 2)
    )
    uncertainty = {
        name: unpacked(of["accepting"]["uncertainty"])
        for name, of in (("whole", whole), ("part", part))
    }
    assert (
        uncertainty["part"].tolist() == uncertainty["whole"][[0, len(found.images) // 2]].tolist()
    )


def test_a_run_without_an_image_threshold_says_nothing_of_acceptance(project):
    assert data_of(project, "wild")[0]["accepting"] is None


def test_the_key_of_a_splits_data_changes_with_the_names_of_sources(project):
    found = SplitOutcomes.read(project.run, "wild", project.artifacts)

    def key(source: str) -> str:
        proposals = {source: UnknownProposalTable.empty().frame}
        return SplitData(
            replace(found, proposals=proposals), project.roots, project.artifacts.parent, 100
        ).key()

    assert key("rpn") == key("rpn")
    assert key("rpn") != key("boxes")
