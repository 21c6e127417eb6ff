"""Drift: intervals against Fisher's exact test of SciPy, and false alarms by simulation."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import vl_convert
from scipy.stats import binom, fisher_exact

from farther.errors import ParameterError
from farther.monitor.drift import KEPT, SHARES, Drift, Rates, consistent
from farther.monitor.drift_page import OF_PROPOSALS, TITLES, content, write_drift
from farther.monitor.proposal_rates import ProposalRates

SPEC = re.compile(r'<script type="application/json" id="(drift-\d)">(.*?)</script>', re.DOTALL)


def rates(detections: np.ndarray, unknown: np.ndarray, rejected: int = 0) -> Rates:
    """Rates of images with these numbers of detections, and of unknown ones among them."""
    names = [str(number) for number in range(len(detections))]
    flags = [np.arange(count) < flagged for count, flagged in zip(detections, unknown, strict=True)]
    return Rates.of(np.repeat(names, detections), np.concatenate(flags), names, names[:rejected])


def feed(drift: Drift, detections: np.ndarray, unknown: np.ndarray) -> list[str]:
    """Counts images; the shares that left their interval, in order."""
    windows = (
        drift.add(int(count), int(flagged))
        for count, flagged in zip(detections, unknown, strict=True)
    )
    return [name for window in windows if window for name in window.outside]


def clustered(
    random: np.random.Generator, images: int, share: float = 0.1
) -> tuple[np.ndarray, np.ndarray]:
    """Images with four detections that are all unknown, or all known."""
    return np.full(images, 4), 4 * random.binomial(1, share, images)


def test_rates_count_what_is_there():
    found = Rates.of(
        np.array(["a", "a", "c"]), np.array([True, False, False]), ["a", "b", "c"], ["c"]
    )
    assert (found.images, found.rejected, found.empty, found.detections, found.unknown) == (
        3,
        1,
        1,
        3,
        1,
    )
    assert Rates(**json.loads(json.dumps(found.to_json()))) == found


def test_images_that_are_counted_one_by_one_have_the_rates_of_all():
    random = np.random.default_rng(6)
    detections = random.integers(0, 4, 30)
    unknown, names = random.binomial(detections, 0.3), [str(number) for number in range(30)]
    expected = rates(detections, unknown, rejected=7).to_json()
    drift = Drift(Rates(images=5))
    for number, (count, flagged) in enumerate(zip(detections, unknown, strict=True)):
        drift.add(int(count), int(flagged), accepted=number >= 7)
    assert {**drift.total.to_json(), "design_effect": expected["design_effect"]} == expected
    objectness = random.random(40)
    validation = Rates.of(
        np.zeros(0, object), np.zeros(0, bool), names, [], (random.choice(names, 40), objectness)
    )
    drift = Drift(validation)
    for part in np.split(objectness, [0, 3, 17, 39]):
        drift.add(0, 0, objectness=part)
    assert drift.total.proposals.counts == validation.proposals.counts


@pytest.mark.parametrize("found", [0, 5, 25, 46, 50])
def test_the_interval_holds_exactly_the_shares_that_fishers_test_does_not_refuse(found):
    validation, size, level = Rates(images=50, rejected=found), 20, 0.1
    low, high = consistent(validation, Rates(images=size), "rejected", level)
    for rejected in range(size + 1):
        table = [[rejected, size - rejected], [found, 50 - found]]
        tails = [fisher_exact(table, alternative=side).pvalue for side in ("less", "greater")]
        assert (min(tails) >= level / 2) == (low <= rejected / size <= high), rejected


def test_the_interval_of_a_number_holds_what_the_conditional_test_does_not_refuse():
    of, size, level = 50, 20, 0.1
    for found in (0, 1, 13):
        validation = Rates(images=of, proposals=ProposalRates((), (found,)))
        low, high = consistent(validation, Rates(images=size), "proposals", level)
        assert low >= 0
        for number in range(40):
            here = binom(number + found, size / (of + size))
            refused = min(here.cdf(number), here.sf(number - 1)) < level / 2
            assert refused == (not low <= number / size <= high), (found, number)


def proposing(
    random: np.random.Generator, images: int, shift: float = 0.0, mean: float = 0.5
) -> list[np.ndarray]:
    """Objectness of each image's proposals; their number varies more than Poisson's."""
    return [
        random.beta(2, 5, random.poisson(rate)) + shift for rate in random.gamma(1, mean, images)
    ]


def of_proposals(each: list[np.ndarray]) -> Rates:
    names = [str(number) for number in range(len(each))]
    image = np.repeat(names, [len(one) for one in each])
    return Rates.of(
        np.zeros(0, object), np.zeros(0, bool), names, [], (image, np.concatenate(each))
    )


def watched(validation: Rates, each: list[np.ndarray]) -> Drift:
    drift = Drift(validation, window=100)
    for objectness in each:
        drift.add(0, 0, objectness=objectness)
    return drift


def test_number_and_objectness_of_proposals_are_compared_with_those_of_validation(tmp_path):
    random = np.random.default_rng(5)
    each = proposing(random, 400)
    validation = of_proposals(each)
    assert validation.proposals.number == sum(map(len, each))
    assert validation.proposals.above_median == pytest.approx(
        validation.proposals.number / 2, abs=1
    )
    assert validation.proposals.dispersion == pytest.approx(1.5, abs=0.3)
    assert Rates(images=1).share("proposals") == 0
    alarms = [
        watched(of_proposals(proposing(random, 250)), proposing(random, 500)).alarms
        for _ in range(60)
    ]
    assert np.mean(np.array(alarms) > 0) <= 0.1
    assert watched(validation, proposing(random, 100, mean=2)).windows[-1].outside == ("proposals",)
    drift = watched(validation, proposing(random, 200, shift=0.2))
    assert [window.outside for window in drift.windows] == [("objectness",), ("objectness",)]
    assert drift.total.proposals.number == sum(drift.total.proposals.counts)
    write_drift(drift, tmp_path, "gate")
    page = (tmp_path / "drift/index.html").read_text()
    assert "Proposals called unknown per image" in page
    assert "Objectness of all proposals" in page
    written = json.loads((tmp_path / "drift.json").read_text())
    assert written["last_windows"][0]["outside"] == ["objectness"]
    assert sum(written["total"]["proposals"]["counts"]) == drift.total.proposals.number


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("numbers", "dispersion"),
    [((3, 0, 1, 8), 38 / 9), ((2, 2, 3), 1), ((0, 0), 1), ((4,), 1), ((), 1)],
)
def test_the_number_of_proposals_varies_at_least_as_a_poisson_s(numbers, dispersion):
    found = ProposalRates.of(
        np.repeat(np.arange(len(numbers)), numbers), np.ones(sum(numbers)), len(numbers)
    )
    assert found.dispersion == pytest.approx(dispersion)


def test_proposals_in_pairs_give_an_interval_of_twice_as_many():
    alone, pairs = (ProposalRates((), (k * 30,), dispersion=k) for k in (1, 2))
    low, high = consistent(Rates(images=50, proposals=alone), Rates(images=20), "proposals", 0.05)
    assert 0 < low < 30 / 50 < high
    of_pairs = consistent(Rates(images=50, proposals=pairs), Rates(images=20), "proposals", 0.05)
    assert of_pairs == pytest.approx((2 * low, 2 * high))


def test_numbers_of_proposals_of_no_image_are_consistent_with_nothing():
    some, none = (
        Rates(images=5, proposals=ProposalRates((), (3,))),
        Rates(proposals=ProposalRates((), (3,))),
    )
    assert consistent(some, Rates(), "proposals", 0.05) is None
    assert consistent(none, Rates(images=5), "proposals", 0.05) is None


def test_the_number_of_proposals_is_by_image_and_the_share_above_the_median_by_proposal():
    validation = Rates(images=8, proposals=ProposalRates((0.5,), (1, 3)))
    assert (validation.share("proposals"), validation.share("objectness")) == (4 / 8, 3 / 4)
    assert list(validation.compared) == [*SHARES, "proposals", "objectness"]
    assert list(Rates(images=8).compared) == list(SHARES)


def test_proposals_of_a_bundle_without_them_are_refused_and_so_is_a_bundle_s_without_any():
    with pytest.raises(ParameterError, match="ID validation of the bundle has no proposals"):
        Drift(Rates(images=5)).add(0, 0, objectness=np.zeros(1))
    with pytest.raises(ParameterError, match="the bundle has proposals: give the objectness"):
        Drift(of_proposals([np.ones(1)])).add(0, 0)


def test_detections_that_agree_within_an_image_count_as_one():
    alike = rates(*clustered(np.random.default_rng(0), 2000))
    independent = rates(np.full(2000, 4), np.random.default_rng(0).binomial(4, 0.1, 2000))
    assert alike.design_effect == pytest.approx(4, rel=0.05)
    assert independent.design_effect == pytest.approx(1, rel=0.1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("detections", "unknown", "effect"),
    [
        ((4, 4), (4, 0), 8),
        ((4, 4), (2, 2), 1),
        ((4, 4), (4, 4), 1),
        ((4, 4), (0, 0), 1),
        ((0, 0), (0, 0), 1),
        ((4,), (2,), 1),
    ],
)
def test_the_design_effect_of_few_images_by_hand(detections, unknown, effect):
    # Residuals of ±2: a variance of 2 · 8 beside 8 · 1/4 of independent detections.
    assert rates(np.array(detections), np.array(unknown)).design_effect == pytest.approx(effect)


def test_a_stream_without_drift_seldom_raises_any_false_alarm():
    random, alarms, naive = np.random.default_rng(1), 0, 0
    streams, windows, size = 60, 20, 40
    for _ in range(streams):
        validation = rates(*clustered(random, 150))
        drift = Drift(validation, window=size)
        alarms += bool(feed(drift, *clustered(random, windows * size)))
        # The same windows, each at the level of 5% and with detections taken for independent.
        plain = Rates(**{**validation.to_json(), "design_effect": 1.0})
        within = (consistent(plain, window.rates, "unknown", 0.05) for window in drift.windows)
        shares = (window.rates.share("unknown") for window in drift.windows)
        naive += any(
            not low <= share <= high for (low, high), share in zip(within, shares, strict=True)
        )
    assert alarms <= 0.05 * streams
    assert naive > 0.8 * streams


@pytest.mark.parametrize("proposals", [None, ProposalRates((0.5,), (20, 20))])
def test_levels_of_all_values_and_windows_add_up_to_the_level(proposals, monkeypatch):
    levels = []

    def recording(validation, window, share, level):
        levels.append(level)
        return consistent(validation, window, share, level)

    monkeypatch.setattr("farther.monitor.drift.consistent", recording)
    drift = Drift(Rates(images=50, proposals=proposals), window=1, level=0.2)
    for _ in range(100):
        drift.add(0, 0, objectness=None if proposals is None else np.ones(1))
    assert 0.98 * 0.2 < sum(levels) < 0.2


def test_drift_is_reported_in_one_line():
    random = np.random.default_rng(2)
    drift = Drift(rates(*clustered(random, 250)), window=100)
    assert feed(drift, *clustered(random, 1000)) == []
    assert feed(drift, *clustered(random, 100, share=0.5)) == ["unknown"]
    assert re.fullmatch(
        r"images 1,001 to 1,100: \d\d\.\d% of the detections are unknown; "
        r"ID validation showed \d+\.\d%, and \[\d+\.\d%, \d+\.\d%\] is consistent with it",
        drift.windows[-1].describe("unknown"),
    )


def test_a_covered_camera_is_drift_although_nothing_is_unknown():
    drift = Drift(rates(*clustered(np.random.default_rng(3), 250)), window=50)
    assert feed(drift, np.zeros(50, int), np.zeros(50, int)) == ["empty"]


def test_the_last_window_may_be_shorter():
    drift = Drift(Rates(images=100, rejected=5), window=30)
    for _ in range(40):
        drift.add(0, 0)
    assert drift.close().rates.images == 10
    assert drift.close() is None
    assert drift.total.images == 40


def test_the_number_of_windows_in_memory_is_bounded():
    drift = Drift(Rates(images=10, rejected=1), window=1)
    for _ in range(KEPT + 50):
        drift.add(0, 0)
    assert drift.count == KEPT + 50
    assert len(drift.windows) == KEPT


@pytest.mark.parametrize("wrong", [{"window": 0}, {"level": 0}, {"level": 1}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ParameterError):
        Drift(Rates(images=1), **wrong)
    with pytest.raises(ParameterError, match="no image to compare with"):
        Drift(Rates())


def test_the_page_opens_from_disk_and_draws_each_share(tmp_path):
    random = np.random.default_rng(4)
    drift = Drift(rates(*clustered(random, 250), rejected=10), window=50)
    feed(drift, *clustered(random, 200))
    feed(drift, *clustered(random, 50, share=0.9))
    write_drift(drift, tmp_path, "gate")
    page = (tmp_path / "drift/index.html").read_text()
    assert "In 1 of 5 windows" in page
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)
    specs = dict(SPEC.findall(page))
    assert len(specs) == len(SHARES)
    for spec in specs.values():
        assert "<path" in vl_convert.vegalite_to_svg(
            {**json.loads(spec), "width": 300}, show_warnings=False
        )
    written = json.loads((tmp_path / "drift.json").read_text())
    assert (written["format"], written["version"]) == ("farther.drift", 1)
    assert (written["windows"], written["alarms"]) == (5, 1)
    assert written["last_windows"][-1]["outside"] == ["unknown"]


def test_the_page_says_what_was_counted_and_how_many_windows_were_outside():
    drift = Drift(Rates(images=1000, rejected=100, detections=2000, unknown=200), window=20)
    feed(drift, np.full(60, 2), np.repeat([0, 2, 0], 20))
    page = content(drift)
    caption = (
        "Compared values. Validation: 1,000 images, 2,000 detections; "
        "monitored: 60 images, 120 detections."
    )
    assert page["overview"].caption == caption
    assert page["overview"].frame["windows outside"].to_list() == [1, 0, 0]
    assert page["overview"].frame["value"].to_list() == list(TITLES.values())
    assert page["proposals"] is None


def test_the_page_of_a_bundle_with_proposals_has_their_numbers_and_charts():
    validation = of_proposals([np.linspace(0, 1, 41)] * 25)
    titles = []
    for objectness in (np.linspace(0, 1, 41), np.zeros(0)):
        page = content(watched(validation, [objectness] * 100))
        numbers = f"proposals: validation 1,025, monitored {100 * len(objectness):,}."
        assert page["overview"].caption.endswith(f"; {numbers}")
        titles.append([chart.title for chart in page["proposals"].charts])
        rows = page["overview"].frame.select("value", "windows outside").rows()
        assert [title for title, _ in rows] == [*TITLES.values(), *OF_PROPOSALS.values()]
        # The headline counts windows in which any value is outside: the table has them all.
        outside_by_title = dict(rows)
        assert outside_by_title[OF_PROPOSALS["proposals"]] == (1 if not len(objectness) else 0)
    assert titles[0] == [*OF_PROPOSALS.values(), "Objectness of all proposals"]
    assert titles[1] == [OF_PROPOSALS["proposals"]]  # there is nothing to take a share of


def test_one_window_has_no_page(tmp_path):
    drift = Drift(Rates(images=10), window=5)
    drift.add(1, 0)
    drift.close()
    write_drift(drift, tmp_path, "gate")
    assert [file.name for file in tmp_path.iterdir()] == ["drift.json"]
