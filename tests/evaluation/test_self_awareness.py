"""Self-awareness of a run: what is chosen on validation images, and what DAQ is made of."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import bernoulli, entropy, multivariate_normal
from sklearn.metrics import roc_auc_score

from farther.errors import ParameterError
from farther.evaluation.files import Roles, RunFiles
from farther.evaluation.image_uncertainties import of_detections
from farther.evaluation.inputs import RunInputs
from farther.evaluation.self_aware_run import SelfAwareRun
from farther.evaluation.self_awareness import evaluate_self_awareness
from farther.evaluation.settings import EvaluationSettings
from farther.metrics import closed_set, self_awareness
from farther.metrics.matching import above_of_class
from farther.metrics.self_awareness.image_uncertainty import of_confidence
from farther.metrics.self_awareness.images import DetectedImages
from farther.tables import Images, Objects, Regions, RegionsFolder

FIRST, SECOND, NOWHERE = (0, 0, 100, 100), (200, 0, 300, 100), (700, 700, 800, 800)

#: Uncertainties of detectors that give each class a probability of its own, and of those that give
#: boxes a variance.
OF_SIGMOIDS = ("entropy, mean of sigmoids", "entropy, largest sigmoid")
OF_BOXES = (
    "box determinant", "box trace", "box entropy", "entropy + box entropy", "4 · entropy + box entropy",
    "both entropies, normalised",
)  # fmt: skip


def write(
    files: RunFiles, split: str, objects: Objects, regions: Regions, names: list[str]
) -> None:
    count = len(names)
    sides = np.full(count, 900)
    columns = {
        "dataset": ["d"] * count,
        "file": names,
        "width": sides,
        "height": sides,
        "digest": ["0"] * count,
    }
    Images(image_id=names, **columns).write(files.images(split))
    objects.write(files.objects(split))
    regions.write(files.regions(split))


@pytest.fixture
def small(tmp_path, objects, regions):
    """Two ID images, three OOD images; no shifted ones."""
    files = RunFiles("r", "voc", tmp_path)
    shown = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    found = regions(
        ("i1", FIRST, 0.9, "cat"), ("i2", FIRST, 0.7, "dog"), ("i2", NOWHERE, 0.1, "dog")
    )
    for split in ("val", "test"):
        write(files, split, shown, found, ["i1", "i2"])
    foxes = regions(
        ("o1", FIRST, 0.8), ("o1", SECOND, 0.6), ("o2", FIRST, 0.2), ("o2", NOWHERE, 0.3)
    )
    write(
        files,
        "far",
        objects(("o1", FIRST, "fox"), ("o2", FIRST, "bear")),
        foxes,
        ["o1", "o2", "o3"],
    )
    files.threshold.parent.mkdir(parents=True)
    files.threshold.write_text('{"threshold": 0.5}')
    return files


def test_thresholds_are_chosen_on_validation_images(small):
    found = evaluate_self_awareness(
        RunInputs(small, Roles(["far"]), EvaluationSettings(replicates=20))
    )
    # The dog on nothing is best cut off; what is left lies exactly on its object.
    assert found.detector.confidence_thresholds == pytest.approx({"cat": 0.9, "dog": 0.7})
    assert (found.values["lrp"], found.values["lrp_fn"]) == (0, 0)
    assert found.calibrated["none"]["laece"] == pytest.approx((0.1 + 0.3) / 2)
    assert (
        found.values["laece"] == found.calibrated["linear"]["laece"] == pytest.approx(0, abs=1e-6)
    )
    # Uncertainties: i1 0.1; i2 the mean of 0.3 and 0.9. Both are accepted up to 0.6; o1 (0.3) is
    # too, o2 and o3 not.
    assert found.settings.image_threshold == "keep_95"
    assert found.detector.image_threshold == pytest.approx(0.6)
    assert (found.values["tpr"], found.values["tnr"]) == (1, pytest.approx(2 / 3))
    assert found.values["balanced_accuracy"] == pytest.approx(0.8)
    assert found.splits["far"]["auroc"] == found.splits["all"]["auroc"] == pytest.approx(5 / 6)
    assert found.images["far"].rejected_images == 2
    # Without shifted images there is no DAQ.
    assert found.values["daq"] is None
    assert "idq_t" not in found.values
    assert set(found.image_thresholds) == {"keep_95"}


def test_an_id_image_as_uncertain_as_ood_images_is_not_accepted(small, objects, regions):
    shown = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    write(
        small,
        "test",
        shown,
        regions(("i1", FIRST, 0.9, "cat"), ("i2", FIRST, 0.2, "dog")),
        ["i1", "i2"],
    )
    found = evaluate_self_awareness(
        RunInputs(small, Roles(["far"]), EvaluationSettings(replicates=0))
    )
    # Accepted is an uncertainty of up to 0.6: i1 and o1.
    for of_split in found.splits.values():
        assert (of_split["tpr"], of_split["tnr"]) == pytest.approx((1 / 2, 2 / 3))


@pytest.mark.parametrize(("images", "expected"), [(["i1"], 2), ([], 0)])
def test_detections_are_counted_per_image_of_one_and_of_none(
    small, objects, regions, images, expected
):
    shown = objects(*((image, box, "cat") for image in images for box in (FIRST, SECOND)))
    found = regions(*((image, box, 0.9) for image in images for box in (FIRST, SECOND)))
    write(small, "val", shown, found, images)
    result = evaluate_self_awareness(
        RunInputs(small, Roles(["far"]), EvaluationSettings(replicates=0))
    )
    assert next(row["detections_per_image"] for row in result.top_k if row["k"] is None) == expected


def test_images_with_known_objects_are_not_to_be_rejected(small, objects, regions):
    shown = objects(("m1", FIRST, "cat"), ("m1", SECOND, "fox"))
    write(small, "mixed", shown, regions(("m1", FIRST, 0.9)), ["m1"])
    alone, both = (
        evaluate_self_awareness(RunInputs(small, Roles(tested), EvaluationSettings(replicates=0)))
        for tested in (["far"], ["far", "mixed"])
    )
    assert set(both.splits) == {"far", "all"}
    assert both.values["tnr"] == alone.values["tnr"]


def test_pseudo_ood_images_that_the_benchmark_does_not_have_are_refused(small):
    settings = EvaluationSettings(self_awareness={"image_threshold": "pseudo_ood"})
    with pytest.raises(ParameterError, match="'pseudo_ood' needs pseudo-OOD images"):
        evaluate_self_awareness(RunInputs(small, Roles(["far"]), settings))


@pytest.fixture
def whole(tmp_path, world, objects, regions):
    """A run with shifted splits, whose detections are fewer and less certain, and pseudo-OOD images."""
    files = RunFiles("r", "voc", tmp_path)
    splits = {}
    for seed, split in enumerate(("val", "test")):
        splits[split] = world(seed, images=60)
    shown, found = splits["test"]
    for split, factor in (("c1", 0.9), ("c5", 0.5)):
        splits[split] = (
            shown,
            found.with_columns(score=found.score * factor)[:: 1 if split == "c1" else 2],
        )
    shown, found = splits["c5"]
    splits["c5"] = (
        shown,
        found[found.image_id != found.image_id[0]],
    )  # nothing is detected in one image
    for name in splits:
        table, detected = splits[name]
        write(files, name, table, detected, sorted(set(table.image_id) | set(detected.image_id)))
    names = sorted(set(splits["val"][0].image_id))
    blank = splits["val"][1]
    blank = blank[np.isin(blank.image_id.astype(str), names)]
    write(files, "pseudo_ood", objects(), blank.with_columns(score=blank.score * 0.3), names)
    images = [f"o{n}" for n in range(30)]
    foxes = regions(
        *[(name, FIRST, 0.1 + n / 50) for n, name in enumerate(images)], classes=found.classes
    )
    write(files, "far", objects(*[(name, FIRST, "fox") for name in images]), foxes, images)
    files.threshold.parent.mkdir(parents=True)
    files.threshold.write_text('{"threshold": 0.1}')
    return files


ROLES = Roles(["far"], {"c1": 1, "c5": 5}, "pseudo_ood")


def inputs(files, **settings):
    return RunInputs(files, ROLES, EvaluationSettings(**{"replicates": 40, **settings}))


def test_daq_is_the_harmonic_mean_of_its_parts_which_are_those_of_the_library(whole):
    found = evaluate_self_awareness(inputs(whole))
    assert found.settings.image_threshold == "pseudo_ood"
    parts = [found.values["balanced_accuracy"], found.values["idq"], found.values["idq_t"]]
    assert found.values["daq"] == pytest.approx(3 / sum(1 / part for part in parts))
    run = SelfAwareRun(inputs(whole))
    pooled = run.pooled
    rejected = run.detector.rejected(pooled.regions, pooled.names)
    expected = self_awareness.evaluate(
        pooled.objects,
        run.detector.detections(pooled.regions),
        rejected=rejected,
        may_reject=[name for name in pooled.names if name.startswith("c5/")],
    )
    for part in ("lrp", "laece", "idq"):
        assert found.values[f"{part}_t"] == pytest.approx(expected[part])
    assert found.images["c1"].rejected_images + found.images["c5"].rejected_images == len(rejected)


def test_the_more_images_are_shifted_the_more_are_rejected_and_the_less_they_differ_from_ood_images(
    whole,
):
    images = evaluate_self_awareness(inputs(whole)).images
    clean, mild, strong = (images[name] for name in ("test", "c1", "c5"))
    assert clean.auroc > mild.auroc > strong.auroc
    assert clean.rejected_images <= mild.rejected_images <= strong.rejected_images
    assert sum(strong.histogram) == pytest.approx(1)


def test_examples_are_the_first_accepted_and_the_first_rejected_image_and_copies_of_one_image_are_preferred(
    whole,
):
    run, found = SelfAwareRun(inputs(whole)), evaluate_self_awareness(inputs(whole))
    level = run.detector.image_threshold
    shown = {**run.shifted, **run.ood, "test": run.clean}
    copied = next(name for name in run.clean.names if name in run.shifted["c1"].names)
    for split, images in shown.items():
        examples = found.images[split].examples
        uncertainty = dict(zip(images.names, images.uncertainty("top-3"), strict=True))
        for example in examples:
            assert example.uncertainty == uncertainty[example.image_id]
            assert example.is_rejected == (example.uncertainty > level)
        for is_rejected in (False, True):
            names = [name for name, value in uncertainty.items() if (value > level) == is_rejected]
            expected = copied if copied in names and split != "far" else next(iter(names), None)
            assert [one.image_id for one in examples if one.is_rejected == is_rejected] == [
                expected
            ][: len(names)]


def test_shifted_validation_images_have_an_average_precision_and_no_part_in_daq(whole):
    objects, regions = Objects.read(whole.objects("val")), Regions.read(whole.regions("val"))
    fewer = regions[::3]
    names = sorted(set(objects.image_id) | set(regions.image_id))
    write(whole, "val_c1", objects, fewer, names)
    roles = Roles(["far"], {"c1": 1, "c5": 5}, "pseudo_ood", shifted_val={"val_c1": 1})
    found = evaluate_self_awareness(RunInputs(whole, roles, EvaluationSettings(replicates=40)))
    # T(Val) of Table A.8.
    assert found.accuracy["val_c1"].values["ap"] == pytest.approx(
        closed_set.evaluate(objects, fewer)["ap"]
    )
    low, high = found.accuracy["val_c1"].intervals["ap"]
    assert low < found.accuracy["val_c1"].values["ap"] < high
    without = evaluate_self_awareness(inputs(whole))
    assert found.values == without.values
    assert set(found.accuracy) - set(without.accuracy) == {"val_c1"}


def test_a_replicate_equals_computing_the_metrics_on_the_drawn_images(whole):
    run = SelfAwareRun(inputs(whole, replicates=3))
    replicates = run.replicates()
    draws, images = run.draws["clean"], run.clean
    rejected = run.detector.rejected(images.regions, images.names)
    kept = run.detector.detections(images.regions)
    kept = kept[~np.isin(kept.image_id.astype(str), rejected)]
    for replicate in range(3):
        objects, _ = draws.written_out(replicate, images.objects)
        expected = self_awareness.evaluate(objects, draws.written_out(replicate, kept)[0])
        for part in (*self_awareness.PARTS, "idq"):
            assert replicates[part][replicate] == pytest.approx(expected[part], rel=1e-9)
        drawn = [
            name
            for name, count in zip(draws.names, draws.weights[replicate], strict=True)
            for _ in range(count)
        ]
        assert replicates["tpr"][replicate] == pytest.approx(1 - np.mean(np.isin(drawn, rejected)))


def test_intervals_hold_the_values_and_copies_of_an_image_are_drawn_together(whole):
    found = evaluate_self_awareness(inputs(whole, replicates=200))
    for part in ("daq", "balanced_accuracy", "idq", "idq_t", "lrp_t", "laece"):
        low, high = found.intervals[part]
        assert low < high and low - 0.05 <= found.values[part] <= high + 0.05
    run = SelfAwareRun(inputs(whole))
    assert len(run.draws["shifted"].names) == len(run.clean.names)
    assert len(run.pooled.names) == 2 * len(run.clean.names)


def test_the_ablation_ends_with_the_run_as_it_is_evaluated(whole):
    found = evaluate_self_awareness(inputs(whole))
    last = found.ablation[-1]
    assert last.metrics["daq"] == found.values["daq"]
    assert [row.calibrator for row in found.ablation] == [None, None, "linear", "linear"]
    assert found.ablation[1].metrics["laece"] == pytest.approx(
        found.ablation[2].metrics["laece"], abs=1
    )
    top = {row["k"]: row for row in found.top_k}
    assert (
        top[100]["laece"] < top[10]["laece"] and top[100]["lrp"] > top[10]["lrp"] > top[None]["lrp"]
    )


def test_dummies_are_false_positives_without_confidence_in_all_classes_alike(whole):
    run, found = SelfAwareRun(inputs(whole)), evaluate_self_awareness(inputs(whole))
    objects, regions, names = run.held_out.objects, run.held_out.regions, run.held_out.names
    kept = run.held_out.above(run.detector.confidence_thresholds)
    assert [row["k"] for row in found.top_k] == [None, 10, 25, 50, 100, 300, 500]
    by_k = {row["k"]: row for row in found.top_k}
    # More dummies only enlarge the number of detections; classes have their own numbers of real
    # ones.
    assert by_k[300]["laece"] == pytest.approx(by_k[100]["laece"] / 3, rel=0.02)
    assert by_k[500]["laece"] == pytest.approx(by_k[100]["laece"] / 5, rel=0.02)
    # The library matches at most 100 detections per image and class.
    for row in [by_k[k] for k in (None, 10, 25, 50, 100)]:
        k, chosen = row["k"], kept
        if k is not None:
            ranked = sorted(range(len(regions)), key=lambda row: -regions.score[row])
            chosen = np.zeros(len(regions), dtype=bool)
            for name in names:
                chosen[[row for row in ranked if regions.image_id[row] == name][:k]] = True
        shown = regions[chosen]
        missing = [name for name in names for _ in range((k or 0) - np.sum(shown.image_id == name))]
        count = len(missing)
        dummies = Regions(
            image_id=missing,
            region_id=10_000 + np.arange(count),
            box=np.tile([5000, 5000, 5001, 5001], (count, 1)),
            score=np.zeros(count),
            label=np.arange(count) % 2,
            logits=np.zeros((count, 2)),
            classes=regions.classes,
        )
        both = Regions.concatenate([shown, dummies]) if count else shown
        expected = self_awareness.evaluate(objects, both)
        # One dummy more of one class, where they are odd.
        assert (row["lrp"], row["laece"]) == pytest.approx(
            (expected["lrp"], expected["laece"]), rel=1e-3
        )
        assert row["detections_per_image"] == pytest.approx(len(both) / len(names))


def test_quality_by_confidence_threshold_is_that_of_the_detections_above_it(whole):
    run, found = SelfAwareRun(inputs(whole)), evaluate_self_awareness(inputs(whole))
    objects, regions, names = run.held_out.objects, run.held_out.regions, run.held_out.names
    assert [row["threshold"] for row in found.by_threshold] == [0.0, 0.3, 0.5, 0.7, None]
    for row in found.by_threshold:
        if row["threshold"] is None:
            chosen = above_of_class(regions, self_awareness.lrp_thresholds(objects, regions))
        else:
            chosen = regions.score >= row["threshold"]
        above = regions[chosen]
        expected = self_awareness.evaluate(objects, above)
        assert (row["lrp"], row["laece"]) == pytest.approx((expected["lrp"], expected["laece"]))
        assert row["ap"] == pytest.approx(closed_set.evaluate(objects, above)["ap"])
        assert row["detections_per_image"] == pytest.approx(len(above) / len(names))


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
def test_classes_without_detections_or_without_objects_count_beside_dummies_as_everywhere(
    small, objects, regions, protocol
):
    shown = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    rows = ("i1", FIRST, 0.75, "cat"), ("i2", NOWHERE, 0.4, "emu")
    found = regions(*rows, classes=("cat", "dog", "emu"))
    write(small, "val", shown, found, ["i1", "i2"])
    settings = EvaluationSettings(replicates=0, protocol=protocol)
    result = evaluate_self_awareness(RunInputs(small, Roles(["far"]), settings))
    rows = {row["k"]: (row["lrp"], row["laece"]) for row in result.top_k}
    assert result.detector.confidence_thresholds == {"cat": 0.75, "dog": None, "emu": None}
    expected = self_awareness.evaluate(shown, found[:1], protocol=protocol)
    assert rows[None] == pytest.approx((expected["lrp"], expected["laece"]))
    # Six dummies of each class. The cat has an error of 0.25 in one of seven detections, the emu
    # one of 0.4, which the published code does not count, since there are no emus.
    of_emu = 0.4 if protocol == "paper" else 0
    assert rows[10] == pytest.approx(((6 / 7 + 1) / 2, (0.25 + of_emu) / 7 / 3))


def test_metrics_of_a_split_are_those_of_the_library_in_the_images_that_are_accepted(whole):
    run, found = SelfAwareRun(inputs(whole)), evaluate_self_awareness(inputs(whole)).images
    for name, images in {"test": run.clean, **run.shifted}.items():
        rejected = run.detector.rejected(images.regions, images.names)
        assert found[name].rejected_images == len(rejected)
        expected = self_awareness.evaluate(
            images.objects,
            run.detector.detections(images.regions),
            rejected=rejected,
            may_reject=images.names if name == "c5" else (),
        )
        assert {
            part: found[name].metrics[part] for part in ("lrp", "laece", "idq")
        } == pytest.approx({part: expected[part] for part in ("lrp", "laece", "idq")})
    assert found["far"].metrics == {}


def test_what_is_said_of_images_is_what_a_loop_over_them_counts(whole):
    run, found = SelfAwareRun(inputs(whole)), evaluate_self_awareness(inputs(whole))
    level = found.detector.image_threshold
    doubt = {name: images.uncertainty(run.detector.aggregate) for name, images in run.ood.items()}
    known = run.clean.uncertainty(run.detector.aggregate)
    for name, of in {**doubt, "all": np.concatenate(list(doubt.values()))}.items():
        shares = np.mean(known <= level), np.mean(of > level)
        assert (found.splits[name]["tpr"], found.splits[name]["tnr"]) == pytest.approx(shares)
    assert [found.images[name].severity for name in ("test", "c1", "c5")] == [0, 1, 5]
    bins = np.bincount(np.minimum(known * 10, 9).astype(int), minlength=10)
    assert found.images["test"].histogram == pytest.approx(bins / len(known))
    # Means over the images of one bin of uncertainty, of the ID split and the shifted ones
    # together.
    parts = {"clean/": run.clean, **{f"{name}/": images for name, images in run.shifted.items()}}
    place = {
        f"{prefix}{name}": int(min(of * 10, 9))  # without detections it is infinite
        for prefix, images in parts.items()
        for name, of in zip(images.names, images.uncertainty(run.detector.aggregate), strict=True)
    }
    pooled = DetectedImages.pooled({prefix[:-1]: images for prefix, images in parts.items()})
    assert len(found.map_by_uncertainty) == 10
    for number, value in enumerate(found.map_by_uncertainty):
        names = [name for name, bin_ in place.items() if bin_ == number]
        objects = pooled.objects[np.isin(pooled.objects.image_id.astype(str), names)]
        regions = pooled.regions[np.isin(pooled.regions.image_id.astype(str), names)]
        expected = closed_set.evaluate(objects, regions)["ap"] if len(objects) else None
        assert value == pytest.approx(expected)


def test_curves_hold_what_the_run_measures_at_each_setting(whole):
    run, found = SelfAwareRun(inputs(whole)), evaluate_self_awareness(inputs(whole))
    known = run.held_out.uncertainty(run.detector.aggregate)
    rows = found.sweeps["image_threshold"]
    # Figure A.15: both thresholds go from 0 to 1.
    assert [row["image_threshold"] for row in rows] == pytest.approx(np.linspace(0, 1, 11))
    assert [row["confidence"] for row in found.sweeps["confidence"]] == pytest.approx(
        np.linspace(0, 1, 11)
    )
    for row in rows[2::4]:
        quality = run.quality(replace(run.detector, image_threshold=row["image_threshold"]))
        for part in ("daq", "balanced_accuracy", "lrp", "laece", "lrp_t", "laece_t"):
            assert row[part] == pytest.approx(quality[part])
        assert row["kept"] == pytest.approx(np.mean(known <= row["image_threshold"]))
    # Rejecting everything costs all objects.
    assert (rows[0]["lrp"], rows[0]["balanced_accuracy"]) == (1, 0)
    assert rows[0]["lrp"] > rows[1]["lrp"] > rows[4]["lrp"]
    assert [row["iou"] for row in found.ious] == [0.1, 0.3, 0.5, 0.7, 0.9]
    middle = next(row for row in found.ious if row["iou"] == run.iou)
    assert (middle["lrp"], middle["laece"]) == (
        found.calibrated["linear"]["lrp"],
        found.calibrated["linear"]["laece"],
    )


def test_isotonic_regression_has_no_calibration_error_where_it_was_learnt(whole):
    found = evaluate_self_awareness(inputs(whole))
    assert {split: set(of) for split, of in found.reliabilities.items()} == {
        "val": {"none", "linear", "isotonic"},
        "test": {"none", "linear", "isotonic"},
    }
    # Appendix D.4: detections of one calibrated confidence have this IoU on average, 0 where they
    # match nothing.
    learnt = {kind: diagram.laece for kind, diagram in found.reliabilities["val"].items()}
    # Among equal calibrated confidences the matching may prefer another detection than before.
    assert learnt["isotonic"] == pytest.approx(0, abs=0.002)
    assert learnt["isotonic"] < learnt["linear"] < learnt["none"]
    # On test images no image is rejected either: Table 5.
    for kind, test_diagram in found.reliabilities["test"].items():
        assert test_diagram.laece == pytest.approx(found.calibrated[kind]["laece"])


def test_calibrators_are_compared_without_rejecting_images(small, objects, regions):
    shown = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    uncertain = [("i2", NOWHERE, 0.1, "cat"), ("i2", NOWHERE, 0.1, "dog")]
    found = regions(("i1", FIRST, 0.9, "cat"), ("i2", FIRST, 0.7, "dog"), *uncertain)
    write(small, "test", shown, found, ["i1", "i2"])
    result = evaluate_self_awareness(
        RunInputs(small, Roles(["far"]), EvaluationSettings(replicates=0))
    )
    # Uncertainty of i2: (0.3 + 0.9 + 0.9) / 3 = 0.7, above the threshold of 0.6. So the run loses
    # the dog, and Table 5, whose LRP is that of Section 5, before images are rejected, does not.
    assert result.images["test"].rejected_images == 1
    assert result.values["lrp"] == 0.5
    assert result.calibrated["linear"]["lrp"] == 0


def test_aggregates_are_those_of_the_library(whole):
    run, found = SelfAwareRun(inputs(whole)), evaluate_self_awareness(inputs(whole))
    known = of_confidence(run.clean.regions, run.clean.names, "min")
    unknown = of_confidence(run.ood["far"].regions, run.ood["far"].names, "min")
    pairs = known[:, None] - unknown[None, :]
    assert found.aggregates["min"]["all"] == pytest.approx(
        np.mean((pairs < 0) + 0.5 * (pairs == 0))
    )


# ----------------------------------------------------------------------- other uncertainties, and
# accuracy by split


@pytest.fixture
def with_variance(whole):
    """The run with variances of the boxes of each detection, larger on OOD images; a sigmoid head."""
    for number, split in enumerate(("val", "test", "far", "c1", "c5", "pseudo_ood")):
        found = Regions.read(whole.regions(split))
        rng = np.random.default_rng(number)
        variance = rng.uniform(0.5, 2, (len(found), 4)).astype(np.float32) * (
            2 if split == "far" else 1
        )
        columns = {**found.columns(), "box_variance": variance}
        Regions(**columns, classes=found.classes, activation="sigmoid").write(whole.regions(split))
    return whole


def entropies(regions):
    """Of the softmax over a detection's logits, and of the Gaussian of its box."""
    return entropy(softmax(regions.logits.astype(float), axis=1), axis=1), np.array(
        [
            multivariate_normal(np.zeros(4), np.diag(v)).entropy()
            for v in regions.box_variance.astype(float)
        ]
    )


