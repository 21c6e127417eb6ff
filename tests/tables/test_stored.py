"""JSON files that a stage writes and others read."""

from farther.tables import stored
from farther.tables.documents import write_json


def test_what_no_stage_has_written_is_empty_and_what_one_wrote_is_read(tmp_path):
    assert stored.ingest_warnings(tmp_path) == {"counts": {}, "warnings": []}
    assert stored.curate_warnings(tmp_path) == []
    assert stored.read_times(tmp_path / "times.json") == {"machine": None, "runs": {}}
    assert stored.read_cost(tmp_path / "cost.json") == {"images": 0, "runs": {}}
    assert stored.similarities(tmp_path / "similarity.json") == stored.Similarities()
    near = {"images": 3, "similarity": 0.7, "median": 0.7, "low": 0.6, "high": None, "elsewhere": 0}
    write_json(tmp_path / "similarity.json", {"similarity": {"auroc_of_near": 0.5}, "near": near})
    read = stored.similarities(tmp_path / "similarity.json")
    assert (read.splits, read.similarity.auroc_of_near) == ({"near": near}, 0.5)
    write_json(tmp_path / stored.WARNINGS, {"warnings": ["one"]})
    assert stored.curate_warnings(tmp_path) == ["one"]
    times = {"machine": {"processor": "x", "gpu": None}, "runs": {}}
    write_json(tmp_path / "times.json", times)
    assert stored.read_times(tmp_path / "times.json") == times
