"""The last line of each command: what to do next."""

import pytest
from tests.evaluation.deployable import lay

from farther.command import main, output
from farther.command.output import next_step, table
from farther.tables import Images

RUN = "voc-vos"

#: What is run on a finished project, and what follows it.
STEPS = {
    f"explain number {RUN} msp coco_far threshold": "farther open",
    f"explain uncertainty {RUN} --aggregate sum": f"farther choose {RUN}",
    "summary --short": f"farther open, or farther choose {RUN}, or farther explain",
    f"compare --methods msp knn --run {RUN} --split coco_far --metric auroc": (
        f"farther explain number {RUN} knn coco_far auroc"
    ),
    "list methods": "farther list methods NAME",
    "list methods knn": "write `knn: {}` under 'methods' in params.yaml, then farther repro",
    "list detectors yolo": "write `adapter: yolo` in an entry of 'detectors' in params.yaml",
    "list datasets coco": "write `format: coco` in an entry of 'datasets' in params.yaml",
    "list metrics": "farther list metrics NAME, or farther explain number RUN METHOD SPLIT NAME",
    "list params": "farther list params SECTION",
    "list params fit": "edit 'fit' in params.yaml, then farther repro",
    "list metrics nose": "farther explain number RUN METHOD SPLIT nose",
    "benchmark profile": "farther benchmark profile NAME --data DIR",
    "benchmark duplicates voc": "farther benchmark review voc",
}


def printed(capsys, words):
    """The result, and the last line beside it."""
    capsys.readouterr()
    assert main(words) in (0, 1)
    said = capsys.readouterr()
    return said.out, said.err.splitlines()[-1] if said.err else ""


@pytest.mark.parametrize("command", STEPS)
def test_a_command_ends_with_the_next_step_beside_its_result(
    command, finished, monkeypatch, capsys
):
    monkeypatch.chdir(finished)
    result, last = printed(capsys, command.split())
    assert last == f"Next: {STEPS[command]}"
    assert result and "Next:" not in result


def test_an_image_leads_to_the_review_of_its_benchmarks(finished, monkeypatch, capsys):
    monkeypatch.chdir(finished)
    image = Images.read("artifacts/splits/voc/coco_far/images.parquet").image_id[0]
    review = "Next: farther benchmark review voc, or farther benchmark review bdd"
    assert printed(capsys, ["explain", "image", image])[1].startswith(review)


@pytest.mark.parametrize(
    ("options", "bundle"),
    [
        ([], "farther bundle r deployed"),
        (["--max-false-alarms", "0.5"], "farther bundle r deployed --max-false-alarms=0.5"),
        # Without an option, `bundle` would take a named method's thresholds of `evaluate`.
        (["--method", "one"], "farther bundle r one deployed --guarantee=none"),
    ],
)
def test_a_choice_leads_to_its_bundle(options, bundle, tmp_path, monkeypatch, capsys):
    lay(tmp_path, test=("far", "near"))
    monkeypatch.chdir(tmp_path)
    assert printed(capsys, ["choose", "r", *options])[1] == f"Next: {bundle}"


@pytest.mark.parametrize(
    "command",
    [
        "list methods --json",
        f"explain number {RUN} msp coco_far auroc --json",
        "doctor --quick --json",
    ],
)
def test_json_is_alone(command, finished, monkeypatch, capsys):
    monkeypatch.chdir(finished)
    result, last = printed(capsys, command.split())
    assert result[0] in "[{" and last == ""


def test_summary_fits_a_screen(finished, monkeypatch, capsys):
    monkeypatch.chdir(finished)
    result, _ = printed(capsys, ["summary"])
    lines = [line for line in result.splitlines() if not line.startswith("Report: ")]
    assert max(map(len, lines)) <= 80 and len(lines) <= 40


def test_further_steps_are_named_as_far_as_the_line_reaches(capsys):
    next_step("a" * 40, "b" * 40, "c")
    next_step(
        " ".join(
            ["farther bundle run deployed", *(f"--option-{number}=0.01" for number in range(6))]
        )
    )
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == f"Next: {'a' * 40}, or c"
    assert len(lines) == 2 and lines[0].endswith(" \\") and max(map(len, lines)) <= 80


@pytest.fixture
def narrow(monkeypatch):
    """A terminal of 40 columns."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(output, "width", lambda: 40)
    monkeypatch.setattr(output, "has_colours", lambda: False)


def test_beside_numbers_text_wraps_and_no_digit_is_lost(narrow):
    rows = [("coco_near/confidence auroc", "0.7484", "-0.0059"), ("map", "0.6871", "-0.0015")]
    lines = table(("metric", "first run", "B − A"), rows, numbers=2).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[0].split() == ["metric", "first", "run", "B", "−", "A"]
    assert lines[1].split()[-2:] == ["0.7484", "-0.0059"]
    text = "".join(line[:20].strip() for line in lines[1:-1])
    assert text.replace(" ", "") == "coco_near/confidenceauroc"
    assert lines[-1].split() == ["map", "0.6871", "-0.0015"]


def test_numbers_that_are_wider_than_the_terminal_are_not_cut(narrow):
    rows = [("coco_near/confidence auroc", *["[-0.125, +0.008]"] * 2)]
    lines = table(("metric", "a", "b"), rows, numbers=2).splitlines()
    assert lines[1].split("  ") == [rows[0][0], *rows[0][1:]]


def test_without_a_terminal_each_row_is_one_line(narrow, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    assert len(table(("metric", "a"), [("word " * 50, "0.5")], numbers=1).splitlines()) == 2


def test_where_nothing_wraps_a_table_has_the_same_text_as_on_a_terminal(monkeypatch):
    heads = ("metric", "A", "B")
    rows = [("R_U ↑", "12.5", "-3"), ("日本", "", "0.25"), ("", "1,234", "")]
    monkeypatch.setenv("NO_COLOR", "1")
    plain = output.table(heads, rows, 2)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert output.table(heads, rows, 2) == plain
    assert plain.splitlines()[:2] == ["metric      A     B", "R_U ↑    12.5    -3"]
