"""Scores that need the detector while they score."""

from typing import ClassVar

import numpy as np
import pytest
from pydantic.dataclasses import dataclass

from farther import methods
from farther.errors import DataError
from farther.methods.base import METHODS, FitError
from farther.methods.logits import class_logits, softmax
from farther.methods.parts.network import NetworkMethod
from farther.registry import STRICT
from farther.scoring.fit import FitSettings, fit_run
from farther.scoring.score import score_run
from farther.tables import Regions


@dataclass(config=STRICT, kw_only=True)
class Agreement(NetworkMethod):
    """The largest mean probability over several runs with dropout."""

    runs: int = 50
    name: ClassVar[str] = "agreement"
    needs: ClassVar[frozenset[str]] = frozenset({"logits", "model"})

    def _score_with(self, regions, network):
        each = [softmax(class_logits(network(regions, seed=seed), "drop")) for seed in range(self.runs)]
        return np.mean(each, axis=0).max(axis=1)


class Dropout:
    """A network that is unsure of regions in some images: its logits vary from run to run."""

    def __init__(self, unsure):
        self.unsure, self.asked = set(unsure), []

    def __call__(self, regions, *, seed):
        self.asked.append(seed)
        noise = np.random.default_rng(seed).normal(scale=8, size=regions.logits.shape)
        noise[[image not in self.unsure for image in regions.image_id]] = 0
        return Regions(**{**regions.columns(), "logits": regions.logits + noise}, header=regions.header)


def test_a_method_can_run_the_network_while_it_scores(make):
    regions = make(300, seed=1)
    unsure = sorted(set(regions.image_id))[::2]
    network = Dropout(unsure)
    scores = Agreement().fit(regions).score(regions, network=network)
    of_unsure = np.isin(regions.image_id.astype(str), unsure)
    assert scores.shape == (300,)
    assert scores[of_unsure].mean() < scores[~of_unsure].mean() - 0.1
    np.testing.assert_allclose(scores[~of_unsure], methods.create("msp").score(regions)[~of_unsure], rtol=1e-6)
    assert network.asked == list(range(50))


def test_without_the_network_it_says_what_is_missing(make):
    with pytest.raises(FitError, match="agreement needs the network at score time, which the pipeline does not run"):
        Agreement().fit(make(20, seed=1)).score(make(20, seed=1))


def test_the_pipeline_leaves_its_reason_and_goes_on(make, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS._classes, "agreement", Agreement)
    for seed, split in enumerate(["train", "val", "test"]):
        make(30, seed=seed).write(tmp_path / "regions" / split)
    reason = fit_run("agreement", {}, tmp_path / "regions", 0.0, FitSettings(), tmp_path / "fitted")
    assert "needs the network at score time" in reason
    done = score_run(tmp_path / "regions", tmp_path / "fitted", tmp_path / "scores")
    assert done == dict.fromkeys(("val", "test"), f"not applicable: {reason}")


def test_a_network_that_gives_other_rows_is_refused(make):
    with pytest.raises(DataError, match=r"asked for 20 rows and gave other ones \(19\)"):
        Agreement().fit(make(20, seed=1)).score(make(20, seed=1), network=lambda regions, seed: regions[1:])
