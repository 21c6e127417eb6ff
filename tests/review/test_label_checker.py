"""The run that checks labels, and the classes that it shares with a benchmark."""

from dataclasses import replace

import pytest

from farther.curation import benchmark
from farther.errors import ParameterError
from farther.review import Catalogue, label_checker_for

BOX = [10, 10, 40, 30]


def other_benchmark(project, there, saw, names):
    """Parameters with a benchmark of animals whose detector saw a `dog` in `f` and `a`.

    Args:
        names: Names of the detector's classes.
    """
    zoo = {**there["benchmarks"]["tiny"], "id": "zoo"}
    regions = saw(("f", BOX, 0.8, 1), ("a", BOX, 0.7, 0))
    regions.header = replace(regions.header, classes=names)
    regions.write(project / "artifacts" / "regions" / "keen" / "photos_far")
    (project / "data" / "names").mkdir(parents=True)
    (project / "data" / "names" / "classes.yaml").write_text(
        "dog: {zoo: [hound], pets: [dog]}\nlion: {zoo: [lion]}\n"
    )
    detectors = {**there["detectors"], "keen": {"benchmark": "zoo"}}
    return {**there, "benchmarks": {**there["benchmarks"], "zoo": zoo}, "detectors": detectors}


def test_a_run_of_another_benchmark_looks_by_the_names_that_both_know(project, there, saw):
    params = other_benchmark(project, there, saw, ("lion", "hound", "ant"))
    checker = label_checker_for("tiny", params, project, "keen")
    assert checker.id_class == {"hound": "dog"}
    catalogue = Catalogue.read(
        "tiny", benchmark("tiny", params["benchmarks"]["tiny"]), {}, project, checker
    )
    suspicion = dict(zip(catalogue.images.image_id, catalogue.suspicion, strict=True))
    assert suspicion == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 0, "f": pytest.approx(0.8)}
    assert list(catalogue.detections.name) == ["dog"]


def test_a_run_that_knows_no_id_class_is_refused(project, there, saw):
    params = other_benchmark(project, there, saw, ("lion", "bee", "ant"))
    with pytest.raises(
        ParameterError, match="'keen' knows none of the classes of benchmark 'tiny'"
    ):
        label_checker_for("tiny", params, project, "keen")


def test_the_parameters_say_which_run_looks_if_it_has_regions(project, there, saw):
    params = other_benchmark(project, there, saw, ("lion", "hound", "ant"))
    assert label_checker_for("tiny", {**params, "review": {"tiny": "keen"}}, project).run == "keen"
    assert label_checker_for("tiny", {**params, "review": {"tiny": "gone"}}, project).run == "small"
