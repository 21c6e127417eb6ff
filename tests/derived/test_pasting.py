"""Objects pasted into a scene: boxes, hidden shares, shapes and colours."""

import numpy as np
import pytest
from PIL import Image

from farther.derived import Canvas, Pasting, Shape
from farther.derived.pasting import matched, place, trimmed


def sprite(width: int, height: int, colour=(0, 0, 0), alpha: int = 255) -> Image.Image:
    return Image.new("RGBA", (width, height), (*colour, alpha))


def white(width: int = 40, height: int = 30) -> np.ndarray:
    return np.full((height, width, 3), 255, np.uint8)


def test_a_pasted_object_has_the_tight_box_of_its_opaque_pixels():
    picture = sprite(8, 6, alpha=100)
    picture.paste(sprite(4, 3), (2, 1))
    canvas = Canvas(white(), np.zeros((0, 4)))
    number = canvas.paste(picture, 10, 5)
    assert canvas.visible_box(number).tolist() == [12, 6, 16, 9]
    assert canvas.area(number) == 12


def test_the_box_of_an_object_is_what_those_in_front_leave_of_it():
    canvas = Canvas(white(), np.zeros((0, 4)))
    behind = canvas.paste(sprite(10, 10), 0, 0)
    front = canvas.paste(sprite(4, 10), 0, 0)
    assert canvas.visible_box(behind).tolist() == [4, 0, 10, 10]
    assert canvas.visible_box(front).tolist() == [0, 0, 4, 10]
    canvas.paste(sprite(20, 20), 0, 0)
    assert canvas.visible_box(behind) is None


def test_a_known_box_moves_in_only_where_all_of_its_edge_is_covered():
    canvas = Canvas(white(), np.array([[10, 10, 20, 20], [30, 0, 36.5, 8.5]]))
    canvas.paste(sprite(13, 4), 9, 8)
    canvas.paste(sprite(3, 3), 13, 15)
    canvas.paste(sprite(3, 4), 30, 4)
    assert canvas.known_boxes().tolist() == [[10, 12, 20, 20], [30, 0, 36.5, 8.5]]


def test_pixels_are_blended_by_alpha():
    canvas = Canvas(white(), np.zeros((0, 4)))
    canvas.paste(sprite(2, 2, (0, 100, 200), alpha=51), 0, 0)
    assert canvas.pixels[0, 0].tolist() == [204, 224, 244]
    assert canvas.pixels[2, 2].tolist() == [255, 255, 255]


def test_what_several_objects_hide_of_one_adds_up():
    canvas = Canvas(white(), np.array([[0, 0, 10, 10]]))
    assert canvas.hides(sprite(3, 10), 0, 0) == pytest.approx(0.3)
    canvas.paste(sprite(3, 10), 0, 0)
    assert canvas.hides(sprite(2, 10), 5, 0) == pytest.approx(0.5)
    assert canvas.hides(sprite(2, 10), 2, 0) == pytest.approx(0.4)
    assert canvas.hides(sprite(5, 5), 30, 20) == pytest.approx(0.3)


@pytest.mark.parametrize("hidden", [0.0, 0.1, 0.5])
def test_no_object_is_hidden_more_than_allowed(hidden):
    rng = np.random.default_rng(1)
    params = Pasting(hidden=hidden, rotate=40, tries=5)
    for _ in range(30):
        corner = rng.uniform(0, 20, (3, 2))
        canvas = Canvas(white(), np.hstack([corner, corner + rng.uniform(1, 9, (3, 2))]))
        numbers = [place(canvas, sprite(9, 5), 12, params, rng) for _ in range(4)]
        for left, top, right, bottom in canvas.box:
            window = canvas.owner[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))]
            assert (window >= 0).mean() <= hidden + 1e-9
        for number in numbers:
            if number is not None:
                assert canvas.area(number) >= (1 - hidden) * canvas.sizes[number] - 1e-9


def test_an_object_without_room_is_left_out():
    canvas = Canvas(white(), np.array([[0, 0, 40, 30]]))
    assert place(canvas, sprite(5, 5), 20, Pasting(hidden=0), np.random.default_rng(0)) is None
    assert (canvas.pixels == 255).all()


def test_a_shape_has_the_longest_side_asked_for_and_turning_keeps_its_area():
    picture = Shape(side=20).transform(sprite(4, 8))
    assert picture.size == (10, 20)
    turned = np.asarray(Shape(side=20, degrees=90).transform(sprite(4, 8)).getchannel("A")) >= 128
    assert turned.shape == (10, 20)
    slanted = np.asarray(Shape(side=20, degrees=30).transform(sprite(4, 8)).getchannel("A")) >= 128
    assert slanted.sum() == pytest.approx(200, rel=0.05)


def test_a_feathered_edge_fades_inwards_only():
    hole = sprite(30, 30)
    hole.paste(sprite(10, 10, alpha=0), (10, 10))
    before = np.asarray(hole.getchannel("A"))
    after = np.asarray(Shape(side=30, feather=2).transform(hole).getchannel("A"))
    inner = after[: before.shape[0], : before.shape[1]]
    assert after.shape == before.shape
    assert (inner <= before).all()
    assert inner[5, 5] > 230
    assert inner[5, 0] < 60


def test_what_feathering_leaves_nothing_of_is_no_cut_out():
    assert Shape(side=3, feather=10).transform(sprite(3, 3)) is None
    assert trimmed(sprite(5, 5, alpha=20)) is None


def test_matched_colours_have_the_scenes_mean_and_share_zero_changes_nothing():
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(90, 130, (20, 20, 3), dtype=np.uint8))
    picture.putalpha(255)
    scene = rng.integers(60, 120, (30, 30, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(matched(picture, scene, 0)), np.asarray(picture))
    colours = np.asarray(matched(picture, scene, 1))[..., :3].reshape(-1, 3).astype(float)
    scene_colours = scene.reshape(-1, 3)
    np.testing.assert_allclose(colours.mean(axis=0), scene_colours.mean(axis=0), atol=0.5)
    np.testing.assert_allclose(colours.std(axis=0), scene_colours.std(axis=0), rtol=0.03)
