"""Remarks on fitted methods."""

from types import SimpleNamespace

import numpy as np
import pytest

from farther.evaluation import methods
from farther.evaluation.results import FittedMethod
from farther.tables import Header


def test_negative_prompts_that_name_a_test_category_are_remarked_on():
    classes = ["cat", "Fire hydrant", "cloud", "Traffic light"]
    state = {"fitted_on_": {"classes": classes, "unknown_columns": [1, 2]}}
    fitted = FittedMethod(name="neg_label", state=state)
    split = SimpleNamespace(
        objects=SimpleNamespace(category=np.array(["fire_hydrant", "traffic light", "cup"]))
    )
    folder = SimpleNamespace(header=Header(classes=("cat", "thing"), unknown_columns=(1,)))
    inputs = SimpleNamespace(id_split=SimpleNamespace(folder=folder), tested=[split])
    expected = "negative prompts name 1 of the 3 categories of the test splits: fire_hydrant"
    assert methods._leaks(fitted, inputs) == [expected]
    assert methods._leaks(FittedMethod(name="knn", state=state), inputs) == []


@pytest.mark.parametrize("count", [10, 11])
def test_a_remark_names_ten_categories_and_says_that_there_are_more(count):
    names = [f"c{number:02}" for number in range(count)]
    header = Header(classes=("cat", *names), unknown_columns=tuple(range(1, count + 1)))
    split = SimpleNamespace(objects=SimpleNamespace(category=np.array(names)))
    inputs = SimpleNamespace(
        id_split=SimpleNamespace(folder=SimpleNamespace(header=header)), tested=[split]
    )
    (remark,) = methods._leaks(FittedMethod(name="knn"), inputs)
    assert remark.endswith(": " + ", ".join(names[:10]) + " and more" * (count > 10))
