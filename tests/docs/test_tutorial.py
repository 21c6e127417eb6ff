"""The steps of docs/tutorial.md, in their order, on a demo of a few scenes.

The notebook that continues the tutorial runs from its first cell to its last, on the same project.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import numpy as np
import pytest
from tests.docs.pages import EXAMPLES, Page
from tests.support import dvc_commands

from farther.command import main
from farther.evaluation.paired import StoredEvaluation
from farther.methods.base import METHODS
from farther.params import parse

pytestmark = pytest.mark.slow  # a reader's way to the end of a page; others show each step

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs/notebook.ipynb"
PAGE = Page("tutorial.md")


def commands(program: str) -> list[str]:
    """The command lines of a program, without the comments behind them."""
    lines = [
        line.split("  #")[0].strip() for text in PAGE.blocks("bash") for line in text.splitlines()
    ]
    return [line for line in lines if line.startswith(f"{program} ")]


def without_numbers(line: str) -> str:
    """The line with every figure as `#`: the tiny world has others than the demo."""
    return re.sub(r"\s+", " ", re.sub(r"[+-]?\d+(\.\d+)?\*?", "#", line)).strip()


def holds(output: str, shown: str) -> None:
    """Every line that the page shows was printed."""
    printed = {without_numbers(line) for line in output.splitlines()}
    wanted = {without_numbers(line) for line in shown.splitlines() if line != "…"}
    assert wanted <= printed, f"not printed: {wanted - printed}"


def example(name: str) -> Path:
    """A script that the page links."""
    assert f"](examples/{name})" in PAGE.text
    return EXAMPLES / name


@pytest.fixture(scope="module")
def finished(evaluated, commands):
    """The project at the end of section 4."""
    project = evaluated
    Path("extensions").mkdir()
    method = Page("methods.md").block("python", "@register(")
    Path("extensions/margin.py").write_text(method, encoding="utf-8")
    subprocess.run([commands / "python", example("draw.py")], check=True)
    first, second, third = (parse(text) for text in PAGE.blocks("yaml"))
    project.change(first)
    project.stage("ingest", "mine")
    project.change(second)
    project.evaluate("voc-faster_rcnn")
    subprocess.run([commands / "python", example("export.py")], check=True)
    project.change(third)
    project.evaluate("voc-mine")
    yield project
    METHODS._classes.pop("margin", None)


def figures(run: str, split: str, method: str) -> dict[str, Any]:
    return json.loads(Path(f"artifacts/metrics/{run}/{split}/{method}.json").read_text())


def test_images_drawn_by_the_page_become_a_split(finished):
    holds(printed("farther explain image mine/images/007.jpg"), PAGE.block("text", "mine/images"))


def test_a_method_of_ones_own_is_fitted_scored_and_compared(finished):
    assert 0 <= figures("voc-faster_rcnn", "mine_far", "margin")["auroc"] <= 1
    line = next(line for line in commands("farther") if "compare" in line)
    _, _, subject, heads, auroc, _, _ = PAGE.block("text", "is worse than msp").splitlines()
    output = printed(line)
    holds(output, f"{subject}\n{heads}")
    title, *_ = auroc.split()
    assert re.search(rf"^{title} +\d", output, flags=re.MULTILINE)


def test_detections_from_a_file_give_the_figures_of_the_detector_that_made_them(finished):
    for split in ("coco_near", "mine_far"):
        for method in ("msp", "margin"):
            assert figures("voc-mine", split, method) == figures("voc-faster_rcnn", split, method)
    reason = "knn needs features, which these regions do not have"
    fitted = json.loads(Path("artifacts/fitted/voc-mine/knn/method.json").read_text())
    assert fitted["not_applicable"] == reason
    assert f'the report says why: "{reason}"' in " ".join(PAGE.text.split())


def test_the_explanation_of_a_figure_reads_as_shown(finished):
    line = next(line for line in commands("farther") if "explain number" in line)
    holds(printed(line), PAGE.block("text", "meaning   Share"))


@pytest.mark.parametrize("line", commands("dvc"))
def test_every_dvc_command_of_the_page_is_one(line):
    dvc_commands.check(shlex.split(line)[1:])


@pytest.mark.parametrize("line", commands("farther"))
def test_every_farther_command_of_the_page_runs(finished, line):
    assert printed(line)


def printed(line: str) -> str:
    """What a line that starts with `farther` prints; it must end well."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = main(shlex.split(line)[1:])
    assert code == 0, output.getvalue()
    return output.getvalue()


def test_the_examples_of_the_readme_run():
    readme = Page("../README.md")
    (code,) = readme.blocks("python")
    assert len(code.strip().splitlines()) <= 10
    arrays = next(text for text in Page("python.md").blocks("python") if "rng" in text)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(arrays + code, {})
    found = {line.split()[0]: float(line.split()[2]) for line in output.getvalue().splitlines()}
    assert list(found) == ["msp", "energy", "knn", "mahalanobis", "vim"]
    assert found["knn"] == pytest.approx(0.969, abs=0.002)  # as the page says
    (entries,) = [parse(text)["methods"] for text in readme.blocks("yaml")]
    for name, params in entries.items():
        METHODS.create(name, **params)


def test_a_loop_of_your_own_gets_the_scores_of_a_table():
    blocks = Page("python.md").blocks("python")
    arrays, code = (next(text for text in blocks if word in text) for word in ("rng", "vim"))
    assert len(code.strip().splitlines()) <= 8
    names: dict[str, Any] = {}
    exec(arrays + code, names)
    last_layer = names["weight"], names["bias"]
    table = names["Regions"].from_arrays(
        names["logits"]["id"], names["features"]["id"], last_layer=last_layer
    )
    expected = names["method"].score(table)
    np.testing.assert_allclose(names["scores"].cpu(), expected, rtol=0, atol=1e-10 * expected.std())


def test_the_notebook_is_kept_without_outputs():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)


@pytest.fixture(scope="module")
def executed(evaluated):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(evaluated.folder)}}
    )
    return client.execute()


def shown(notebook, word: str) -> Any:
    """What the one cell that has this word printed."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and word in cell.source]
    return ast.literal_eval(cell.outputs[-1]["data"]["text/plain"])


def test_the_charts_are_drawn_without_a_network(executed):
    (cell,) = [cell for cell in executed.cells if "histogram | roc" in cell.source]
    drawn = cell.outputs[-1]["data"]["image/svg+xml"]
    assert drawn.startswith("<svg")
    assert all(f">{title}<" in drawn for title in ("Scores", "ROC", "TPR"))


def test_its_metrics_are_those_of_the_pipeline(executed, evaluated):
    table = StoredEvaluation(evaluated.folder / "artifacts", "voc-faster_rcnn").results.table
    separation = table.values("ood", split="coco_near", method="knn")
    measured = shown(executed, "ood.evaluate")
    assert measured == pytest.approx({name: separation[name].value for name in measured})
    outcomes = table.values("open_set", split="coco_near", method="knn")
    counts = shown(executed, "counts = ")
    names = {"found": "tp_u", "misclassified": "fn_misclassified", "missed": "fn_missed"}
    assert counts == {word: outcomes[name].value for word, name in names.items()}


def test_intervals_contain_their_metrics(executed):
    for value, interval in shown(executed, "ImageDraws").values():
        assert value is None or interval is None or interval[0] <= value <= interval[1]
