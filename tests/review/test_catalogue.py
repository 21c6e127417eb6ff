"""Which images come first. `conftest.PHOTOS` says what the photos show."""

import numpy as np
import pytest
from tests.support.labelled import write_embeddings

from farther.curation import benchmark
from farther.review import Catalogue, label_checker_for
from farther.review.catalogue import SURPLUS_WEIGHT
from farther.similarity.embeddings import NameEmbeddings
from farther.tables import Objects
from farther.tables.annotations import UNLABELLED


def test_an_image_that_nobody_annotated_explains_no_detection(project, there):
    folder = project / "artifacts" / "tables" / "photos" / "val"
    objects = Objects.read(folder / "objects.parquet")
    in_e = objects.image_id == "e"
    whole = Objects(
        image_id=["e"], object_id=[99], box=[[0, 0, 64, 48]], category=[UNLABELLED], is_crowd=[True]
    )
    Objects.concatenate([objects[~in_e], whole]).write(folder / "objects.parquet")
    made = benchmark("tiny", there["benchmarks"]["tiny"])
    catalogue = Catalogue.read(
        "tiny", made, there["datasets"], project, label_checker_for("tiny", there, project)
    )
    (row,) = catalogue.frame.filter(image_id="e")["image"]
    assert catalogue.suspicion[row] == pytest.approx(0.95)


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