def of_image(doubt, regions, names, most=3):
    """Mean of an image's smallest uncertainties, image by image."""
    each = [np.sort(doubt[regions.image_id == name])[:most] for name in names]
    return [one.mean() if len(one) else 1e12 for one in each]


def test_uncertainties_are_those_of_a_loop_over_images(with_variance):
    found = evaluate_self_awareness(inputs(with_variance)).uncertainties
    test, far, val = (
        Regions.read(with_variance.regions(split)) for split in ("test", "far", "val")
    )
    names = [sorted(Images.read(with_variance.images(split)).image_id) for split in ("test", "far")]
    (low, high), (box_low, box_high) = ((of.min(), of.max()) for of in entropies(val))
    formulas = {
        "1 − confidence": lambda r: 1 - r.score.astype(float),
        "entropy": lambda r: entropies(r)[0],
        "entropy, largest sigmoid": lambda r: bernoulli(
            expit(r.logits.max(axis=1).astype(float))
        ).entropy(),
        "entropy, mean of sigmoids": lambda r: (
            bernoulli(expit(r.logits.astype(float))).entropy().mean(axis=1)
        ),
        "box determinant": lambda r: r.box_variance.astype(float).prod(axis=1),
        "box trace": lambda r: r.box_variance.astype(float).sum(axis=1),
        "box entropy": lambda r: entropies(r)[1],
        "entropy + box entropy": lambda r: sum(entropies(r)),
        "4 · entropy + box entropy": lambda r: 4 * entropies(r)[0] + entropies(r)[1],
        "both entropies, normalised": lambda r: (
            (entropies(r)[0] - low) / (high - low)
            + (entropies(r)[1] - box_low) / (box_high - box_low)
        ),
    }
    assert set(found) == {*formulas, "Dempster–Shafer"}
    for title, of in formulas.items():
        sides = [of_image(of(r), r, images) for r, images in zip((test, far), names, strict=True)]
        expected = roc_auc_score(
            np.repeat([0, 1], [len(side) for side in sides]), np.concatenate(sides)
        )
        assert found[title].values["top-3"] == pytest.approx(expected, abs=1e-6), title
        lower, upper = found[title].intervals["top-3"]
        assert lower <= expected <= upper
    assert list(found["box determinant"].values) == [
        "sum",
        "mean",
        "top-5",
        "top-3",
        "top-2",
        "min",
    ]
    assert list(found["box trace"].values) == ["top-3"]


