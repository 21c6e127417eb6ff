"""`farther table` and `farther figure`: one table or one figure, in one file."""

import csv
import json
import struct

import pytest

from farther.command import program


@pytest.fixture
def here(evaluated, params, tmp_path, monkeypatch):
    """A project's folder, in which the commands run; artifacts are to be read only."""
    (tmp_path / "artifacts").symlink_to(evaluated / "artifacts")
    (tmp_path / "params.yaml").write_text(json.dumps(params))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said(here, capsys):
    """Runs a command; returns its status, and what it printed and complained of."""

    def run(*words):
        status = program.main(list(words))
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_a_table_has_the_named_split_metrics_and_methods(said):
    status, printed, _ = said(
        *("table", "--run", "pets-net", "--split", "photos_near"),
        *("--metric", "AUROC", "--method", "msp"),
    )
    assert status == 0
    lines = printed.splitlines()
    assert lines[0].startswith("pets: AUROC of net (%).")
    assert lines[2].split() == ["Method", "photos", "near", "AUROC"]
    assert lines[3].split() == ["MSP", "50.0"]  # half of the near detections are below all ID ones


def test_intervals_follow_the_values(said):
    _, printed, _ = said(
        "table", "--run", "pets-net", "--metric", "r_u", "--intervals", "--markdown"
    )
    assert "[" in printed
    assert printed.count("|") > 10


def test_latex_goes_into_a_file(said, here):
    status, printed, _ = said("table", "--run", "pets-net", "--latex", "--out", "t.tex")
    assert (status, printed) == (0, "t.tex\n")
    text = (here / "t.tex").read_text()
    assert text.startswith(r"% \usepackage{booktabs,adjustbox,xcolor}")
    assert r"\label{tab:pets-nose-ap-u-p-u-r-u}" in text


def test_a_figure_has_the_width_that_is_asked_for(said, here):
    status, _, _ = said(
        *("figure", "roc", "--run", "pets-net", "--split", "photos_near"),
        *("--width", "2.5", "--out", "roc.png"),
    )
    assert status == 0
    width = struct.unpack(">I", (here / "roc.png").read_bytes()[16:20])[0]
    assert width == pytest.approx(2.5 * 300, abs=3)


@pytest.mark.parametrize("kind", ["outcomes", "pr", "tau", "confidence", "wilderness"])
def test_the_numbers_of_a_figure_are_csv(said, here, kind):
    words = ["figure", kind, "--run", "pets-net", "--out", "f.csv"]
    if kind in ("pr", "tau", "confidence"):
        words += ["--split", "photos_near"]
    status, _, _ = said(*words)
    assert status == 0
    with (here / "f.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) > 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("table", "--run", "pets-nte"), "pets-net"),
        (("table", "--run", "pets-net", "--split", "photos_ner"), "photos_near"),
        (("table", "--run", "pets-net", "--method", "mps"), "msp"),
        (("table", "--run", "pets-net", "--metric", "map"), "farther list metrics"),
        (("table", "--run", "pets-net", "--latex", "--markdown"), "one of them"),
        (("table", "--run", "pets-later"), "farther repro"),
        (("figure", "rock", "--run", "pets-net", "--out", "f.pdf"), "roc"),
        (("figure", "roc", "--run", "pets-net", "--out", "f.pdf"), "photos_near, photos_far"),
        (("figure", "roc", "--run", "pets-net", "--out", "f.jpg"), "pdf"),
        (("figure", "tau", "--run", "pets-net", "--out", "f", "--width", "3"), "pdf"),
        (("figure", "outcomes", "--run", "pets-net", "--out", "f.pdf", "--width", "99"), "inches"),
    ],
)
def test_what_cannot_be_shown_is_named_with_what_to_write(said, words, named):
    status, _, complaint = said(*words)
    assert status == 2
    assert named in complaint
    assert "Traceback" not in complaint
