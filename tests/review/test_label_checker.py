"""Which images are looked at first, and why. `conftest.PHOTOS` says what the photos show."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.labelled import write_embeddings

from farther.curation import benchmark
from farther.errors import ParameterError
from farther.review import Catalogue, label_checker_for
from farther.review.catalogue import SURPLUS_WEIGHT
from farther.review.suspicion import surplus
from farther.similarity.embeddings import NameEmbeddings

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


# What CLIP adds


def test_surplus_is_what_the_best_id_name_fits_better_than_the_best_labelled_name():
    images = np.array([[1, 0], [0.6, 0.8], [0, 1.0]])
    found = surplus(
        images, np.array([[1.0, 0], [0.8, 0.6]]), np.array([[0, 1.0], [0.6, 0.8]]), np.array([1, 1])
    )
    np.testing.assert_allclose(found, [1, 0.96 - 1, 0.6])


def test_images_in_which_the_detector_sees_nothing_come_by_what_their_words_say(
    project, there, catalogue
):
    folder = project / "artifacts" / "embeddings"
    vectors = {"cat": [1, 0, 0], "dog": [0, 1, 0], "person": [0, 0, 1]}
    NameEmbeddings(name=list(vectors), embedding=np.eye(3)).write(folder / "pets" / "names.parquet")
    names = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0.6, 0.8], [0.6, 0.8, 0]]
    photos = NameEmbeddings(name=["Cat", "Dog", "Person", "Fox", "Kite"], embedding=np.array(names))
    photos.write(folder / "photos" / "names.parquet")
    looks = np.array([[1, 0, 0], [0, 0.6, 0.8], [0.6, 0.8, 0], [0, 1, 0], [0, 0, 1], [0, 0.8, 0.6]])
    write_embeddings(folder / "photos" / "val", "abcdef", looks)
    found = Catalogue.read(
        "tiny", catalogue.benchmark, {}, project, label_checker_for("tiny", there, project)
    )
    rank = dict(
        zip(
            found.images.image_id,
            np.round((found.queue - found.suspicion) / SURPLUS_WEIGHT * 5).astype(int),
            strict=True,
        )
    )
    # Surplus: a 1 - 1, b 0.8 - 1, c 0.8 - 1, d 1 - 0.6, e 1 - 0, f 0.8 with nothing labelled.
    assert [rank[image] for image in "adfe"] == [2, 3, 4, 5] and {rank["b"], rank["c"]} == {0, 1}
    assert list(found.suspicion) == list(catalogue.suspicion)