def test_entropy_and_dempster_shafer_count_the_background_as_a_class(tmp_path, regions):
    # SAOD, Eqs. A.6 and A.7, over K + 1 classes: cat 0.5, dog 0.3, background 0.2.
    probabilities = np.array([0.5, 0.3, 0.2])
    detection = regions(("a", FIRST, 0.5))
    columns = {**detection.columns(), "logits": np.log(probabilities)[None].astype(np.float32)}
    classes = ("cat", "dog", "background")
    with_background = Regions(**columns, classes=classes, background_index=2, activation="softmax")
    with_background.write(tmp_path / "r")
    split = SimpleNamespace(folder=RegionsFolder(tmp_path / "r"), regions=lambda: with_background)

    uncertainty = {
        title: of_split[0] for title, (of_split,) in of_detections([split], lambda: split)
    }
    assert uncertainty["entropy"] == pytest.approx(
        entropy(probabilities), abs=1e-6
    )  # 1.0297, not 0.6616
    # (K + 1) / (K + 1 + Σ exp z), where the exponentials are the probabilities.
    assert uncertainty["Dempster–Shafer"] == pytest.approx(3 / 4, abs=1e-6)  # not 2 / 2.8


@pytest.mark.parametrize(
    ("activation", "variance", "expected"),
    [
        ("softmax", False, {"entropy", "Dempster–Shafer"}),
        ("sigmoid", False, {"entropy", "Dempster–Shafer", *OF_SIGMOIDS}),
        ("softmax", True, {"entropy", "Dempster–Shafer", *OF_BOXES}),
        ("sigmoid", True, {"entropy", "Dempster–Shafer", *OF_SIGMOIDS, *OF_BOXES}),
    ],
)
def test_uncertainties_are_those_of_the_stored_columns_and_of_the_head(
    tmp_path, regions, activation, variance, expected
):
    found = regions(("a", FIRST, 0.9), ("b", FIRST, 0.6))
    columns = {
        **found.columns(),
        **({"box_variance": np.ones((2, 4), np.float32)} if variance else {}),
    }
    Regions(**columns, classes=found.classes, activation=activation).write(tmp_path / "r")
    split = SimpleNamespace(folder=RegionsFolder(tmp_path / "r"), regions=lambda: found)
    doubts = dict(of_detections([split], lambda: split))
    assert set(doubts) == {"1 − confidence", *expected}
    assert all(len(of_split) == 2 for (of_split,) in doubts.values())


