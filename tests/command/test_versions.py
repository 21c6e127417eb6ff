"""What `farther doctor` says of results that other versions of packages made."""

import json

import pytest

from farther.command.doctor.versions import versions
from farther.incremental import keyed
from farther.incremental.keyed import Keyed


@pytest.fixture
def artifacts(tmp_path, monkeypatch):
    """A project's artifacts with scores of two methods, made with NumPy 2.3.0."""
    use(monkeypatch, numpy="2.3.0", torch="2.9")
    make(tmp_path / "artifacts", "knn", "msp")
    return tmp_path / "artifacts"


def use(monkeypatch, **installed: str) -> None:
    monkeypatch.setattr(keyed, "_installed_version", installed.get)


def make(artifacts, *methods: str) -> None:
    scores = Keyed(artifacts / "scores/voc-vos")
    for name in methods:
        with scores.make(f"{name}/test.txt", key="1") as path:
            path.write_text("0.5")


def test_results_of_the_installed_versions_are_not_mentioned(artifacts):
    assert list(versions(artifacts)) == []


def test_files_of_other_programs_beside_the_records_are_not_read(artifacts):
    for name in (".gitignore", ".DS_Store"):
        (artifacts / "records/scores" / name).write_text("/voc-vos.json\n")
    assert list(versions(artifacts)) == []


def test_results_of_another_version_are_named_with_both_versions(artifacts, monkeypatch):
    use(monkeypatch, numpy="2.4.1", torch="2.9")
    (finding,) = versions(artifacts)
    assert (finding.topic, finding.name, finding.state) == ("warnings", "numpy", "note")
    assert finding.text.startswith(
        "2.3.0 made scores/voc-vos; 2.4.1 is installed. `farther repro --force STAGE`"
    )


def test_an_item_that_was_made_again_has_the_new_version_and_the_others_keep_theirs(
    artifacts, monkeypatch
):
    use(monkeypatch, numpy="2.4.1")
    make(artifacts, "knn")
    record = json.loads((artifacts / "records/scores/voc-vos.json").read_text())
    environments = {
        name: record["environments"][item["environment"]] for name, item in record["items"].items()
    }
    assert environments == {"knn/test.txt": {"numpy": "2.4.1"}, "msp/test.txt": {"numpy": "2.3.0"}}
    assert [finding.name for finding in versions(artifacts)] == ["numpy"]


def test_packages_that_run_networks_concern_only_what_networks_made(artifacts, monkeypatch):
    use(monkeypatch, numpy="2.3.0", torch="3.0")
    assert list(versions(artifacts)) == []
    with Keyed(artifacts / "regions/voc-vos").make("test.txt", key="1") as path:
        path.write_text("boxes")
    use(monkeypatch, numpy="2.3.0", torch="3.1")
    (finding,) = versions(artifacts)
    assert finding.text.startswith("3.0 made regions/voc-vos; 3.1 is installed")


def test_a_package_that_is_gone_and_a_damaged_record_are_named(artifacts, monkeypatch):
    use(monkeypatch)
    (artifacts / "records/outcomes").mkdir()
    (artifacts / "records/outcomes/a.json").write_text("{")
    findings = {finding.name: finding for finding in versions(artifacts)}
    assert findings["numpy"].text.startswith("2.3.0 made scores/voc-vos; it is not installed now")
    assert findings["outcomes/a"].state == "wrong"
    assert "not a record of kept outputs: delete it" in findings["outcomes/a"].text
