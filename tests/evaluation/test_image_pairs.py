"""Images against those that they were made from."""

import pytest
from tests.evaluation.evaluated_runs import (
    evaluated_inputs,
    write_scores,
)
from tests.support.fitting import list_methods

from farther.errors import DataError
from farther.evaluation import files as run
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.tables import Regions


def test_images_are_compared_with_those_that_they_were_made_from(files):
    list_methods(files.all_fitted, ["msp"])

    def pairs():
        roles = run.Roles(["far"], pairs={"far": {"of": "val", "name": "([0-9])", "by": "file"}})
        report = evaluated_inputs(RunInputs(files, roles, EvaluationSettings(replicates=100)))
        split = report.methods["msp"].splits["far"]
        return split.groups["pairs"]

    val = Regions.concatenate(
        list(RunInputs(files, run.Roles(), EvaluationSettings()).id_split.folder.batches())
    )
    write_scores(files, "msp", "val", val, [0.9, 0.7, 0.1])
    found = pairs()
    assert (found.values["images"], found.values["scenes"]) == (2, 2)
    assert found.values["without_partner"] == 1  # o3
    # One fox is misclassified and one found; at both first places something is detected without
    # them, too.
    assert found.parts["with"] == {"found": 1 / 3, "misclassified": 1 / 3, "known": None}
    assert found.parts["without"] == {"found": 0, "misclassified": 2 / 3, "known": None}
    assert (found.values["found"], found.values["misclassified"]) == (1 / 3, -1 / 3)
    assert found.intervals["found"] == (0, 0.5)
    write_scores(files, "msp", "val", val, [0.1, 0.7, 0.1])  # flagged in the image without the fox
    assert pairs().parts["without"] == {"found": 1 / 3, "misclassified": 1 / 3, "known": None}
    with pytest.raises(
        DataError,
        match=r"no image of split 'far' has a partner in split 'val' by the pattern '\(.\*\)'",
    ):
        roles = run.Roles(["far"], pairs={"far": {"of": "val", "name": "(.*)", "by": "image_id"}})
        evaluated_inputs(RunInputs(files, roles, EvaluationSettings(replicates=0)))
