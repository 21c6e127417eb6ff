"""A group of metrics that is added reaches evaluation, report and commands by itself."""

import shutil

import pytest
import yaml

from farther.command.comparison import compared_methods
from farther.command.explain.number import explain_number
from farther.command.project import Project
from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import RunFiles
from farther.evaluation.groups import GROUPS
from farther.evaluation.groups.base import GroupTable, MetricGroup
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.metrics.catalogue import METRICS, PREFIXES, Metric
from farther.metrics.weighting import each_once, plain, ratio
from farther.report.metric_groups import further_tables
from farther.report.results import read_runs
from farther.report.tables import to_csv
from farther.scoring.inputs import TauSettings
from farther.tables.documents import write_json


class Flagged(MetricGroup):
    """The share of a split's detections that a method flags."""

    name = "flagged"
    table = GroupTable("flagged", "detections that are flagged (%)")
    columns = ("share",)
    sizes = ("regions",)

    def counts(self, scored):
        return {"regions": len(scored.detections)}

    def values(self, scored, weights):
        rows = weights.rows(scored.detections.image_id) or each_once(len(scored.detections))
        found = {"share": ratio(rows[scored.is_unknown].total(), rows.total())}
        return found if weights.are_drawn else plain(found)


@pytest.fixture
def project(evaluated, tmp_path, params, monkeypatch):
    """The project of `tests/report/conftest.py`, evaluated with one more group."""
    metric = Metric(
        name="flagged_share",
        title="Flagged",
        latex="Flagged",
        higher_is_better=True,
        group="flagged",
        meaning="Share of the detections that are flagged.",
        formula="flagged / {regions} regions",
        source="defined here",
        ranked=True,
        averaged=True,
    )
    monkeypatch.setitem(PREFIXES, "flagged", "flagged_")
    monkeypatch.setitem(METRICS, "flagged_share", metric)
    monkeypatch.setitem(GROUPS, "flagged", Flagged())
    shutil.copytree(evaluated, tmp_path, dirs_exist_ok=True)
    from tests.report.conftest import Project as Miniature

    files = RunFiles("pets-net", "pets", tmp_path / "artifacts")
    write_json(tmp_path / "artifacts/splits/pets/roles.json", Miniature(tmp_path).benchmark.roles())
    inputs = RunInputs(files, files.roles, EvaluationSettings(replicates=100))
    evaluate_run(inputs, TauSettings(), EvaluationCode("with the group"))
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    return Project(tmp_path / "params.yaml", tmp_path)


def test_an_added_group_is_evaluated_compared_tabulated_and_explained(project, params):
    run = read_runs(params, project.artifacts)[0]
    near = run.group("photos_near", "msp", "flagged")
    far = run.group("photos_far", "msp", "flagged")
    # One of the two detections in near photos lies below τ, and the one in far photos; see
    # conftest.PHOTOS.
    assert {key: result.value for key, result in near.items()} == {"regions": 2, "share": 0.5}
    assert {key: result.value for key, result in far.items()} == {"regions": 1, "share": 1}
    low, high = near["share"].interval
    assert 0 <= low <= 0.5 <= high <= 1
    from_best = run.results.table.from_best("photos_near", "msp")
    assert from_best["flagged_share"].best in run.methods
    assert run.mean("near", "msp", METRICS["flagged_share"]).value == 0.5

    table = next(table for table in further_tables(run) if table.name == "pets-net-flagged")
    cells = table.cells.filter(method="msp").select("split_title", "text").iter_rows()
    assert dict(cells) == {"photos near": "50.0", "photos far": "100.0"}
    assert "pets-net,pets,photos_near,photos,near,msp,post-hoc,flagged_share,0.5" in to_csv([run])

    explained = explain_number(project, "pets-net", "msp", "photos_near", "flagged_share")
    assert (explained["value"], explained["formula"]) == (0.5, "flagged / 2 regions")
    assert explained["interval"] == (low, high)
    _, (change,) = compared_methods(
        project.artifacts, "pets-net", ("msp", "energy"), ["photos_near"], ["flagged_share"]
    )
    assert change.before == 0.5 and change.p is not None
