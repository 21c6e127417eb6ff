"""The contents of the pages."""

import base64
import io
import shutil
import sys
from dataclasses import replace

import pytest
from PIL import Image
from tests.report.conftest import evaluation_in, write_evaluation
from tests.support.evaluations import SEARCH

import farther
from farther.errors import ParameterError
from farther.report import build, tables
from farther.report.gallery.examples import Mark
from farther.report.pages import detector as detector_page
from farther.report.pages import methods as methods_page
from farther.tables.files import digest


@pytest.fixture(scope="session")
def index(report, read):
    return read(report / "index.html")


@pytest.fixture(scope="session")
def comparison(report_of_two, read):
    return read(report_of_two / "compare.html")


@pytest.fixture(scope="session")
def methods(report, read):
    return read(report / "methods.html")


@pytest.fixture(scope="session")
def detector(report, read):
    return read(report / "detectors" / "pets-net.html")


@pytest.fixture
def project(built, tmp_path):
    """A project that a test may change."""
    return shutil.copytree(built, tmp_path / "project")


# --- the overview and the tables


def test_the_tables_hold_the_values_and_mark_the_best(index, comparison):
    for page in (index, comparison):
        assert page.texts("td").count("25.0†") >= 2
        assert "0.0" in page.texts("strong")
        assert any("4 objects, 4 images" in text for text in page.texts("small"))


def test_a_table_that_is_too_large_for_a_page_is_in_the_file_of_all_values(
    project, params, read, monkeypatch
):
    monkeypatch.setattr(tables, "MOST_CELLS", 1)
    report = build(params, project).parent
    page = read(report / "detectors/pets-net.html")
    assert not [e for e in page.all("table") if e.attributes.get("class") == "results"]
    (address,) = {e.attributes["href"] for e in page.all("a") if "csv" in e.attributes["href"]}
    assert (report / "detectors" / address).is_file()


def titles(page):
    return [e.attributes["title"] for e in page.all("td") if "title" in e.attributes]


def test_a_value_carries_its_interval(index, comparison):
    for page in (index, comparison):
        intervals = [e.attributes["data-i"] for e in page.all("td") if "data-i" in e.attributes]
        assert "[100.0, 100.0]" not in intervals
        assert "—" in intervals  # the same in all resamples; its tooltip has the reason
        assert any(title.startswith("no interval: ") for title in titles(page))
        assert len(intervals) >= 3 * 2 * 3


def test_each_row_names_detector_and_method(comparison):
    rows = [row for row in comparison.texts("tr") if row.startswith("net (pets) ")]
    methods = [row.removeprefix("net (pets) ").split()[0] for row in rows]
    assert "MSP Energy kNN" in " ".join(methods)


def test_a_single_detector_is_named_once_and_not_in_each_row(index):
    assert not any("net (pets)" in text for text in index.texts("th"))
    assert any(text.endswith("Detector: net (pets).") for text in index.texts("p"))


def test_warnings_about_data_are_counted_on_the_first_page_and_listed_with_the_data(
    index, report, read
):
    page = read(report / "data.html")
    listed = [text for text in page.texts("tr") if text.startswith(("benchmark pets", "dataset p"))]
    assert f"{len(listed)} warnings about the data: Data." in index.texts("p")
    assert any(
        "1 rule names a category that photos does not have" in text for text in page.texts("td")
    )
    assert "Warnings" in page.texts("h2")


def test_methods_that_do_not_apply_are_named_with_the_reason(comparison, methods, detector):
    subject = "LaRD (kNN) to net (pets)"
    for page, start in ((comparison, subject), (methods, subject), (detector, "LaRD (kNN): ")):
        reasons = [text for text in page.texts("li") if text.startswith(start)]
        assert reasons
        assert all("lard_knn needs latent" in text for text in reasons)


def test_a_run_that_is_not_evaluated_is_named(index):
    assert "Not evaluated: later (pets)." in index.texts("p")


def test_it_lists_digests_of_its_inputs(index, report, read, evaluated):
    cells = read(report / "provenance.html").texts("td")
    assert "abc123" in cells
    images = evaluated / "artifacts" / "splits" / "pets" / "photos_near" / "images.parquet"
    assert digest(images)[:12] in cells
    assert any(f"farther {farther.__version__}." in text for text in index.texts("footer"))


def test_other_parameters_have_another_name(project, params, read):
    def hash_of_parameters(settings):
        page = read(build(settings, project).with_name("provenance.html"))
        for row in page.texts("tr"):
            words = row.split()
            if words[2:4] == ["pets-net", "abc123"]:
                return words[-1]
        raise AssertionError("the run has no row")

    changed = {**params, "evaluate": {"iou": 0.7}}
    assert hash_of_parameters(changed) != hash_of_parameters(params)


