"""Comparisons of methods by stored replicates."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from tests.evaluation.evaluated_runs import (
    evaluated,
)

from farther.errors import DataError
from farther.evaluation import paired
from farther.evaluation.settings import EvaluationSettings
from farther.metrics.catalogue import METRICS
from farther.metrics.statistics import bootstrap


def test_methods_are_compared_by_the_replicates_that_an_evaluation_stored(files):
    settings = EvaluationSettings(replicates=100, confidences=(), kept=())
    far = evaluated(files, ["msp"], ["far"], settings).methods["msp"].splits["far"]
    found = paired.StoredEvaluation(files.root, "r").replicates("msp", "far")
    with pytest.raises(DataError, match="no replicates of knn: run `farther repro evaluate`"):
        paired.StoredEvaluation(files.root, "r").replicates("knn", "far")
    for name in ("nose", "r_u", "auroc"):
        value = far.value(METRICS[name])
        interval = bootstrap.interval(
            found.metrics[name], value=value, images=far.share_images(METRICS[name])
        )
        assert interval == far.interval(METRICS[name])
    gains = np.linspace(0.24, 0.26, settings.replicates)
    more = replace(found, metrics={name: of + gains for name, of in found.metrics.items()})
    low, high = paired.compare(found, more)["r_u"]["interval"]
    assert (low, high) == pytest.approx((0.25, 0.25), abs=0.01)  # paired: images hardly matter
    other = replace(found, draws={**found.draws, "seed": 1, "number of replicates": 20})
    with pytest.raises(
        DataError, match="differ in number of replicates and seed, so they are not paired"
    ):
        paired.compare(found, other)


def test_replicates_that_another_version_wrote_are_not_compared(files):
    settings = EvaluationSettings(replicates=100, confidences=(), kept=())
    evaluated(files, ["msp"], ["far"], settings)
    stored = paired.StoredEvaluation(files.root, "r")
    pl.DataFrame({"auroc": [0.5, 0.6]}).write_parquet(files.replicates("msp", "far"))
    problem = (
        "replicates of msp are damaged, or another version of farther wrote them: run `farther"
    )
    with pytest.raises(DataError, match=problem):
        stored.replicates("msp", "far")
