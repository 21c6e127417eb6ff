"""Example images are chosen by the outcomes that the evaluation has."""

import shutil

from farther.report.examples import examples
from farther.tables import Objects


def test_the_classes_that_the_detector_knows_are_not_unknown_objects(tmp_path, project):
    copy = type(project)(tmp_path / "copy")
    shutil.copytree(project.root, copy.root, ignore=shutil.ignore_patterns("report"))
    file = copy.artifacts / "splits" / "zoo" / "wild" / "objects.parquet"
    objects = Objects.read(file)
    Objects(**{**objects.columns(), "category": ["cat", "gnu", "gnu", "gnu"]}).write(file)
    shown = examples(copy.run, "wild", "one", copy.artifacts, copy.roots, 10, 64)
    # All that w1 shows is a cat, which the detector knows: it has no unknown object.
    assert [example.image_id for example in shown] == ["w2", "w3"]


def test_the_evaluation_s_own_iou_decides(tmp_path, project):
    copy = type(project)(tmp_path / "copy")
    shutil.copytree(project.root, copy.root, ignore=shutil.ignore_patterns("report"))
    file = copy.artifacts / "splits" / "zoo" / "wild" / "objects.parquet"
    objects = Objects.read(file)
    # Of w1's zebra the detection covers 24 × 32 of 24 × 40 pixels: an IoU of 0.8.
    box = [[4, 0, 28, 40], *objects.box[1:].tolist()]
    Objects(**{**objects.columns(), "box": box}).write(file)
    for iou, first in ((0.5, "w1"), (0.9, "w2")):
        copy.run.evaluation["settings"]["iou"] = iou
        shown = examples(copy.run, "wild", "one", copy.artifacts, copy.roots, 1, 64)
        assert [example.image_id for example in shown] == [first]