def test_outcomes_of_unknown_objects_are_drawn_from_the_counts(comparison, detector):
    rows = comparison.charts()["outcomes-1-1"]["data"]["values"]
    near = {row["outcome"]: row["share"] for row in rows if row["name"] == "net (pets)"}
    assert near == {"found": 0.25, "misclassified": 0.25, "missed": 0.5}
    assert {row["objects"] for row in rows} == {4}
    rows = detector.charts()["outcomes-1"]["data"]["values"]
    assert sum(row["share"] for row in rows if row["name"] == "photos far") == pytest.approx(1)


def test_outcomes_come_first_on_the_pages_of_detectors_and_of_their_comparison(
    comparison, detector
):
    assert next(iter(comparison.charts())) == "outcomes-1-1"
    assert comparison.texts("h2")[0] == "Outcomes of unknown objects, by split"
    assert comparison.texts("h2")[-1] == "Runs"
    assert detector.texts("h2")[0] == "Outcomes of unknown objects"
    assert detector.texts("h2")[-3] == "Detector and run"
    assert "Near, 4 objects: 25% found, 25% misclassified, 50% missed." in detector.texts("li")


def test_bars_of_outcomes_have_one_order_and_one_legend_on_all_pages(index, detector):
    for page, name in ((index, "hero-1"), (detector, "outcomes-1")):
        spec = page.charts()[name]
        bar = [row["outcome"] for row in spec["data"]["values"] if row["bar"] == 0]
        assert bar == ["found", "misclassified", "missed"]
        colours = spec["layer"][0]["encoding"]["color"]["scale"]
        assert colours["domain"] == ["found", "misclassified", "missed"]
        assert colours["range"] == ["#0072B2", "#D55E00", "#BDBDBD"]


def test_one_panel_has_bars_that_lie_below_each_other(index, report):
    assert 'class="grid single"' in (report / "index.html").read_text()
    spec = index.charts()["hero-1"]
    encoding = spec["layer"][0]["encoding"]
    assert encoding["x"]["field"] == "start"
    assert encoding["y"]["axis"]["values"] == [0, 1, 2, 3]
    labels = encoding["y"]["axis"]["labelExpr"]
    for distance, objects in (("near", "4 objects"), ("far", "2 objects")):
        for method in ("MSP", "Energy"):
            assert f'["{distance}", "{method}", "{objects}"]' in labels
    assert spec["height"] == 4 * 44


# --- detectors and methods


def test_a_detector_has_all_its_curves(detector):
    kinds = {name.rsplit("-", 1)[0] for name in detector.charts()}
    assert kinds >= {
        "outcomes",
        "methods",
        "roc",
        "pr",
        "tau",
        "confidence",
        "no-detection",
        "wilderness",
    }


def test_each_method_has_a_folded_section_that_tables_link(methods, detector, params):
    folds = [element.attributes.get("id") for element in methods.all("details")]
    assert folds == [f"method-{name}" for name in params["methods"]]
    summaries = methods.texts("summary")
    assert any(text.startswith("kNN: Minus the distance to the k-th nearest") for text in summaries)
    for page, address in (
        (methods, "methods.html#method-knn"),
        (detector, "../methods.html#method-knn"),
    ):
        links = [link for link in page.all("a") if link.attributes["href"] == address]
        assert [link.text for link in links] == ["kNN"]


def test_a_method_is_explained_by_its_own_documentation(methods):
    assert "score = − ‖u − u<sub>(k)</sub>‖" in methods.source
    assert "`" not in "".join(methods.texts("td"))
    assert any(text.startswith("Sun et al.") for text in methods.texts("p"))
    assert any(text.startswith("k 10 Rank of the neighbour") for text in methods.texts("tr"))
    assert any(text.startswith("net (pets) k = 1") for text in methods.texts("tr"))


def test_a_method_without_results_says_to_what_it_does_not_apply(methods):
    texts = methods.texts("li")
    assert any(
        text.startswith("Not applicable to net (pets): lard_knn needs latent") for text in texts
    )


def test_a_choice_among_methods_explains_each_of_them(project, params, read):
    choice = {"ood_split": "photos_far", "grids": {"msp": {}, "knn": {"k": [1, 2]}}}
    build({**params, "methods": {"best_of_two": {"oracle": choice}}}, project)
    page = read(project / "artifacts/report/methods.html")
    assert page.texts("h3") == ["knn", "msp"]
    rows = page.texts("tr")
    assert any(text.startswith("best_of_two — The best of knn, msp.") for text in rows)


