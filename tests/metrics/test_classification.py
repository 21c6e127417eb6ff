"""Accuracy, likelihood and calibration of a classifier, and open-set recognition.

Compared with scikit-learn, and worked out by hand.
"""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import accuracy_score, auc, log_loss, top_k_accuracy_score

from farther.errors import DataError
from farther.metrics import ood
from farther.metrics.ood import classification
from farther.metrics.weighting import RowWeights
from farther.tables import Objects, Regions

CLASSES = ("cat", "dog", "owl")


SEVEN = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu")


def images(
    count: int, seed: int = 0, classes: tuple[str, ...] = CLASSES
) -> tuple[Objects, Regions, np.ndarray]:
    """Labels and whole-image regions of a good classifier, and the true class of each image."""
    random = np.random.default_rng(seed)
    true = random.integers(0, len(classes), count)
    logits = random.normal(size=(count, len(classes))).astype(np.float32)
    logits[np.arange(count), true] += 1
    names = [f"image {number:03}" for number in range(count)]
    box = np.tile([0.0, 0, 32, 32], (count, 1))
    objects = Objects(
        image_id=names, object_id=range(count), box=box, category=[classes[c] for c in true]
    )
    regions = Regions(
        image_id=names, region_id=range(count), box=box, score=softmax(logits, axis=1).max(axis=1),
        label=logits.argmax(axis=1), logits=logits, classes=classes, activation="softmax",
    )  # fmt: skip
    return objects, regions, true


def measured(objects: Objects, regions: Regions) -> dict[str, float]:
    found = classification.metrics(classification.Classified.of(objects, regions))
    return {name: values.item() for name, values in found.items()}


def test_accuracy_and_likelihood_are_those_of_scikit_learn():
    objects, regions, true = images(200)
    found = measured(objects, regions)
    assert found["accuracy"] == pytest.approx(accuracy_score(true, regions.label))
    assert found["nll"] == pytest.approx(
        log_loss(true, softmax(regions.logits.astype(np.float64), axis=1)), rel=1e-6
    )


def test_top_5_accuracy_is_that_of_scikit_learn():
    objects, regions, true = images(200, classes=SEVEN)
    found = measured(objects, regions)
    expected = top_k_accuracy_score(true, regions.logits, k=5, labels=range(7))
    assert found["accuracy_top5"] == pytest.approx(expected)
    assert found["accuracy"] < expected < 1


def test_top_5_accuracy_counts_the_images_with_a_label_among_the_five_highest_logits():
    # The logits fall with the column: ranks 1 to 7. Of the equal logits of the last image the first
    # ones are higher.
    logits = np.array([[7, 6, 5, 4, 3, 2, 1]] * 4 + [[0, 0, 0, 0, 0, 0, 0]], dtype=np.float32)
    objects, regions, _ = images(5, classes=SEVEN)
    regions = regions.with_columns(logits=logits, label=np.zeros(5, dtype=np.int64))
    labels = ["ant", "eel", "fox", "gnu", "fox"]  # ranks 1, 5, 6, 7 and 6
    assert measured(objects.with_columns(category=labels), regions)["accuracy_top5"] == 0.4


def test_an_image_with_two_labels_is_right_if_one_of_them_is_among_the_five():
    objects, regions, _ = images(2, classes=SEVEN)
    logits = np.array([[7, 6, 5, 4, 3, 2, 1]] * 2, dtype=np.float32)
    regions = regions.with_columns(logits=logits, label=np.zeros(2, dtype=np.int64))
    both = objects.with_columns(image_id=["image 000", "image 000"], category=["gnu", "bee"])
    assert measured(both, regions)["accuracy_top5"] == 1.0


@pytest.mark.parametrize(("classes", "is_defined"), [(5, False), (6, True)])
def test_top_5_accuracy_is_not_defined_with_five_classes_or_fewer(classes, is_defined):
    objects, regions, _ = images(20, classes=SEVEN[:classes])
    assert np.isfinite(measured(objects, regions)["accuracy_top5"]) == is_defined


def test_a_background_column_is_no_guess_of_top_5_accuracy():
    objects, regions, _ = images(1, classes=SEVEN)
    logits = np.array(
        [[7, 6, 5, 4, 9, 3, 2]], dtype=np.float32
    )  # "eel" is the background: "fox" has rank 5 without it
    columns = {
        "image_id": regions.image_id,
        "region_id": [0],
        "box": regions.box,
        "score": [0.9],
        "label": [0],
    }
    regions = Regions(
        **columns, logits=logits, classes=SEVEN, background_index=4, activation="softmax"
    )
    assert measured(objects.with_columns(category=["fox"]), regions)["accuracy_top5"] == 1.0
    assert measured(objects.with_columns(category=["gnu"]), regions)["accuracy_top5"] == 0.0


def test_the_calibration_error_adds_the_gaps_of_the_bins_by_their_share_of_images():
    classified = classification.Classified(
        np.array(list("abcd"), dtype=object),
        np.array([True, False, True, True]),
        np.array([0.95, 0.95, 0.5, 0.5]),
        np.ones(4),
        np.ones(4),
    )
    # bins of 1/15: two images at 0.95 with accuracy 0.5, two at 0.5 with accuracy 1
    assert classification.metrics(classified)["ece"].item() == pytest.approx(0.5 * 0.45 + 0.5 * 0.5)


