"""Self-awareness of a run: what is chosen on validation images, and what DAQ is made of."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from tests.evaluation.self_aware_runs import (
    FIRST,
    ROLES,
    SECOND,
    evaluate_shifted,
    evaluate_small,
    inputs,
    write_split,
)

from farther.errors import ParameterError
from farther.evaluation.inputs import RunInputs
from farther.evaluation.self_aware_run import SelfAwareRun
from farther.evaluation.self_awareness import evaluate_self_awareness
from farther.evaluation.settings import EvaluationSettings
from farther.metrics import closed_set, self_awareness
from farther.metrics.self_awareness.images import DetectedImages


def test_thresholds_are_chosen_on_validation_images(small_run):
    results = evaluate_small(small_run, replicates=100)
    values = results.values
    # The dog on nothing is best cut off; what is left lies exactly on its object.
    assert results.detector.confidence_thresholds == pytest.approx({"cat": 0.9, "dog": 0.7})
    assert (values["lrp"], values["lrp_fn"]) == (0, 0)
    assert results.calibrated["none"]["laece"] == pytest.approx((0.1 + 0.3) / 2)
    assert values["laece"] == pytest.approx(0, abs=1e-6)
    assert results.calibrated["linear"]["laece"] == values["laece"]
    # Uncertainties: i1 0.1; i2 the mean of 0.3 and 0.9. Both are accepted up to 0.6; o1 (0.3) is
    # too, o2 and o3 not.
    assert results.settings.image_threshold == "keep_95"
    assert results.detector.image_threshold == pytest.approx(0.6)
    assert (values["tpr"], values["tnr"]) == (1, pytest.approx(2 / 3))
    assert values["balanced_accuracy"] == pytest.approx(0.8)
    assert results.splits["far"]["auroc"] == pytest.approx(5 / 6)
    assert results.splits["all OOD"]["auroc"] == pytest.approx(5 / 6)
    assert results.images["far"].rejected_images == 2
    # Without shifted images there is no DAQ.
    assert values["daq"] is None
    assert "idq_t" not in values
    assert set(results.image_thresholds) == {"keep_95"}


def test_an_id_image_as_uncertain_as_ood_images_is_not_accepted(small_run, objects, regions):
    known = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    detections = regions(("i1", FIRST, 0.9, "cat"), ("i2", FIRST, 0.2, "dog"))
    write_split(small_run, "test", known, detections, ["i1", "i2"])
    results = evaluate_small(small_run)
    # Accepted is an uncertainty of up to 0.6: i1 and o1.
    for split_results in results.splits.values():
        assert split_results["tpr"] == pytest.approx(1 / 2)
        assert split_results["tnr"] == pytest.approx(2 / 3)


def test_images_with_known_objects_are_not_to_be_rejected(small_run, objects, regions):
    cat_and_fox = objects(("m1", FIRST, "cat"), ("m1", SECOND, "fox"))
    write_split(small_run, "mixed", cat_and_fox, regions(("m1", FIRST, 0.9)), ["m1"])
    without_mixed = evaluate_small(small_run, tested=["far"])
    with_mixed = evaluate_small(small_run, tested=["far", "mixed"])
    assert set(with_mixed.splits) == {"far", "all OOD"}
    assert with_mixed.values["tnr"] == without_mixed.values["tnr"]


def test_pseudo_ood_images_that_the_benchmark_does_not_have_are_refused(small_run):
    with pytest.raises(ParameterError, match="'pseudo_ood' needs pseudo-OOD images"):
        evaluate_small(small_run, self_awareness={"image_threshold": "pseudo_ood"})


def test_daq_is_the_harmonic_mean_of_its_parts_which_are_those_of_the_library(run, shifted_results):
    results = shifted_results
    values = results.values
    assert results.settings.image_threshold == "pseudo_ood"
    parts = [values["balanced_accuracy"], values["idq"], values["idq_t"]]
    assert values["daq"] == pytest.approx(3 / sum(1 / part for part in parts))

    pooled = run.pooled
    rejected = run.detector.rejected(pooled.regions, pooled.names)
    expected = self_awareness.evaluate(
        pooled.objects,
        run.detector.detections(pooled.regions),
        rejected=rejected,
        may_reject=[name for name in pooled.names if name.startswith("c5/")],
    )
    for part in ("lrp", "laece", "idq"):
        assert values[f"{part}_t"] == pytest.approx(expected[part])
    mild, strong = results.images["c1"], results.images["c5"]
    assert mild.rejected_images + strong.rejected_images == len(rejected)


def test_the_more_images_are_shifted_the_more_are_rejected_and_the_less_they_differ_from_ood_images(
    shifted_results,
):
    images = shifted_results.images
    assert images["test"].auroc > images["c1"].auroc > images["c5"].auroc
    rejected = [images[name].rejected_images for name in ("test", "c1", "c5")]
    assert rejected == sorted(rejected)
    assert sum(images["c5"].histogram) == pytest.approx(1)


def test_examples_are_the_first_accepted_and_the_first_rejected_image(run, shifted_results):
    results = shifted_results
    threshold = run.detector.image_threshold
    # Of ID and shifted images, copies of one accepted image are preferred.
    copied = next(name for name in run.clean.names if name in run.shifted["c1"].names)
    for split, images in {**run.shifted, **run.ood, "test": run.clean}.items():
        uncertainty_by_image = dict(zip(images.names, images.uncertainty("top-3"), strict=True))
        expected = []
        for is_rejected in (False, True):
            candidates = []
            for name, uncertainty in uncertainty_by_image.items():
                if (uncertainty > threshold) == is_rejected:
                    candidates.append(name)
            if copied in candidates and split != "far":
                expected.append((copied, is_rejected))
            elif candidates:
                expected.append((candidates[0], is_rejected))

        examples = results.images[split].examples
        assert [(example.image_id, example.is_rejected) for example in examples] == expected
        for example in examples:
            assert example.uncertainty == uncertainty_by_image[example.image_id]


def test_a_replicate_equals_computing_the_metrics_on_the_drawn_images(shifted_run):
    run = SelfAwareRun(inputs(shifted_run, replicates=100))
    replicates = run.replicates()
    draws = run.draws.clean
    images = run.clean
    rejected = run.detector.rejected(images.regions, images.names)
    detections = run.detector.detections(images.regions)
    accepted = detections[~np.isin(detections.image_id.astype(str), rejected)]
    for replicate in range(3):
        drawn_objects, _ = draws.written_out(replicate, images.objects)
        drawn_regions, _ = draws.written_out(replicate, accepted)
        expected = self_awareness.evaluate(drawn_objects, drawn_regions)
        for part in (*self_awareness.PARTS, "idq"):
            assert replicates[part][replicate] == pytest.approx(expected[part], rel=1e-9)
        drawn_names = np.repeat(draws.names, draws.weights[replicate])
        expected_tpr = 1 - np.mean(np.isin(drawn_names.astype(str), rejected))
        assert replicates["tpr"][replicate] == pytest.approx(expected_tpr)


def test_intervals_hold_the_values_and_copies_of_an_image_are_drawn_together(shifted_run, run):
    results = evaluate_shifted(shifted_run, replicates=200)
    for part in ("daq", "balanced_accuracy", "idq", "idq_t", "lrp_t", "laece"):
        if results.intervals[part] is None:
            assert "resampling shifts it" in results.no_interval[part]
            continue
        low, high = results.intervals[part]
        assert low < high
        assert low <= results.values[part] <= high
    assert len(run.draws.shifted.names) == len(run.clean.names)
    assert len(run.pooled.names) == 2 * len(run.clean.names)


def test_metrics_of_a_split_are_those_of_the_library_in_the_images_that_are_accepted(
    run, shifted_results
):
    results = shifted_results.images
    for split, images in {"test": run.clean, **run.shifted}.items():
        rejected = run.detector.rejected(images.regions, images.names)
        assert results[split].rejected_images == len(rejected)
        expected = self_awareness.evaluate(
            images.objects,
            run.detector.detections(images.regions),
            rejected=rejected,
            may_reject=images.names if split == "c5" else (),
        )
        for part in ("lrp", "laece", "idq"):
            assert results[split].metrics[part] == pytest.approx(expected[part])
    assert results["far"].metrics == {}


def test_shares_of_images_are_those_of_a_loop_over_them(run, shifted_results):
    results = shifted_results
    threshold = results.detector.image_threshold
    id_uncertainty = run.clean.uncertainty(run.detector.aggregate)
    ood_uncertainty = run.ood["far"].uncertainty(run.detector.aggregate)
    for split in ("far", "all OOD"):  # there is one OOD split
        split_results = results.splits[split]
        assert split_results["tpr"] == pytest.approx(np.mean(id_uncertainty <= threshold))
        assert split_results["tnr"] == pytest.approx(np.mean(ood_uncertainty > threshold))
    assert [results.images[split].severity for split in ("test", "c1", "c5")] == [0, 1, 5]
    counts = np.bincount(_bins(id_uncertainty), minlength=10)
    assert results.images["test"].histogram == pytest.approx(counts / len(id_uncertainty))


def test_ap_by_uncertainty_is_that_of_the_images_of_each_bin(run, shifted_results):
    map_by_bin = shifted_results.map_by_uncertainty
    # The ID split and the shifted ones together.
    pooled = DetectedImages.pooled({"clean": run.clean, **run.shifted})
    bin_of_image = _bins(pooled.uncertainty(run.detector.aggregate))
    assert len(map_by_bin) == 10
    for number, value in enumerate(map_by_bin):
        names = np.array(pooled.names)[bin_of_image == number]
        objects = pooled.objects[np.isin(pooled.objects.image_id.astype(str), names)]
        regions = pooled.regions[np.isin(pooled.regions.image_id.astype(str), names)]
        if len(objects):
            assert value == pytest.approx(closed_set.evaluate(objects, regions)["ap"])
        else:
            assert value is None


def _bins(uncertainty: np.ndarray) -> np.ndarray:
    """Number of the bin of each uncertainty; without detections it is infinite, and in the last."""
    return np.minimum(uncertainty * 10, 9).astype(int)


def test_isotonic_regression_has_no_calibration_error_where_it_was_learnt(shifted_results):
    results = shifted_results
    for split in ("val", "test"):
        assert set(results.reliabilities[split]) == {"none", "linear", "isotonic"}
    # Appendix D.4: detections of one calibrated confidence have this IoU on average, 0 where they
    # match nothing.
    learnt = results.reliabilities["val"]
    # Among equal calibrated confidences the matching may prefer another detection than before.
    assert learnt["isotonic"].laece == pytest.approx(0, abs=0.002)
    assert learnt["isotonic"].laece < learnt["linear"].laece < learnt["none"].laece
    # On test images no image is rejected either: Table 5.
    for kind, test_diagram in results.reliabilities["test"].items():
        assert test_diagram.laece == pytest.approx(results.calibrated[kind]["laece"])


def test_an_ood_split_may_have_any_name(shifted_run, changed_run, shifted_results):
    """Such as the names of roles, and words that stand for several splits."""
    names = ("clean", "shifted", "all", "mean", "uncertainty")
    for name in names:
        shutil.copytree(changed_run.regions("far"), changed_run.regions(name))
        shutil.copytree(changed_run.images("far").parent, changed_run.images(name).parent)
    roles = replace(ROLES, test=[*names, "far"])
    settings = EvaluationSettings(replicates=100)
    results = evaluate_self_awareness(RunInputs(changed_run, roles, settings))
    for name in names:
        assert results.splits[name] == shifted_results.splits["far"]
        assert results.aggregates["min"][name] == shifted_results.aggregates["min"]["far"]
    # Equal images of six splits: their separation is that of one.
    assert results.splits["all OOD"] == pytest.approx(shifted_results.splits["far"])
    assert results.accuracy["c5"] == shifted_results.accuracy["c5"]
