"""The catalogue: every metric is described in full, and its formula can be filled in."""

from collections import defaultdict

import pytest

from farther.metrics.catalogue import COMPARED, METRICS


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_every_metric_is_described_in_full(metric):
    for text in (metric.title, metric.latex, metric.meaning, metric.formula, metric.source):
        assert isinstance(text, str) and text.strip() == text != ""
    assert metric.higher_is_better in (True, False, None)
    assert "<" not in metric.formula and "{" not in metric.source
    assert "{" not in metric.formula.format_map(defaultdict(int)).replace("{k−1}", "")


def test_metrics_per_image_follow_those_of_detections():
    assert METRICS["per_image_fpr95"].key == "fpr95"
    assert METRICS["per_image_fpr95"].arrow == METRICS["fpr95"].arrow == "↓"
    assert "{id_images} images" in METRICS["per_image_fpr95"].formula


def test_metrics_that_rank_methods_have_a_direction():
    ranked = {name for name, metric in METRICS.items() if metric.ranked}
    assert {*COMPARED, *(name for name, metric in METRICS.items() if metric.averaged)} <= ranked
    assert all(METRICS[name].higher_is_better is not None for name in ranked)
