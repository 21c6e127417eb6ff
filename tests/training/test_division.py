"""Training on the known classes of a division."""

import pytest
from tests.training.test_job import run

from farther import detectors
from farther.curation import benchmark, read_rules
from farther.errors import ParameterError

RULES = "id_classes: {disc: {}, square: {}}\nprotocols: {paper: {}}\n"


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "shapes.yaml"
    path.write_text(RULES)
    return path


def test_only_images_of_known_classes_are_learned_from_and_the_others_are_counted(
    tmp_path, ingested, rules
):
    card = run(
        "classifier", tmp_path, ingested, division={"rules": str(rules), "known": ["square"]}
    )
    assert card["classes"] == ["square"]
    assert (card["images"], card["objects"], card["left_out"]) == (4, 4, {"disc": 4})
    assert detectors.create(
        "classifier", weights=tmp_path / "out/demo.safetensors"
    ).header().classes == ("square",)


def test_a_trainer_and_a_benchmark_take_a_division_for_the_same_classes(tmp_path, ingested, rules):
    division = {"known": 1, "seed": 3}
    card = run("classifier", tmp_path, ingested, division={"rules": str(rules), **division})
    splits = {"unknown": {"dataset": "shapes", "subset": "test", "distance": "near"}}
    made = benchmark(
        "shapes", {"id": "shapes", "rules": rules, "division": division, "splits": splits}
    )
    assert tuple(card["classes"]) == read_rules(made).id_classes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"division": {"known": ["cube"]}}, "'cube' is not a class. Classes: disc, square"),
        (
            {"division": {"known": 2, "seed": 1}},
            "all 2 classes are known, which leaves no unknown class",
        ),
        (
            {"division": {"known": 1, "seed": 1}, "classes": ["square"]},
            "it gives the classes to learn; leave",
        ),
    ],
)
def test_a_division_that_cannot_be_is_refused(tmp_path, ingested, rules, changes, message):
    changes["division"]["rules"] = str(rules)
    with pytest.raises(ParameterError) as error:
        run("classifier", tmp_path, ingested, **changes)
    assert message in str(error.value)


def test_classes_that_the_dataset_does_not_have_are_named(tmp_path, ingested, rules):
    rules.write_text("id_classes: {cube: {}, square: {}}\nprotocols: {paper: {}}\n")
    with pytest.raises(
        ParameterError, match=r"'cube' of .*shapes.yaml is not a category of 'shapes'"
    ):
        run("classifier", tmp_path, ingested, division={"rules": str(rules), "known": ["cube"]})
