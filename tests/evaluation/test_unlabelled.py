"""Images without annotations: never a missed object nor a false unknown.

All metrics that need no boxes stay the same.
"""

import numpy as np
import pytest
from tests.evaluation.evaluated_runs import evaluated, write_json, write_scores, write_split
from tests.support.fitting import write_fitted

from farther.evaluation import files as run
from farther.evaluation.settings import EvaluationSettings
from farther.tables import Objects
from farther.tables.annotations import UNLABELLED

#: Groups that need no boxes in the OOD split.
WITHOUT_BOXES = {"ood", "ood_per_image", "images", "correct_id"}
SIDE = 900


def unlabelled(objects, images):
    """The objects, but with one crowd for all that some images show."""
    kept = objects[~np.isin(objects.image_id.astype(str), list(images))]
    crowds = Objects(
        image_id=sorted(images),
        object_id=1_000_000 + np.arange(len(images)),
        box=np.tile([-SIDE, -SIDE, SIDE, SIDE], (len(images), 1)),
        category=[UNLABELLED] * len(images),
        is_crowd=np.ones(len(images), dtype=bool),
    )
    return Objects.concatenate([kept, crowds])


@pytest.fixture(scope="module")
def results(tmp_path_factory, world):
    """Evaluates an OOD split of some objects and regions."""
    id_objects, id_regions = world(1)
    renamed, found = world(2)
    names = np.array(["fox", "owl"], dtype=object)[np.arange(len(renamed)) % 2]
    ood_objects = renamed.with_columns(category=names)
    scores = np.random.default_rng(3).random(len(found))

    def call(name, objects, rows=slice(None)):
        files = run.RunFiles("r", "voc", tmp_path_factory.mktemp(name))
        for split in ("val", "test"):
            write_split(files, split, id_objects, id_regions)
        write_split(files, "far", objects, found[rows])
        write_json(files.threshold, {"threshold": 0.3, "rule": 0.3})
        write_fitted(files.all_fitted, {"msp": {"fixed_threshold": 0.5}})
        write_scores(
            files, "msp", "test", id_regions, np.random.default_rng(4).random(len(id_regions))
        )
        write_scores(files, "msp", "far", found[rows], scores[rows])
        report = evaluated(files, ("msp",), ["far"], EvaluationSettings(replicates=100))
        call.wilderness = report.wilderness
        groups = report.methods["msp"].splits["far"].groups
        return {group: (of.values, of.parts) for group, of in groups.items()}

    return call, ood_objects, found


@pytest.fixture(scope="module")
def without_boxes(results):
    """Metrics of the split where none of its images is labelled."""
    call, objects, _ = results
    return call("without", unlabelled(objects, set(objects.image_id)))


def test_what_needs_no_boxes_is_the_same_without_them(results, without_boxes):
    call, objects, _ = results
    with_boxes = call("a", objects)
    for group in WITHOUT_BOXES:
        assert with_boxes[group] == without_boxes[group]
    assert 0 < without_boxes["images"][0]["as_known"] <= 1


def test_metrics_of_objects_are_undefined_where_no_image_has_boxes(without_boxes):
    values = without_boxes["open_set"][0]
    assert {
        name: values[name] for name in ("nose", "ap_u", "p_u", "r_u", "missed")
    } == dict.fromkeys(("nose", "ap_u", "p_u", "r_u", "missed"))
    assert (values["tp_u"], values["fp_u"], values["fn_missed"]) == (0, 0, 0)


def test_with_boxes_in_some_images_metrics_of_objects_are_those_of_these_images(results):
    call, objects, regions = results
    images = set(sorted(set(objects.image_id))[::2])
    mixed = call("a", unlabelled(objects, images))
    chosen = ~np.isin(regions.image_id.astype(str), list(images))
    labelled = objects[~np.isin(objects.image_id.astype(str), list(images))]
    alone = call("b", labelled, chosen)
    for group in mixed.keys() - WITHOUT_BOXES:
        assert mixed[group] == alone[group], group
    assert mixed["open_set"][0]["unknown_objects"] == int((~labelled.is_crowd).sum())


def test_open_world_metrics_are_undefined_where_no_image_has_boxes(without_boxes):
    values = without_boxes["open_world"][0]
    assert {values[name] for name in ("u_recall", "a_ose", "wi", "ap_k_before", "ap_k")} == {None}


def test_a_class_of_this_name_is_a_class():
    box = [[0, 0, 9, 9]] * 3
    named = Objects(
        image_id=["a", "b", "c"],
        object_id=[0, 1, 2],
        box=box,
        category=[UNLABELLED, UNLABELLED, "fox"],
        is_crowd=[False, True, True],
    )
    assert named.is_unlabelled.tolist() == [False, True, False]


def test_detections_in_unlabelled_images_are_wrong_but_of_no_known_cause(results):
    call, every, _ = results
    objects = every[
        ~(every.is_crowd | every.is_difficult)
    ]  # detections on these have no cause with boxes
    call("a", objects)
    labelled = call.wilderness
    call("b", unlabelled(objects, set(objects.image_id)))
    found = call.wilderness
    assert found.at_recall == labelled.at_recall
    assert (found.map_closed, found.map_open) == (labelled.map_closed, labelled.map_open)
    assert set(found.errors.shares["unknown_unknown"]) == {None}
    assert UNLABELLED not in found.confusion
    wrong = (
        labelled.errors.shares["unknown_unknown"][0] + labelled.errors.shares["mixed_unknown"][0]
    )
    assert found.errors.shares["mixed_unknown"][0] == pytest.approx(wrong)
