import numpy as np
import pytest
from tests.similarity.embedded import REFERENCE, split

from farther.errors import DataError, ParameterError
from farther.naming.registry import build
from farther.similarity.stratify import (
    Cuts,
    ImageSimilarity,
    StratifyParams,
    best_cut,
    histogram,
    mean_similarities,
    separations,
    split_similarities,
    stratify,
)


def test_similarity_is_the_cosine_to_the_nearest_id_image():
    images, _ = stratify(REFERENCE, [split("near", "near", [60, 10])])
    np.testing.assert_allclose(images.similarity, np.cos(np.deg2rad([30, 10])), atol=1e-6)
    assert images.neighbour.tolist() == ["train 1", "train 0"]


def test_the_cut_between_near_and_far_is_half_way_between_the_groups():
    images, cuts = stratify(
        REFERENCE, [split("n", "near", [10, 100]), split("f", "far", [-40, -60])]
    )
    assert cuts.near == pytest.approx((np.cos(np.deg2rad(10)) + np.cos(np.deg2rad(40))) / 2)
    assert cuts.farther is None
    assert images.suggested.tolist() == ["near", "near", "far", "far"]
    assert (images.margin > 0).all()


def test_an_image_on_the_wrong_side_is_more_doubtful_than_one_close_to_the_cut():
    near, far = split("n", "near", [0, 5, 44, -80]), split("f", "far", [-50, -70, -60, -65])
    images, _ = stratify(REFERENCE, [near, far], params=StratifyParams(near=0.7))
    listed = images.borderline(3)
    assert listed.image_id.tolist() == ["n 3", "n 2", "f 0"]
    assert listed.suggested.tolist() == ["far", "near", "far"]
    assert listed.margin[0] < 0 < listed.margin[1] < listed.margin[2]


def test_id_images_are_never_suggested_for_an_ood_split():
    images, _ = stratify(
        REFERENCE,
        [split("test", "ID", [-80], "voc"), split("n", "near", [0]), split("f", "far", [-9])],
    )
    assert images.suggested.tolist()[0] == ""
    assert set(images.borderline(9).split) == {"n", "f"}


def test_both_cuts_bound_far():
    cuts = Cuts(near=0.8, farther=0.5)
    similarity = np.array([0.9, 0.7, 0.5, 0.4])
    assert cuts.suggest(similarity).tolist() == ["near", "far", "far", "farther"]
    np.testing.assert_allclose(cuts.margin(similarity, "far"), [-0.1, 0.1, 0.0, -0.1], atol=1e-9)
    np.testing.assert_allclose(cuts.margin(similarity, "near"), [0.1, -0.1, -0.3, -0.4], atol=1e-9)


def test_the_best_cut_has_the_highest_balanced_accuracy():
    low, high = np.array([0.1, 0.2, 0.3, 0.6]), np.array([0.5, 0.7, 0.8, 0.9])
    cut = best_cut(low, high)
    assert cut == pytest.approx(0.4)
    tried = [((low < t).mean() + (high >= t).mean()) / 2 for t in np.linspace(0, 1, 101)]
    assert ((low < cut).mean() + (high >= cut).mean()) / 2 == max(tried)


def test_the_best_cut_of_drawn_groups_is_that_of_a_search_through_all_cuts():
    rng = np.random.default_rng(0)
    for _ in range(30):
        low, high = (rng.normal(mean, 1, rng.integers(1, 9)).round(1) for mean in (0.0, 0.8))
        values = np.unique([*low, *high])
        cuts = (values[1:] + values[:-1]) / 2
        right = [((low < cut).mean() + (high >= cut).mean()) / 2 for cut in cuts]
        expected = cuts[np.argmax(right)] if len(cuts) and max(right) > 0.5 else None
        assert best_cut(low, high) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(("low", "high"), [([0.5], [0.5]), ([0.9], [0.1]), ([], [0.3])])
def test_groups_that_do_not_differ_as_they_should_have_no_cut(low, high):
    assert best_cut(np.array(low), np.array(high)) is None


def test_one_distance_alone_suggests_nothing():
    images, cuts = stratify(REFERENCE, [split("all", "farther", [200, 210])])
    assert cuts == Cuts(None, None)
    assert len(images.borderline(5)) == 0


def test_an_even_part_of_the_reference_can_be_taken():
    reference = split("train", "ID", [0, 20, 40, 60], "voc")
    images, _ = stratify(
        reference, [split("n", "near", [60])], params=StratifyParams(reference_images=2)
    )
    assert images.neighbour.tolist() == ["train 2"]


def test_figures_say_how_near_each_split_is():
    images, _ = stratify(
        REFERENCE, [split("n", "near", [0, 0, 0, 60]), split("f", "far", [-60, -60, -60, -60])]
    )
    near = split_similarities(images).row(0, named=True)
    assert near["split"] == "n"
    assert near["similarity"] == pytest.approx((3 + np.cos(np.deg2rad(30))) / 4, abs=1e-6)
    assert near["images"] == 4
    assert mean_similarities(images) == {"near": near["similarity"], "far": 0.5}


@pytest.mark.parametrize("width", [0.03, 0.1])
def test_histograms_are_those_of_numpy_over_the_bins_that_any_split_has(width):
    random = np.random.default_rng(6)
    angles = {"n": random.uniform(-180, 180, 15), "f": [-45] * 3}
    images, _ = stratify(
        REFERENCE, [split(name, "far", of_split) for name, of_split in angles.items()]
    )
    edges = np.arange(-1, 1 + 2 * width, width)
    counts = {
        name: np.histogram(images.similarity[images.frame["split"] == name], edges)[0]
        for name in angles
    }
    seen = np.flatnonzero(sum(counts.values()))
    between = np.arange(seen[0], seen[-1] + 1)
    rows = histogram(images, width)
    for name, count in counts.items():
        of_split = rows.filter(split=name)
        np.testing.assert_allclose(
            of_split["similarity"], (edges[:-1] + width / 2)[between], atol=1e-6
        )
        np.testing.assert_allclose(of_split["fraction"], (count / count.sum())[between], atol=1e-6)
    assert len(rows) == 2 * len(between)
    assert 0 in counts["n"][between]


def test_splits_are_told_apart_by_similarity_alone_as_often_as_it_ranks_their_images():
    ids = split("test", "ID", [5, -5], "voc")
    splits = [
        ids,
        split("n", "near", [0, 50]),
        split("m", "near", [0, 2]),
        split("f", "far", [-50, 60]),
    ]
    found = separations(stratify(REFERENCE, splits)[0])
    # Degrees to the nearest reference image: ID 5 and 5, n 0 and 40, m 0 and 2, f 50 and 30.
    assert found == {"auroc_from_id": {"n": 0.5, "m": 0.0, "f": 1.0}, "auroc_of_near": 0.875}
    assert separations(ImageSimilarity.empty()) == {"auroc_from_id": {}}


def test_without_images_there_are_columns_and_no_rows():
    nothing = ImageSimilarity.empty()
    assert histogram(nothing, 0.1).columns == ["split", "similarity", "fraction"]
    assert (
        len(histogram(nothing, 0.1)),
        len(split_similarities(nothing)),
        mean_similarities(nothing),
    ) == (0, 0, {})


def test_a_reference_without_images_is_an_error():
    with pytest.raises(DataError, match="reference split has no image"):
        stratify(split("train", "ID", [], "voc"), [REFERENCE])


def test_a_farther_cut_above_the_near_cut_is_refused():
    with pytest.raises(ParameterError, match=r"0\.9 is above near = 0\.5"):
        build(StratifyParams, "stratify", {"near": 0.5, "farther": 0.9})
