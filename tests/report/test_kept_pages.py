"""A report that keeps pages is the one that is written from nothing, whatever has changed."""

import copy
import pickle
import shutil
from pathlib import Path

import polars as pl
import pytest
from PIL import Image
from tests.report.conftest import PARAMS, add_proposals, copy_run, evaluation_in, write_evaluation

from farther.errors import DataError
from farther.evaluation import stored_results
from farther.evaluation.files import RunFiles
from farther.evaluation.long_table import read_long_table, write_long_table
from farther.incremental.keyed import Keyed
from farther.report import kept_pages, means, navigation, pages, power
from farther.report.all_results import AllResults
from farther.report.charts import vega
from farther.report.gallery.examples import ReadImages
from farther.report.gallery.outcomes import read_run_outcomes
from farther.report.links import linked_site
from farther.report.outcomes import OUTCOMES
from farther.report.pages import detector
from farther.report.pages.runs import FilesOfRuns, page_of
from farther.report.replicates import COLUMNS
from farther.report.results import read_runs
from farther.report.settings import ReportSettings
from farther.report.write import build
from farther.tables import ObjectOutcomes, content, opening, parquet


@pytest.fixture
def project(evaluated, tmp_path) -> Path:
    """A project with two evaluated runs, `pets-net` and its copy `pets-later`."""
    root = tmp_path / "project"
    shutil.copytree(evaluated, root, ignore=shutil.ignore_patterns("report", "records"))
    copy_run(root)
    return root


@pytest.fixture(scope="module")
def written(evaluated, tmp_path_factory) -> Path:
    """The same project with its report; to be read only."""
    root = tmp_path_factory.mktemp("written") / "project"
    shutil.copytree(evaluated, root, ignore=shutil.ignore_patterns("report", "records"))
    copy_run(root)
    build(copy.deepcopy(PARAMS), root, code="1")
    return root


@pytest.fixture
def reported(written, tmp_path) -> Path:
    """A copy of the project with its report."""
    return Path(shutil.copytree(written, tmp_path / "reported"))


@pytest.fixture
def rendered(monkeypatch) -> list[str]:
    """Runs whose page was rendered."""
    names: list[str] = []
    content_of_run = detector.content

    def noted(run, *arguments):
        names.append(run.name)
        return content_of_run(run, *arguments)

    monkeypatch.setattr(detector, "content", noted)
    return names


def report_of(root: Path, params, code: str = "1", jobs: int = 1) -> dict[str, bytes]:
    """All files of a report that is written into a project."""
    build(params, root, code=code, jobs=jobs)
    report = root / "artifacts/report"
    files = {}
    for file in sorted(report.rglob("*")):
        if file.is_file():
            files[str(file.relative_to(report))] = file.read_bytes()
    return files


def report_from_nothing(root: Path, params, jobs: int = 1) -> dict[str, bytes]:
    shutil.rmtree(root / "artifacts/report")
    Keyed(root / "artifacts/report").file.unlink()
    return report_of(root, params, jobs=jobs)


def change_threshold(root, params):
    evaluation = evaluation_in(root, "pets-later")
    evaluation.methods["knn"].tau -= 0.01
    write_evaluation(root, evaluation)


def change_self_awareness(root, params):
    evaluation = evaluation_in(root, "pets-later")
    evaluation.self_awareness.values["daq"] = 0.123
    write_evaluation(root, evaluation)


def change_value(root: Path, **names: str) -> None:
    """Changes values of `pets-later` in its long table."""
    files = RunFiles("pets-later", "pets", root / "artifacts")
    table = read_long_table(files.long_table)
    is_changed = pl.all_horizontal(pl.col(key) == name for key, name in names.items())
    value = pl.when(is_changed).then(0.4321).otherwise("value")
    write_long_table(files, table.with_columns(value=value))


def change_metric(root, params):
    change_value(root, split="photos_near", method="knn", metric="auroc", part="")


def change_detector(root, params):
    change_value(root, metric="map50", part="")


