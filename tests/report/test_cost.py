"""The page of cost and quality."""

import json

from tests.report.conftest import run_of

from farther.report import cost

GAINS = {
    "baseline": "confidence",
    "methods": {
        "confidence": {"auroc": {"value": 0.7, "gain": 0.0, "gain_interval": [0.0, 0.0]}},
        "knn": {"auroc": {"value": 0.72, "gain": 0.02, "gain_interval": [-0.01, 0.05]}},
        "odin": {"auroc": {"value": 0.75, "gain": 0.05, "gain_interval": None}},
    },
}
MEASURED = {
    "machine": {"processor": "Some CPU", "gpu": None},
    "images": 4,
    "runs": {
        "net": {
            "key": "",
            "detector_ms": 40.0,
            "passes": {"perturbed": {"forward": 1, "backward": 1, "ms": 90.0}},
            "methods": {
                "confidence": {"pass": None, "ms": 0.0, "bytes": 40.0},
                "knn": {"pass": None, "ms": 0.5, "bytes": 5200.0},
                "odin": {"pass": "perturbed", "ms": 0.1, "bytes": 800.0},
            },
        }
    },
}


def content(tmp_path, measured=MEASURED):
    (tmp_path / "cost.json").write_text(json.dumps(measured))
    run = run_of({"knn": {}, "odin": {}, "confidence": {}}, {"gains": GAINS})
    return cost.content([run], tmp_path / "cost.json")


def test_the_message_compares_the_best_methods_with_and_without_further_passes(tmp_path):
    said = "the best method with further passes, odin, has an AUROC 3.0 points above the best without, kNN, at 90.1"
    assert said in content(tmp_path)["message"]


def test_the_chart_shows_gain_by_time_of_pass_and_scoring(tmp_path):
    (chart,) = content(tmp_path)["groups"]["AUROC"].charts
    points = {row["method"]: row for row in chart.spec["data"]["values"]}
    assert (points["odin"]["ms"], points["odin"]["gain"], points["odin"]["low"]) == (90.1, 0.05, None)
    assert (points["kNN"]["low"], points["kNN"]["high"]) == (-0.01, 0.05)
    assert points["Confidence"]["ms"] == cost.SHORTEST_MS
    assert "odin: +5.0 at 90.1 ms" in chart.description


def test_the_table_has_passes_times_bytes_and_gains(tmp_path):
    confidence, knn, odin = ([text for text, _ in row] for row in content(tmp_path)["tables"]["net (voc)"].rows)
    assert confidence[6] == "baseline"
    assert knn == ["kNN", "—", "0", "0", "0.500", "5.2", "+2.0 (-1.0 to +5.0)", "—"]
    assert odin[:5] == ["odin", "perturbed", "1", "1", "90.1"]


def test_before_anything_is_measured_the_page_says_what_to_run(tmp_path):
    run = run_of({"knn": {}}, {"gains": GAINS})
    assert cost.content([run], tmp_path / "cost.json")["tables"] == {}


def test_without_times_there_is_a_table_but_no_chart(tmp_path):
    imported = json.loads(json.dumps(MEASURED))
    imported["runs"]["net"] |= {"detector_ms": None}
    imported["runs"]["net"]["passes"]["perturbed"]["ms"] = None
    found = content(tmp_path, imported)
    assert found["groups"] == {}
    assert [text for text, _ in list(found["tables"]["net (voc)"].rows)[2]][4] == "—"
