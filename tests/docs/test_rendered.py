"""Results of the demo in the docs equal those in `artifacts/metrics`.

`tests/docs/render.py` updates the docs.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest
import pytorch_ood.detector
import yaml
from tests.docs import architecture, render
from tests.docs.pages import Page

from farther import methods
from farther.pipeline.stages import STAGES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURES = (".png", ".jpg", ".svg")


def measured(run: str, split: str, method: str) -> dict[str, float]:
    return json.loads((ROOT / f"artifacts/metrics/{run}/{split}/{method}.json").read_text())


def at_distance(params: dict, run: str, distance: str) -> list[str]:
    """The OOD splits of a run that results are reported on, at a distance."""
    splits = params["benchmarks"][params["detectors"][run]["benchmark"]]["splits"]
    return [
        name
        for name, one in splits.items()
        if one["distance"] == distance and one.get("use", "test") == "test"
    ]


@pytest.mark.parametrize("split", render.SPLITS)
def test_tables_of_reading_results_are_the_metrics_in_git(split):
    assert render.blocks("reading-results.md")[split] == render.table(ROOT / "artifacts", split)


def test_the_quoted_sentences_agree_with_the_metrics_in_git():
    """Shares over all near splits lie between those of the splits."""
    first = render.blocks("reading-results.md")["sentences"].splitlines()[0]
    title, known, taken, missed, found = re.match(  # type: ignore[union-attr]
        r"> - (.+) \((\w+)\) misclassifies (\d+)%.* near .* misses (\d+)% .* finds (\d+)%", first
    ).groups()
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    (run,) = (
        name
        for name, entry in params["detectors"].items()
        if entry.get("title") == title
        and params["benchmarks"][entry["benchmark"]]["title"] == known
    )
    splits = params["benchmarks"][params["detectors"][run]["benchmark"]]["splits"]
    near = [
        measured(run, name, "confidence")
        for name, split in splits.items()
        if split["distance"] == "near"
    ]
    for share, values in (
        (taken, [one["nose"] for one in near]),
        (found, [one["r_u"] for one in near]),
        (missed, [1 - one["nose"] - one["r_u"] for one in near]),
    ):
        assert min(values) - 0.005 <= int(share) / 100 <= max(values) + 0.005


def test_the_tables_of_the_tutorial_are_the_metrics_in_git():
    blocks = render.blocks("tutorial.md")
    row = (
        re.search(r"^Confidence +(.*)$", blocks["summary"], flags=re.MULTILINE)[1]
        .replace("*", "")
        .split()
    )  # type: ignore[index]
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    of_boxes = [
        name for name, entry in params["detectors"].items() if entry["adapter"] != "classifier"
    ]
    for place, distance in enumerate(("near", "far", "farther")):
        means = [
            [np.mean([one[name] for one in of_run]) for name in ("auroc", "r_u")]
            for run in of_boxes
            if (
                of_run := [
                    measured(run, split, "confidence")
                    for split in at_distance(params, run, distance)
                ]
            )
        ]
        assert row[2 * place : 2 * place + 2] == [
            f"{100 * mean:.1f}" for mean in np.mean(means, axis=0)
        ]
    value = re.match(r"```text\nnose = ([\d.]+)", blocks["explained"])[1]  # type: ignore[index]
    assert float(value) == pytest.approx(measured(render.RUN, "coco_near", "knn")["nose"], abs=1e-5)


@pytest.mark.parametrize("split", render.SPLITS)
def test_what_reading_results_says_of_its_tables_holds(split):
    found = render.metrics(ROOT / "artifacts", split)
    assert np.ptp([one["missed"] for one in found.values()]) < 0.01, (
        "missed is the same for all methods"
    )
    assert max(one["r_u"] for one in found.values()) < 0.25, "fewer than one in four is found"
    assert list(found) != sorted(found, key=lambda name: found[name]["nose"]), (
        "AUROC and nOSE rank differently"
    )


def test_intervals_of_the_rule_of_thumb_are_those_of_a_binomial_share():
    text = (DOCS / "reading-results.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d,]+) \| (\d+) \|$", text, flags=re.MULTILINE)
    assert len(rows) == 5
    for objects, points in rows:
        assert int(points) == round(100 * 1.96 * 0.5 / int(objects.replace(",", "")) ** 0.5)


def test_pictures_are_used_and_small():
    files = [file for file in DOCS.iterdir() if file.suffix in PICTURES]
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert [file.name for file in files if f"({file.name})" not in text] == []
    assert sum(file.stat().st_size for file in files) < 600_000


def test_the_picture_of_the_architecture_is_drawn_from_the_stages_and_layers():
    """`tests/docs/render.py` writes it."""
    picture = (DOCS / "architecture.svg").read_text(encoding="utf-8")
    assert picture == architecture.drawing()
    words = set(re.findall(r"[a-z_]+", picture))
    assert set(yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]) <= words


def test_arrows_lead_to_the_stages_that_read_an_output_and_no_other_way_does():
    after = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": set()}
    assert set(architecture.direct(after)) == {("a", "b"), ("b", "c"), ("a", "d")}
    written = {stage.name: [] for stage in STAGES} | {"curate": ["artifacts/splits"]}
    read = {stage.name: [] for stage in STAGES} | {"infer": ["artifacts/splits/voc"]}
    assert architecture.followers(written, read)["curate"] == {"infer"}


def test_the_table_of_stages_has_each_stage_once():
    section = Page("design.md").text.partition("\n| stage |")[2].partition("\n\n")[0]
    in_table = []
    for names in re.findall(r"^\| ([a-z, ]+) \|", section, flags=re.MULTILINE):
        in_table += names.split(", ")
    in_recipe = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    assert sorted(in_table) == sorted(in_recipe)


def test_the_comparison_counts_methods_as_the_packages_do():
    (row,) = re.findall(
        r"^\| OOD scores \|.*$", (DOCS / "comparison.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    ours, theirs = (int(re.search(r"\d+", row.split("|")[column])[0]) for column in (2, 4))  # type: ignore[index]
    peers = [
        name
        for name in pytorch_ood.detector.__all__
        if inspect.isclass(getattr(pytorch_ood.detector, name))
    ]
    assert ours <= len(methods.names()) < ours + 10
    assert theirs == len(peers)