def change_outcomes(root, params):
    file = root / "artifacts/outcomes/pets-later/msp/photos_near.objects.parquet"
    frame = ObjectOutcomes.read(file).frame
    outcomes = frame["outcome"].cast(pl.String)
    changed = outcomes.replace({"missed": "found"}).cast(frame["outcome"].dtype)
    ObjectOutcomes.from_frame(frame.with_columns(outcome=changed)).write(file)


def change_curves(root, params):
    file = root / "artifacts/plots/tau/pets-later.csv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-2]))


def change_picture(root, params):
    for file in (root / "photos").glob("n*.jpg"):
        with Image.open(file) as image:
            size = image.size
        Image.new("RGB", size, (200, 10, 10)).save(file)


def change_accepted_picture(root, params):
    for file in (root / "pets").glob("test*.jpg"):
        with Image.open(file) as image:
            size = image.size
        Image.new("RGB", size, (200, 10, 10)).save(file)


def remove_picture(root, params):
    (root / "photos/n1.jpg").unlink()


def change_setting(root, params):
    params["report"]["image_side"] = 32


def change_title(root, params):
    params["detectors"]["pets-later"]["title"] = "The later one"


def change_weights(root, params):
    params["detectors"]["pets-later"]["weights"] = "another.safetensors"


def change_pages(root, params):
    """Now there is a page of missed objects, which all pages link."""
    add_proposals(root)


ALL = ["pets-net", "pets-later"]


#: Changes of what `pets-later` is or does, and of what all pages show.
CHANGES_OF_ONE_RUN = (
    change_threshold,
    change_metric,
    change_outcomes,
    change_curves,
    change_self_awareness,
    change_detector,
    change_weights,
)
CHANGES_OF_ALL_RUNS = (
    change_picture,
    change_accepted_picture,
    remove_picture,
    change_setting,
    change_title,
    change_pages,
)


@pytest.mark.parametrize(
    ("of_one_run", "of_all_runs"),
    [
        pytest.param(CHANGES_OF_ONE_RUN[2:5:2], CHANGES_OF_ALL_RUNS[::5], id="some"),
        pytest.param(
            CHANGES_OF_ONE_RUN, CHANGES_OF_ALL_RUNS, marks=pytest.mark.slow, id="each of them"
        ),
    ],
)
def test_a_page_is_written_again_where_anything_that_it_shows_has_changed(
    project, params, rendered, of_one_run, of_all_runs
):
    before = report_of(project, params)
    assert sorted(rendered) == sorted(ALL)
    rendered.clear()
    assert report_of(project, params) == before
    assert rendered == []

    for change in of_one_run:
        change(project, params)
        after = report_of(project, params)
        assert rendered == ["pets-later"], change
        assert after != before, change
        before = after
        rendered.clear()
    assert report_from_nothing(project, params) == before

    for change in of_all_runs:
        rendered.clear()
        change(project, params)
        after = report_of(project, params)
        assert sorted(rendered) == sorted(ALL), change
        assert after != before, change
        before = after
    assert report_from_nothing(project, params) == before


def test_other_code_and_other_packages_render_all_pages(reported, params, rendered, monkeypatch):
    report_of(reported, params)
    assert rendered == []
    report_of(reported, params, code="2")
    assert sorted(rendered) == sorted(ALL)
    rendered.clear()
    monkeypatch.setattr(kept_pages, "_version", lambda name: f"another {name}")
    report_of(reported, params, code="2")
    assert sorted(rendered) == sorted(ALL)


def test_several_processes_write_what_one_does_and_what_they_wrote_is_kept(
    project, params, rendered
):
    alone = report_of(project, params)
    record = Keyed(project / "artifacts/report").file.read_bytes()
    rendered.clear()
    assert report_from_nothing(project, params, jobs=2) == alone
    assert Keyed(project / "artifacts/report").file.read_bytes() == record
    report_of(project, params)
    assert rendered == []