def test_the_calibration_error_is_that_of_a_loop_over_bins_that_are_open_below():
    random = np.random.default_rng(2)
    # In all bins, at both ends, and above 1 by rounding.
    confidence = np.concatenate([random.random(300), [0.0, 1.0, 1 + 1e-7]])
    is_correct = (
        confidence * 10 % 2 < 1
    )  # all in a bin, and none in the next: no two gaps may cancel unseen
    expected = 0.0
    for k in range(10):
        inside = ((confidence > k / 10) | (k == 0)) & ((confidence <= (k + 1) / 10) | (k == 9))
        expected += np.mean(inside) * abs(is_correct[inside].mean() - confidence[inside].mean())
    names = np.array([f"{number:03}" for number in range(len(confidence))], dtype=object)
    others = np.ones(len(confidence))
    classified = classification.Classified(names, is_correct, confidence, others, others)
    assert classification.metrics(classified, bins=10)["ece"].item() == pytest.approx(expected)


def test_a_replicate_equals_the_metrics_of_the_drawn_images():
    objects, regions, _ = images(40, classes=SEVEN)
    classified = classification.Classified.of(objects, regions)
    times = np.random.default_rng(3).multinomial(40, np.full(40, 1 / 40), size=50).astype(np.int32)
    found = classification.metrics(classified, times)
    for replicate, of in enumerate(times):
        rows = np.repeat(np.arange(40), of)
        columns = (
            getattr(classified, name)[rows]
            for name in ("images", "is_correct", "confidence", "nll", "is_in_top5")
        )
        expected = classification.metrics(classification.Classified(*columns))
        assert {n: v[replicate] for n, v in found.items()} == pytest.approx(
            {n: v.item() for n, v in expected.items()}
        )


def test_labels_that_are_not_classes_of_the_classifier_are_left_out():
    objects, regions, true = images(10)
    renamed = objects.with_columns(category=["fox", *objects.category[1:]])
    kept = classification.Classified.of(renamed, regions)
    assert len(kept.images) == 9
    assert kept.is_correct.tolist() == (regions.label[1:] == true[1:]).tolist()


def test_without_labelled_images_nothing_is_defined():
    objects, regions, _ = images(5)
    assert set(measured(objects[:0], regions)) == {"accuracy", "accuracy_top5", "nll", "ece"}
    assert np.isnan(list(measured(objects[:0], regions).values())).all()


def test_two_regions_of_one_image_are_refused():
    objects, regions, _ = images(3)
    twice = regions.with_columns(image_id=["image 000", "image 000", "image 002"])
    with pytest.raises(DataError, match="one region per image"):
        classification.Classified.of(objects, twice)


def test_oscr_is_the_area_below_the_correct_classification_rate():
    random = np.random.default_rng(4)
    id_scores, correct, ood_scores = (
        random.normal(1, 1, 300),
        random.random(300) < 0.7,
        random.normal(0, 1, 200),
    )
    levels = np.append(np.inf, np.sort(np.concatenate([id_scores, ood_scores]))[::-1])
    rate = [np.mean((id_scores >= level) & correct) for level in levels]
    false = [np.mean(ood_scores >= level) for level in levels]
    found = classification.oscr(correct.mean(), ood.auroc(id_scores[correct], ood_scores))
    assert found == pytest.approx(auc(false, rate))
    # Without labels, without a correct image, and without either.
    for accuracy, correct_auroc in ((None, 0.5), (0.0, None), (None, None)):
        assert classification.oscr(accuracy, correct_auroc) is None


def test_each_unknown_class_counts_the_same():
    random = np.random.default_rng(5)
    id_scores, scores = random.normal(1, 1, 50), random.normal(0, 1, 40)
    category = np.array(["fox"] * 25 + ["owl"] * 10 + ["yak"] * 5)
    each = [ood.auroc(id_scores, scores[category == name]) for name in ("fox", "owl", "yak")]
    assert classification.macro_auroc(id_scores, scores, category) == pytest.approx(np.mean(each))
    weights = [RowWeights(np.ones((2, n), dtype=np.int32), np.arange(n)) for n in (50, 40)]
    drawn = classification.macro_auroc(id_scores, scores, category, *weights)
    assert drawn.tolist() == pytest.approx([np.mean(each)] * 2)


def test_the_calibration_error_has_fifteen_bins_as_in_guo_et_al():
    # 14/15 = 0.933 lies between them, and no limit of a smaller number of bins does.
    classified = classification.Classified(
        images=np.array(["a", "b"], dtype=object),
        is_correct=np.array([True, False]),
        confidence=np.array([0.93, 0.94]),
        nll=np.ones(2),
        is_in_top5=np.ones(2),
    )
    error = classification.metrics(classified)["ece"].item()
    assert error == pytest.approx(0.5 * 0.07 + 0.5 * 0.94)
