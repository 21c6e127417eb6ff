"""A user-defined metric is computed and stored beside the others."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.support.fitting import write_fitted

from farther.errors import ParameterError
from farther.evaluation import kept_results
from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import Roles, RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.metrics.user_defined import METRICS
from farther.naming.registry import build
from farther.scoring.inputs import TauSettings
from farther.tables import Images, Scores
from farther.tables.documents import read_json, write_json

PAGE = (Path(__file__).parents[2] / "docs/extending.md").read_text(encoding="utf-8")
FIRST, SECOND = (0, 0, 10, 10), (20, 20, 30, 30)


@pytest.fixture
def wanted():
    """The metric of docs/extending.md, and the line that asks for it."""
    (code,) = [
        code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "(Metric)" in code
    ]
    exec(code, {"__name__": "confidence_of_errors"})
    (line,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    return yaml.safe_load(line)["evaluate"]


@pytest.fixture
def files(tmp_path, objects, regions):
    """Method `msp` on a split: two foxes are detected as cats, at 0.8 and 0.6; one is flagged."""
    files = RunFiles("r", "voc", tmp_path)
    id_objects, id_regions = objects(("i", FIRST, "cat")), regions(("i", FIRST, 0.9, "cat"))
    foxes = objects(("o", FIRST, "fox"), ("o", SECOND, "fox"), ("p", FIRST, "fox"))
    found = regions(("o", FIRST, 0.8), ("o", SECOND, 0.6), ("p", FIRST, 0.9))
    tables = {
        "val": (id_objects, id_regions),
        "test": (id_objects, id_regions),
        "far": (foxes, found),
    }
    for split, (labelled, detected) in tables.items():
        write(files, split, labelled, detected, np.array([1.0, 1.0, 0.0])[: len(detected)])
    write_json(files.threshold, {"threshold": 0.5, "rule": 0.5})
    write_fitted(files.all_fitted, {"msp": {"fixed_threshold": 0.5}})
    return files


def evaluated(files, settings, **user_defined):
    """Its results; keywords are the digests of the code of user-defined metrics."""
    inputs = RunInputs(files, Roles(["far"]), settings)
    results, _ = evaluate_run(inputs, TauSettings(), EvaluationCode("", user_defined))
    return results


def test_it_is_stored_beside_the_other_metrics(files, wanted):
    settings = build(EvaluationSettings, "evaluate", {**wanted, "replicates": 0})
    report = evaluated(files, settings)
    assert report.methods["msp"].splits["far"].of_group("user_defined") == {
        "confidence_of_errors": pytest.approx(0.7)
    }
    written = read_json(files.metrics / "far/msp.json")
    assert written["confidence_of_errors"] == pytest.approx(0.7)
    assert written["nose"] == pytest.approx(2 / 3)


def test_its_parameters_count(files, wanted):
    wanted["user_defined"]["confidence_of_errors"]["least"] = 0.7
    settings = EvaluationSettings(replicates=0, user_defined=wanted["user_defined"])
    report = evaluated(files, settings)
    assert report.methods["msp"].splits["far"].of_group("user_defined") == {
        "confidence_of_errors": pytest.approx(0.8)
    }


def test_only_one_that_is_new_or_changed_is_computed(files, wanted, monkeypatch):
    calls = []
    kind = type(METRICS.create("confidence_of_errors"))
    compute = kind.compute
    evaluate_method = kept_results.evaluate_method
    monkeypatch.setattr(
        kind, "compute", lambda self, case: calls.append(self.least) or compute(self, case)
    )
    monkeypatch.setattr(
        kept_results,
        "evaluate_method",
        lambda *of: calls.append("the others") or evaluate_method(*of),
    )

    def evaluate(digest: str, **asked) -> list:
        calls.clear()
        settings = EvaluationSettings(replicates=0, user_defined=asked)
        evaluated(files, settings, **dict.fromkeys(asked, digest))
        return list(calls)

    assert evaluate("a") == ["the others"]
    assert evaluate("a", confidence_of_errors={"least": 0.7}) == [0.7]
    assert evaluate("a", confidence_of_errors={"least": 0.7}) == []
    assert evaluate("a", confidence_of_errors={"least": 0.5}) == [0.5]
    assert evaluate("b", confidence_of_errors={"least": 0.5}) == [0.5]
    assert "confidence_of_errors" in read_json(files.metrics / "far/msp.json")
    assert evaluate("b") == []
    assert "confidence_of_errors" not in read_json(files.metrics / "far/msp.json")


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (
            {"confidence_of_error": {}},
            "unknown metric 'confidence_of_error'. Did you mean 'confidence_of_errors'?",
        ),
        ({"confidence_of_errors": {"most": 1}}, "unknown parameter 'most'. Known: least"),
        ({"nose": {}}, "evaluate.user_defined: nose: a metric of farther; choose another name"),
    ],
)
def test_a_wrong_line_is_refused_before_anything_is_computed(files, wanted, asked, problem):
    with pytest.raises(ParameterError, match=re.escape(problem)):
        evaluated(files, EvaluationSettings(user_defined=asked))
    assert not files.metrics.exists()


def write(files, split, objects, regions, scores):
    """A split's tables, and scores of all its regions."""
    names = sorted({*objects.image_id})
    size = np.full(len(names), 900)
    images = Images(
        image_id=names,
        dataset=["d"] * len(names),
        file=names,
        width=size,
        height=size,
        digest=["0"] * len(names),
    )
    images.write(files.images(split))
    objects.write(files.objects(split))
    regions.write(files.regions(split))
    Scores(image_id=regions.image_id, region_id=regions.region_id, score=scores).write(
        files.scores("msp", split)
    )