def test_what_was_read_of_runs_is_not_sent_to_other_processes(written):
    runs = read_runs(PARAMS, written / "artifacts")
    results = AllResults(PARAMS, ReportSettings(), runs, written, {}, {})
    size = len(pickle.dumps(results.unread()))
    for run in runs:
        assert run.results.table.methods
        assert run.replicates.read(written / "absent.parquet") is None
    assert len(pickle.dumps(results)) > size
    assert len(pickle.dumps(results.unread())) == size


def test_the_files_of_a_run_are_written_without_the_results_of_others(
    written, tmp_path, monkeypatch
):
    runs = read_runs(PARAMS, written / "artifacts")
    results = AllResults(PARAMS, ReportSettings(), runs, written, {}, {})
    site = linked_site(tmp_path, pages.navigation(results), results)
    read = []

    def noted(file):
        read.append(file.stem)
        return read_long_table(file)

    monkeypatch.setattr(stored_results, "read_long_table", noted)
    of_process = results.unread()
    first = of_process.runs[0]
    FilesOfRuns(site, of_process).write(first, ReadImages({}))
    assert set(read) == {first.name}
    assert (tmp_path / page_of(first)).is_file()


def test_a_run_beside_many_others_renders_its_own_page_and_that_before_it(
    project, params, rendered, monkeypatch
):
    monkeypatch.setattr(navigation, "LINKED", 2)
    entry = params["detectors"]["pets-later"]
    for name in ("pets-third", "pets-fourth"):
        copy_run(project, name)
        params["detectors"][name] = entry
        rendered.clear()
        report_of(project, params)
    assert sorted(rendered) == ["pets-fourth", "pets-third"]


def test_a_damaged_file_of_one_of_several_runs_is_named(project, params):
    file = project / "artifacts/outcomes/pets-later/msp/photos_near.objects.parquet"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DataError) as caught:
        build(params, project, jobs=2)
    assert str(caught.value.file).endswith("pets-later/msp/photos_near.objects.parquet")


def test_files_that_were_edited_or_deleted_are_written_again(reported, params):
    before = report_of(reported, params)
    report = reported / "artifacts/report"
    for name in ("detectors/pets-net.html", "detectors/pets-later.html"):
        file = report / name
        file.write_text(file.read_text().replace("</main>", "edited</main>"))
    (report / "gallery/pets-later/photos_near.js").unlink()
    assert report_of(reported, params) == before


def test_the_files_of_a_removed_run_disappear_and_so_do_links_to_them(reported, params):
    before = report_of(reported, params)
    assert any("pets-later" in name for name in before)
    del params["detectors"]["pets-later"]
    after = report_of(reported, params)
    assert not any("pets-later" in name for name in after)
    for name, page in after.items():
        assert b"pets-later" not in page, name
    assert after == report_from_nothing(reported, params)
    assert not any(
        "pets-later" in name for name in Keyed(reported / "artifacts/report").recorded_keys()
    )


def test_each_file_that_the_page_of_a_run_reads_is_in_its_key(project, params, monkeypatch):
    read = set()
    look_up = opening.regular_file

    def noted(path, *arguments):
        read.add(Path(path))
        return look_up(path, *arguments)

    for module in (opening, content, parquet, vega):
        monkeypatch.setattr(module, "regular_file", noted)
    content_of_run = detector.content
    covered = {}

    def content_with_notes(run, outcomes, results, images):
        read.clear()
        read_run_outcomes(run, results.artifacts)
        variables = content_of_run(run, outcomes, results, images)
        covered[run.name] = list(kept_pages._files_of_run(run, results.artifacts))
        names = [results.roots[name.partition("/")[0]] for name in images.digests]
        for file in read:
            parents = [file, *file.parents]
            assert any(path in parents for path in [*covered[run.name], *names]), file
        return variables

    monkeypatch.setattr(detector, "content", content_with_notes)
    report_of(project, params)
    assert len(covered) == 2


def test_replicates_are_read_with_all_columns_that_pages_use():
    assert set(COLUMNS) >= {"unknown_objects", *OUTCOMES, *means.SHOWN, *power.SHOWN}