@pytest.mark.parametrize("known", [20, 1, 0])
def test_entropies_are_added_as_they_are_weighted_and_from_0_to_1_in_validation_images(
    tmp_path, regions, known
):
    random, splits = np.random.default_rng(0), {}
    for name, count in (("test", 9), ("val", known)):
        found = regions(*(("a", FIRST, of) for of in random.uniform(0.5, 1, count)))
        variance = np.exp(random.normal(size=(count, 4))).astype(np.float32)
        Regions(**{**found.columns(), "box_variance": variance}, classes=found.classes).write(
            tmp_path / name
        )
        splits[name] = SimpleNamespace(
            folder=RegionsFolder(tmp_path / name), regions=lambda found=found: found
        )
    doubts, held_out = (
        {title: of for title, (of,) in of_detections([splits[name]], lambda: splits["val"])}
        for name in splits
    )
    names = ("entropy", "box entropy")
    of_class, of_box = (doubts[name] for name in names)
    assert doubts["4 · entropy + box entropy"] == pytest.approx(4 * of_class + of_box)
    # A single one has no range, and is 0; of none, the entropies stay as they are.
    low = [held_out[name].min() if known else 0 for name in names]
    size = [np.ptp(held_out[name]) if known > 1 else 1 for name in names]
    expected = (of_class - low[0]) / size[0] + (of_box - low[1]) / size[1]
    assert doubts["both entropies, normalised"] == pytest.approx(expected)