def test_a_user_defined_method_has_a_section_too(project, params, read, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (project / "extensions").mkdir()
    (project / "extensions/constant_of_report.py").write_text(
        "import numpy as np\n"
        "from farther import Method, register\n"
        '@register("report_constant")\n'
        "class Constant(Method):\n"
        '    """Always one."""\n'
        '    title = "Constant one"\n'
        "    weight: float = 2.0\n"
        "    def _score(self, rows):\n"
        "        return np.ones(len(rows))\n"
    )
    build({**params, "methods": {**params["methods"], "report_constant": {}}}, project)
    page = read(project / "artifacts/report/methods.html")
    assert "Constant one: Always one." in page.texts("summary")
    assert "weight 2.0" in page.texts("tr")


# --- data


def test_images_are_counted_per_reason_and_per_rule(report, read):
    rows = read(report / "data.html").texts("tr")
    assert "photos near 4 4" in rows
    assert "photos near: a near category is labelled 4" in rows
    assert "photos ID class: Cat → cat 1" in rows


# --- pictures


def pictures(page) -> dict:
    """Image → its picture among the examples of a page."""
    by_image = {}
    for element in page.all("svg"):
        if "details" in element.inside:
            continue  # of a section that is folded away
        title, _, _ = element.attributes["aria-label"].partition(".")
        by_image[title.removeprefix("Image ")] = element
    return by_image


def test_pictures_alternate_between_found_misclassified_and_missed(detector):
    assert list(pictures(detector)) == ["n1", "n2", "n3", "f1", "f2"]


def test_a_picture_describes_its_objects_and_detections(detector):
    labels = {name: e.attributes["aria-label"] for name, e in pictures(detector).items()}
    assert labels["n1"] == "Image n1. ground truth: Lynx; flagged as unknown: ? cat 70%."
    assert labels["n2"] == "Image n2. ground truth: Lynx; detected as known: cat 100%."
    assert labels["n3"] == "Image n3. ground truth: Lynx."


def test_thumbnails_are_small_webps_of_the_images(detector):
    for element in detector.all("image"):
        source = element.attributes["href"].removeprefix("data:image/webp;base64,")
        with Image.open(io.BytesIO(base64.b64decode(source))) as image:
            assert image.size == (64, 48)


def test_images_that_are_not_on_this_machine_are_passed_over(project, params, read):
    (project / "photos" / "n1.jpg").unlink()
    Image.new("RGB", (10, 10)).save(project / "photos" / "n2.jpg")
    build(params, project)
    page = read(project / "artifacts/report/detectors/pets-net.html")
    assert list(pictures(page)) == ["n3", "n4", "f1", "f2"]


def test_of_many_splits_each_has_fewer_pictures_but_one(project, params, read, monkeypatch):
    monkeypatch.setattr(detector_page, "MOST_EXAMPLES", 1)
    build(params, project)
    page = read(project / "artifacts/report/detectors/pets-net.html")
    assert list(pictures(page)) == ["n1", "f1"]


@pytest.mark.parametrize(("left", "top"), [(0, 0), (90, 0), (0, 90), (90, 90)])
@pytest.mark.parametrize("kind", ["truth", "known"])
def test_a_label_never_leaves_its_picture(kind, left, top):
    mark = Mark(kind, left, top, 10, 10, "a long name")
    size = 5.0
    assert 0 <= mark.plate_left(100, size) <= 100 - mark.plate_width(size)
    assert 0 <= mark.plate_top(100, size) <= 100 - 1.35 * size + 0.05


# --- parameters


def test_building_again_drops_the_files_of_runs_that_are_gone(project, params, read):
    report = project / "artifacts" / "report"
    assert (report / "tables" / "pets-net-ood.tex").exists()
    del params["detectors"]["pets-net"]
    page = read(build(params, project))
    assert [file.name for file in (report / "tables").iterdir()] == ["results.csv"]
    assert not (report / "detectors").exists()
    assert "Nothing has been evaluated yet." in page.texts("p")


def test_without_the_evaluation_s_details_the_tables_are_still_there(project, params, read):
    shutil.rmtree(project / "artifacts" / "evaluation")
    shutil.rmtree(project / "artifacts" / "results")
    build(params, project)
    page = read(project / "artifacts/report/detectors/pets-net.html")
    assert "25.0" in page.texts("td")
    assert not pictures(page)


def test_a_choice_on_test_data_is_called_an_oracle_everywhere(project, params, read):
    evaluation = evaluation_in(project)
    evaluation.methods["knn"].fitted.choice = replace(SEARCH, oracle=True)
    write_evaluation(project, evaluation)
    index = read(build(params, project))
    assert "kNN (oracle)" in index.texts("th")
    folder = project / "artifacts" / "report"
    detector = read(folder / "detectors/pets-net.html")
    assert "kNN (oracle)" in detector.texts("th")
    for page in (detector, read(folder / "methods.html")):
        warnings = [e.text for e in page.all("p") if e.attributes.get("class") == "warning"]
        assert any("chosen on test data" in text for text in warnings)
    assert "kNN (oracle)" in (folder / "tables" / "pets-net-ood.md").read_text()


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ({"pictures": 3}, "unknown parameter 'pictures'. Known: title"),
        ({"method": "vim"}, "has no method 'vim'"),
        ({"papers": ["fmyic"]}, "'elephant', 'fmiyc', .* found 'fmyic'"),
    ],
)
def test_a_wrong_parameter_is_refused_in_plain_words(project, params, report, message):
    with pytest.raises(ParameterError, match=message):
        build({**params, "report": report}, project)


def test_a_method_may_be_called_as_a_section_of_the_page(project, params, read):
    for section in methods_page.SECTIONS:
        params["methods"][section] = {"method": "msp"}
    build(params, project)
    page = read(project / "artifacts/report/methods.html")
    ids = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    assert "method-families" in ids
