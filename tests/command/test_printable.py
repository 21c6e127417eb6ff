"""Escape codes in names of classes, files and runs are printed escaped by every command."""

import json
import subprocess
import sys
from io import StringIO

import pytest
import yaml
from PIL import Image

from farther.command import main
from farther.command.output import coloured, table
from farther.curation import Rules
from farther.pipeline import ingest
from farther.tables import Images, Objects
from farther.text.terminal import say

#: A colour, the terminal's title, another line, and letters from right to left.
HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\nNext:\N{RIGHT-TO-LEFT OVERRIDE}deb"
SHOWN = "\\x1b[31mred"

METHOD = '''
from farther import Method, register

@register("odd")
class Odd(Method):
    """\x1b[31mred score."""
'''

STAGE = (
    f"print({f'warning: {HOSTILE}'!r}); print('two'); "
    f"import sys; print({HOSTILE!r}, file=sys.stderr)"
)


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")


def coco(folder, category):
    """A COCO dataset of one image with a hostile file and class name; another image is absent."""
    (folder / "all").mkdir(parents=True)
    Image.new("RGB", (20, 10)).save(folder / f"all/{HOSTILE}.jpg")
    images = [{"id": n, "file_name": f"{HOSTILE}{'.jpg' if n else 'absent.jpg'}"} for n in (0, 1)]
    object_ = {"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 8, 6]}
    write(
        folder / "all.json",
        {"images": images, "annotations": [object_], "categories": [{"id": 3, "name": category}]},
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A project with such names wherever farther does not choose them."""
    monkeypatch.chdir(tmp_path)
    coco(tmp_path / "pets", HOSTILE)
    coco(tmp_path / "wild", f"{HOSTILE} zebra")
    write(
        tmp_path / "r.json", [{"image_id": 1, "category_id": 3, "bbox": [1, 2, 8, 6], "score": 0.3}]
    )
    entry = {
        "format": "coco",
        "root": "pets",
        "layout": {"all": ["all.json", "all"]},
        "missing_images": "drop",
        "max_warnings": 1.0,
    }
    write(
        tmp_path / "params.yaml",
        yaml.safe_dump({"datasets": {"pets": entry}, "benchmarks": {}, "detectors": {}}),
    )
    write(tmp_path / "extensions/odd.py", METHOD)
    tables = tmp_path / "artifacts/tables/pets/all"
    tables.mkdir(parents=True)
    image = {
        "dataset": ["pets"],
        "file": [f"all/{HOSTILE}.jpg"],
        "width": [20],
        "height": [10],
        "digest": ["0" * 32],
    }
    Images(image_id=[HOSTILE], **image).write(tables / "images.parquet")
    Objects(image_id=[HOSTILE], object_id=[0], box=[[1, 2, 8, 6]], category=[HOSTILE]).write(
        tables / "objects.parquet"
    )
    for side, value in (("before", 0.5), ("after", 0.6)):
        write(tmp_path / f"{side}/{HOSTILE}/detector.json", {"map": value})
        write(tmp_path / f"{side}/{HOSTILE}/far/msp.json", {"auroc": value, HOSTILE: value})
    return tmp_path


COMMANDS = {
    "init": ["init", "made", "--id", "pets", "--ood", "wild", "--detector", "r.json"],
    "init, nothing written": [
        "init",
        "made",
        "--dry-run",
        "--id",
        "pets",
        "--ood",
        "wild",
        "--detector",
        "r.json",
    ],
    "init, of what is not there": [
        "init",
        "made",
        "--id",
        HOSTILE,
        "--ood",
        "wild",
        "--detector",
        "r.json",
    ],
    "explain image": ["explain", "image", HOSTILE],
    "explain image as JSON": ["explain", "image", HOSTILE, "--json"],
    "an image with nearly that name": ["explain", "image", HOSTILE[:-1]],
    "list methods": ["list", "methods"],
    "list methods odd": ["list", "methods", "odd"],
    "compare": ["compare", "before", "after"],
    "compare as Markdown": ["compare", "before", "after", "--markdown"],
    "compare as JSON": ["compare", "before", "after", "--json"],
    "compare with an unknown name": ["compare", "before", "after", "--metric", HOSTILE],
    "a run that is not there": ["explain", "number", HOSTILE, "msp", "far", "auroc"],
    "open, without a report": ["open", HOSTILE],
    "leaderboard, of no folder": ["benchmark", "leaderboard", HOSTILE],
}


def unprintable(text):
    return {c for c in text if not c.isprintable()} - {"\n"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_escapes_as_text(name, here, capsys):
    assert main(COMMANDS[name]) in (0, 2)
    out, err = capsys.readouterr()
    printed = out + err
    assert unprintable(printed) == set()
    assert SHOWN in printed or "\\u001b[31mred" in printed
    assert not [line for line in out.splitlines() if line.startswith("Next:\\u202e")]


def test_init_writes_such_names_so_that_they_are_read_again(here):
    assert main(COMMANDS["init"]) == 0
    rules = Rules(here / "made/data/benchmarks/pets.yaml")
    assert rules.id_classes == (HOSTILE,)
    assert main(["init", "made", "--add", "--ood", "pets"]) == 0


def test_titles_are_printed_so_by_summary(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "artifacts").symlink_to(finished / "artifacts")
    params = yaml.safe_load((finished / "params.yaml").read_text())
    for entry in params["detectors"].values():
        entry["title"] = HOSTILE
    write(tmp_path / "params.yaml", yaml.safe_dump(params))
    assert main(["summary", "--all"]) == 0
    printed = "".join(capsys.readouterr())
    assert unprintable(printed) == set() and SHOWN in printed


def test_stages_and_repro_print_so(here, capsys, commands):
    ingest.main("pets")
    printed = capsys.readouterr().out
    assert unprintable(printed) == set()
    write(here / "dvc.yaml", yaml.safe_dump({"stages": {"odd": {"cmd": "python odd.py"}}}))
    write(here / "odd.py", STAGE)
    for command in (["git", "init", "-q"], [commands / "dvc", "init", "-q"]):
        subprocess.run(command, check=True)
    words = [commands / "farther", "repro"]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "red" in process.stdout and "red" in process.stderr
    assert unprintable(process.stdout + process.stderr) == set()


@pytest.mark.parametrize(
    "name",
    [
        "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}",
        "\N{HEAVY BLACK HEART}\N{VARIATION SELECTOR-16}\N{ZERO WIDTH JOINER}\N{FIRE}",
        "黒\N{IDEOGRAPHIC SPACE}猫",
        "chat\N{NO-BREAK SPACE}noir",
        "می\N{ZERO WIDTH NON-JOINER}شود",
        "क्\N{ZERO WIDTH JOINER}ष",
    ],
)
def test_names_are_printed_as_people_write_them(name, capsys):
    say(name)
    assert capsys.readouterr().out == f"{name}\n"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("c\N{ZERO WIDTH JOINER}at", "c\\u200dat"),
        ("猫\N{ZERO WIDTH JOINER}\N{ZERO WIDTH JOINER}猫", "猫\\u200d\\u200d猫"),
        ("猫\N{ZERO WIDTH NON-JOINER}", "猫\\u200c"),
        ("\N{IDEOGRAPHIC SPACE}猫", "\\u3000猫"),
        ("a \N{NO-BREAK SPACE}b", "a \\xa0b"),
        ("ca\N{ZERO WIDTH SPACE}t\N{LEFT-TO-RIGHT ISOLATE}", "ca\\u200bt\\u2066"),
        ("a\N{LINE SEPARATOR}b", "a\\u2028b"),
    ],
)
def test_what_would_hide_in_a_name_is_printed_escaped(name, shown, capsys):
    say(name)
    assert capsys.readouterr().out == f"{shown}\n"


def test_on_a_terminal_only_colours_of_farther_remain(monkeypatch):
    monkeypatch.setattr(sys, "stdout", StringIO())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    say(coloured(HOSTILE, "missing"))
    say(table(("name",), [(HOSTILE,)]))
    escaped = HOSTILE.encode("unicode_escape").decode()
    assert sys.stdout.getvalue().replace(" ", "").splitlines() == [
        f"\x1b[31m{escaped}\x1b[0m",
        "\x1b[1mname\x1b[0m",
        escaped,
    ]