def test_accuracy_is_coco_s_ap_on_each_split_and_lrp_above_the_thresholds(whole):
    result = evaluate_self_awareness(inputs(whole))
    for split, of in result.accuracy.items():
        objects, regions = Objects.read(whole.objects(split)), Regions.read(whole.regions(split))
        assert of.values["ap"] == pytest.approx(closed_set.evaluate(objects, regions)["ap"])
        assert of.intervals["ap"][0] <= of.values["ap"] <= of.intervals["ap"][1]
    assert list(result.accuracy) == ["val", "test", "c1", "c5"]
    kept = above_of_class(Regions.read(whole.regions("val")), result.detector.confidence_thresholds)
    objects, regions = Objects.read(whole.objects("val")), Regions.read(whole.regions("val"))
    of_val = result.accuracy["val"]
    assert of_val.values["lrp"] == pytest.approx(
        self_awareness.evaluate(objects, regions[kept])["lrp"]
    )
    assert of_val.intervals["lrp"][0] <= of_val.values["lrp"] <= of_val.intervals["lrp"][1]


def test_dummies_of_confidence_0_leave_ap_as_it_is(whole):
    objects, regions = Objects.read(whole.objects("val")), Regions.read(whole.regions("val"))
    first = np.zeros(len(regions), dtype=bool)
    for name in set(regions.image_id):
        rows = np.flatnonzero(regions.image_id == name)
        first[rows[np.argsort(-regions.score[rows], kind="stable")][:10]] = True
    dummies = regions.with_columns(
        score=np.full(len(regions), 1e-9), region_id=regions.region_id + 10_000
    )
    dummies = dummies.with_columns(box=dummies.box + 5000)  # on nothing
    with_dummies = Regions.concatenate([regions[first], dummies])
    row = next(row for row in evaluate_self_awareness(inputs(whole)).top_k if row["k"] == 10)
    assert row["ap"] == pytest.approx(closed_set.evaluate(objects, with_dummies)["ap"])
    assert row["ap_low"] <= row["ap"] <= row["ap_high"]
