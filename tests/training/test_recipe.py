import pytest

from farther.errors import ParameterError
from farther.naming.registry import build
from farther_training.recipe import Recipe


def test_learning_rate_rises_in_a_line_and_falls_in_half_a_wave():
    recipe = Recipe(learning_rate=0.8, warmup_steps=4, final_learning_rate=0.5)
    assert [recipe.learning_rate_at(step, 12) for step in (0, 1, 3)] == pytest.approx(
        [0.2, 0.4, 0.8]
    )
    assert recipe.learning_rate_at(4, 12) == pytest.approx(0.8)
    assert recipe.learning_rate_at(8, 12) == pytest.approx(0.6)  # half way: the mean of 0.8 and 0.4
    assert recipe.learning_rate_at(12, 12) == pytest.approx(0.4)


def test_wrong_parameters_are_named():
    with pytest.raises(
        ParameterError, match=r"unknown parameter 'epoch'. Known: epochs, batch_size"
    ):
        build(Recipe, "recipe", {"epoch": 3})
    with pytest.raises(
        ParameterError, match=r"'augmentation.hue'.*less than or equal to 0.5, found 3"
    ):
        build(Recipe, "recipe", {"augmentation": {"hue": 3}})
