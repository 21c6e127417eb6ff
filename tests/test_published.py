"""The typed-off tables, held against what the paper's text says of them."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from farther.metrics.statistics import correlation

FOLDER = Path(__file__).parents[1] / "data" / "published"
WHERE = ("detector", "id", "ood")


def rows(name):
    with (FOLDER / f"fmiyc_{name}.csv").open(encoding="utf-8") as file:
        return [
            {
                key: value if key in (*WHERE, "method") else float(value)
                for key, value in row.items()
            }
            for row in csv.DictReader(file)
        ]


def joined():
    """Old and new metrics of the same detector, split and method."""
    new = {tuple(row[key] for key in (*WHERE, "method")): row for row in rows("open_set")}
    pairs = ((row, new.get(tuple(row[key] for key in (*WHERE, "method")))) for row in rows("ood"))
    return [old | other for old, other in pairs if other is not None]


def test_each_table_has_its_rows():
    # Methods times splits, and of half-filled rows the half.
    old = {8: 12 * 4, 9: 11 * 4, 10: 11 * 4 + 2, 11: 4 * 4, 12: 4 * 4 + 7 * 2, 13: 11 * 4}
    new = {
        14: 4 * 2,
        15: 4 * 2,
        16: 4 * 2,
        17: 13 * 2,
        18: 13 * 2,
        19: 13 * 2,
        20: 12 * 2,
        21: 12 * 2,
        22: 12 * 2,
    }
    new |= {23: 12 * 2, 24: 12 * 2, 25: 12 * 2}
    assert Counter(row["table"] for row in rows("ood")) == old
    assert Counter(row["table"] for row in rows("open_set")) == new
    assert [len(rows(name)) for name in ("no_detection", "images", "map")] == [8, 6, 8]


@pytest.mark.parametrize("name", ["ood", "open_set"])
def test_nothing_stands_twice_and_all_are_fractions(name):
    table = rows(name)
    assert len({tuple(row[key] for key in (*WHERE, "method")) for row in table}) == len(table)
    for row in table:
        assert all(
            0 <= value <= 1 for key, value in row.items() if key not in (*WHERE, "method", "table")
        )


def test_images_of_the_old_benchmark_that_show_id_classes_are_those_of_table_4():
    with (FOLDER / "fmiyc_overlap.csv").open(encoding="utf-8") as file:
        assert {row["id_class"]: int(row["images"]) for row in csv.DictReader(file)} == {
            "person or part": 106,
            "diningtable": 142,
            "other": 4,
        }


def test_the_splits_have_7767_images_in_all():
    assert sum(row["images"] for row in rows("images")) == 7767
    assert {row["ood"] for row in rows("images")} == {row["ood"] for row in rows("ood")}


@pytest.mark.parametrize("name", ["ood", "open_set"])
def test_vos_has_the_same_figures_wherever_it_is_printed(name):
    figures = {}
    for row in rows(name):
        if row["method"] == "vos":
            values = tuple(v for key, v in row.items() if key not in (*WHERE, "method", "table"))
            figures.setdefault((row["id"], row["ood"]), []).append(values)
    assert len(figures) == 6
    assert all(len(values) == 2 and values[0] == values[1] for values in figures.values())


def test_no_object_is_both_found_and_misclassified_and_precision_is_at_most_one():
    for row in rows("open_set"):
        assert row["nose"] + row["r_u"] <= 1
        assert row["ap_u"] <= row["r_u"]


def test_farther_splits_have_the_smallest_open_set_error_on_average():
    mean = {}
    for ood in ("near", "far", "farther"):
        own = [row["nose"] for row in rows("open_set") if row["ood"].endswith(f"_{ood}")]
        mean[ood] = sum(own) / len(own)
    assert mean["farther"] < mean["far"] < mean["near"]


def test_rt_detr_has_the_largest_map_and_vos_hardly_changes_it():
    found = {(row["detector"], row["id"]): row["map"] for row in rows("map")}
    for id_name in ("voc", "bdd"):
        assert max(found, key=lambda key: found[key] if key[1] == id_name else 0)[0] == "rt_detr"
        assert abs(found["faster_rcnn", id_name] - found["faster_rcnn_vos", id_name]) < 0.003


def test_old_metrics_go_moderately_with_the_new_ones_and_hardly_with_precision():
    table = joined()
    assert len(table) == 226
    found = correlation.matrix(table, ["auroc", "fpr95", "nose", "ap_u", "r_u", "p_u"])
    for metric, sign in (("nose", -1), ("ap_u", 1), ("r_u", 1)):
        assert 0.40 < sign * found["auroc"][metric] < 0.70
        assert 0.52 < -sign * found["fpr95"][metric] < 0.70
    assert abs(found["auroc"]["p_u"]) < 0.26
    assert abs(found["fpr95"]["p_u"]) < 0.16


OLD, NEW = ("auroc", "fpr95"), ("nose", "ap_u", "r_u")


def means(table, keys):
    """Means of all metrics over the rows that agree in these keys."""
    groups = {}
    for row in table:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    metrics = (*OLD, *NEW, "p_u")
    return [
        {m: sum(row[m] for row in group) / len(group) for m in metrics} for group in groups.values()
    ]


def extremes(table, kind="pearson"):
    """Smallest and largest |r| of old and new metrics, and the largest with P_U, to two digits."""
    found = correlation.matrix(table, (*OLD, *NEW, "p_u"), kind)
    sizes = [abs(found[old][new]) for old in OLD for new in NEW]
    return tuple(
        round(v, 2) for v in (min(sizes), max(sizes), max(abs(found[old]["p_u"]) for old in OLD))
    )


def test_no_reading_of_the_correlation_claim_comes_out_exactly():
    # The paper: 0.56 to 0.70, and none with P_U. The numbers here are those of
    # data/published/README.md.
    table = joined()
    per_run = means(table, ("detector", "id", "method"))
    assert len(per_run) == 75
    assert extremes(table) == (0.41, 0.68, 0.25)
    assert extremes(table, "spearman") == (0.46, 0.79, 0.26)
    assert extremes([row for row in table if row["id"] == "voc"]) == (0.42, 0.81, 0.53)
    assert extremes([row for row in table if row["id"] == "bdd"]) == (0.48, 0.74, 0.01)
    assert extremes(per_run) == (0.48, 0.72, 0.17)
    assert extremes(per_run, "spearman") == (0.57, 0.79, 0.18)
    assert extremes(means(table, ("detector", "method"))) == (0.75, 0.91, 0.49)


def test_knn_has_new_metrics_but_no_old_ones():
    methods = {name: [row["method"] for row in rows(name)] for name in ("ood", "open_set")}
    assert (methods["ood"].count("knn"), methods["open_set"].count("knn")) == (0, 18)


# OpenOOD's leaderboard: its counts, and properties that its values must have.


def openood(name="openood"):
    with (FOLDER / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_each_benchmark_of_openood_has_each_method_once_near_and_far():
    places = Counter((row["detector"], row["id"], row["method"]) for row in openood())
    assert set(places.values()) == {2}
    assert Counter(place[:2] for place in places) == {
        ("resnet18_32x32", "cifar10"): 23,
        ("resnet18_32x32", "cifar100"): 23,
        ("resnet18", "imagenet200"): 23,
        ("resnet50", "imagenet"): 22,
        ("swin_t", "imagenet"): 17,
        ("vit_b_16", "imagenet"): 16,
    }
    assert {(row["detector"], row["id"]) for row in openood("openood_accuracy")} == {
        place[:2] for place in places
    }


def test_values_of_openood_are_fractions_and_only_imagenet_has_full_spectrum_values():
    for row in openood():
        assert all(
            0 <= float(row[name]) <= 1
            for name in ("auroc", "auroc_sd", "full_spectrum_auroc")
            if row[name]
        )
        assert bool(row["full_spectrum_auroc"]) == row["id"].startswith("imagenet")
        assert bool(row["auroc_sd"]) == (
            row["id"] != "imagenet"
        )  # three seeds but for torchvision's checkpoints


def test_shifted_id_images_make_the_benchmark_harder_for_every_good_method():
    # With csID images among the positives AUROC falls wherever it was above chance.
    for row in openood():
        if row["full_spectrum_auroc"] and float(row["auroc"]) > 0.62:
            assert float(row["full_spectrum_auroc"]) < float(row["auroc"])
    for row in openood("openood_accuracy"):
        if row["full_spectrum_accuracy"]:
            assert float(row["full_spectrum_accuracy"]) < float(row["accuracy"])


def test_near_is_harder_than_far_for_most_methods_on_each_benchmark():
    found = {}
    for row in openood():
        found.setdefault((row["detector"], row["id"], row["method"]), {})[row["ood"]] = float(
            row["auroc"]
        )
    for place in {key[:2] for key in found}:
        harder = [of["near"] < of["far"] for key, of in found.items() if key[:2] == place]
        assert sum(harder) > len(harder) / 2


# OpenOOD's Table 1: its counts, and its means, which are printed too.

#: Number of columns of each benchmark: one, or near and far.
CELLS_V1 = dict.fromkeys(("mvtec-ad", "mnist-6-4", "cifar-6-4", "cifar-50-50", "tin-20-180"), 1)
CELLS_V1 |= dict.fromkeys(("mnist-v1", "cifar10-v1", "cifar100-v1", "imagenet-v1"), 2)

#: Printed means that are not those of the printed values, to a unit of the last digit: method →
#: means.
OTHER_MEANS = {
    "odin": {"osr_mean"},
    "mahalanobis": {"osr_mean"},
    "dice": {"far_mean"},
    "opengan": {"near_mean", "far_mean"},
    "vos": {"far_mean"},
    "mc_dropout": {"near_mean"},
}


def test_each_of_the_34_methods_has_a_cell_on_each_benchmark_of_openood_version_1():
    cells = openood("openood_v1")
    methods = [row["method"] for row in openood("openood_v1_methods")]
    assert len(methods) == len(set(methods)) == 34
    count = Counter((row["id"], row["method"]) for row in cells)
    assert count == {(name, method): n for name, n in CELLS_V1.items() for method in methods}
    for row in cells:
        assert bool(row["auroc"]) != bool(row["missing"])
        assert not row["auroc"] or 0 <= float(row["auroc"]) <= 1
    # Anomaly detection, post-hoc, training, extra data, uncertainty and augmentation: methods times
    # cells.
    printed = (1 + 3 * 11) + 13 * 12 + 8 * 6 + 3 * 4 + 3 * 10 + 3 * 10
    assert sum(bool(row["auroc"]) for row in cells) == printed


def test_printed_means_of_openood_version_1_are_those_of_the_values_but_for_six_methods():
    values = {}
    for row in openood("openood_v1"):
        if row["auroc"]:
            values[row["method"], row["id"], row["ood"]] = float(row["auroc"])
    columns = {
        "osr_mean": [
            (name, "near") for name in ("mnist-6-4", "cifar-6-4", "cifar-50-50", "tin-20-180")
        ],
        "near_mean": [
            (name, "near") for name in ("mnist-v1", "cifar10-v1", "cifar100-v1", "imagenet-v1")
        ],
        "far_mean": [
            (name, "far") for name in ("mnist-v1", "cifar10-v1", "cifar100-v1", "imagenet-v1")
        ],
    }
    differ = {}
    for row in openood("openood_v1_methods"):
        for mean, places in columns.items():
            method = row["method"]
            present = [values[method, *place] for place in places if (method, *place) in values]
            assert bool(row[mean]) == bool(present)
            if present and abs(sum(present) / len(present) - float(row[mean])) > 0.001:
                differ.setdefault(method, set()).add(mean)
    assert differ == OTHER_MEANS


# The Overlooked Elephant: its counts, and what the tables say of each other.


def elephant(name):
    with (FOLDER / f"elephant_{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_elephant_tables_have_their_rows():
    assert [
        len(elephant(name)) for name in ("map", "impact", "background", "operating_points")
    ] == [5, 12, 20, 54]
    assert {
        row["id"]
        for name in ("map", "impact", "background", "operating_points")
        for row in elephant(name)
    } == {"voc"}


def test_unknown_objects_cost_every_detector_and_two_stages_suffer_least():
    assert all(float(row["map_open"]) < float(row["map_closed"]) for row in elephant("map"))
    impact = {
        (row["detector"], row["recall"]): float(row["average_impact"]) for row in elephant("impact")
    }
    for recall in ("0.1", "0.3", "0.5"):
        assert impact["faster_rcnn", recall] == min(
            of for (_, at), of in impact.items() if at == recall
        )


def test_the_printed_f_follows_from_precision_and_recall_but_for_half_beta_with_unknown_objects():
    for row in elephant("operating_points"):
        beta, f, precision, recall = (
            float(row[name]) for name in ("beta", "f", "precision", "recall")
        )
        lacks = (1 + beta**2) * precision * recall / (recall + beta**2 * precision) - f
        if beta == 0.5 and row["ratio"] != "0":
            assert 0.025 < lacks < 0.155
        else:
            assert abs(lacks) < 0.0065


# SAOD: its counts, and what its tables say of each other.

#: Images of SVHN, iNaturalist and Objects365 in its OOD images (Appendix A.3).
SAOD_OOD = {"svhn": 46470, "inaturalist": 28768, "objects365": 35190}


def saod(name):
    with (FOLDER / f"saod_{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def saod_by_detector(name):
    return {(row["detector"], row["id"]): row for row in saod(name)}


def harmonic(*values):
    return len(values) / sum(1 / value for value in values)


def test_the_saod_tables_have_their_rows_and_fractions():
    counts = {
        "aggregates": 6,
        "uncertainties": 8,
        "subsets": 6,
        "calibration": 24,
        "detectors": 6,
        "ablation": 4,
    }
    values = 0
    for name, count in counts.items():
        assert len(saod(name)) == count
        for row in saod(name):
            cells = [cell for column, cell in row.items() if cell[:2] == "0."]
            values += len(cells)
            assert all(0 < float(cell) < 1 for cell in cells)
    # 6 · 6 + (8 · 3 + 2 · 3) + 6 · 4 + 24 · 2 + 6 · 10 + 4 · 6.
    assert values == 222


def test_printed_idq_and_daq_are_harmonic_means_of_the_printed_parts():
    for row in saod("detectors"):
        cells = {
            name: float(cell)
            for name, cell in row.items()
            if name not in ("detector", "id", "table")
        }
        for shift in ("", "_t"):
            assert harmonic(1 - cells[f"lrp{shift}"], 1 - cells[f"laece{shift}"]) == pytest.approx(
                cells[f"idq{shift}"], abs=0.0012
            )
        parts = (cells["balanced_accuracy"], cells["idq"], cells["idq_t"])
        assert harmonic(*parts) == pytest.approx(cells["daq"], abs=0.0012)
    for row in saod("ablation"):
        cells = {
            name: float(row[name])
            for name in ("daq", "balanced_accuracy", "laece", "lrp", "laece_t", "lrp_t")
        }
        idq = harmonic(1 - cells["lrp"], 1 - cells["laece"])
        idq_t = harmonic(1 - cells["lrp_t"], 1 - cells["laece_t"])
        assert harmonic(cells["balanced_accuracy"], idq, idq_t) == pytest.approx(
            cells["daq"], abs=0.0015
        )


def test_the_last_row_of_the_ablation_is_the_first_detector():
    first, last = saod("detectors")[0], saod("ablation")[-1]
    for name in ("daq", "balanced_accuracy", "laece", "lrp", "laece_t", "lrp_t"):
        assert first[name] == last[name]


def test_auroc_of_all_ood_images_is_the_mean_of_the_subsets_weighted_by_their_images():
    aggregates, uncertainties = saod_by_detector("aggregates"), saod_by_detector("uncertainties")
    differ = set()
    for detector, row in saod_by_detector("subsets").items():
        total = sum(float(row[name]) * images for name, images in SAOD_OOD.items())
        mean = total / sum(SAOD_OOD.values())
        assert float(aggregates[detector]["top_3"]) == pytest.approx(mean, abs=0.0006)
        if (
            not float(row["all"])
            == float(uncertainties[detector]["confidence"])
            == pytest.approx(mean, abs=0.0006)
        ):
            differ.add(detector)
    # Printed otherwise in Tables 3 and 4, or in 4 alone: data/published/README.md.
    assert differ == {("deformable_detr", "coco"), ("atss", "nuimages")}


def test_lrp_does_not_depend_on_the_calibrator():
    by_detector = {}
    for row in saod("calibration"):
        by_detector.setdefault((row["detector"], row["id"]), []).append(float(row["lrp"]))
    for values in by_detector.values():
        assert len(values) == 4
        assert max(values) - min(values) < 0.0011
