"""Renders what the docs take from the code, and after `make demo` from its results.

`python -m tests.docs.render` writes `params.schema.json`, `docs/architecture.svg`, the table of
methods, and, where the demo ran, `docs/outcomes.png` and the marked blocks of pages:

    <!-- rendered: NAME -->
    …
    <!-- end -->
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from PIL import Image
from tests.docs.architecture import drawing

from farther.command.output import as_json
from farther.methods.reference import table as table_of_methods
from farther.pipeline.params_schema import params_schema
from farther.report.results import title_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUN = "voc-faster_rcnn"
SPLITS = ("coco_near", "coco_far")
COLUMNS = {
    "auroc": "AUROC ↑",
    "nose": "misclassified ↓",
    "r_u": "found ↑",
    "missed": "missed",
    "ap_u": "AP_U ↑",
}
MARKED = re.compile(r"^(<!-- rendered: (\S+) -->\n).*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL)


def metrics(artifacts: Path, split: str) -> dict[str, dict[str, float]]:
    """Method → its metrics on a split, with the share of missed objects; in the order of AUROC."""
    files = (artifacts / "metrics" / RUN / split).glob("*.json")
    found = {file.stem: json.loads(file.read_text()) for file in files if file.stem != "detector"}
    for values in found.values():
        values["missed"] = 1 - values["nose"] - values["r_u"]
    return dict(sorted(found.items(), key=lambda entry: -entry[1]["auroc"]))


def table(artifacts: Path, split: str) -> str:
    """A split's metrics of one detector as a Markdown table, in per cent."""
    lines = [["method", *COLUMNS.values()], ["---"] + ["---:"] * len(COLUMNS)]
    for method, values in metrics(artifacts, split).items():
        lines.append([title_of(method), *(f"{100 * values[name]:.1f}" for name in COLUMNS)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def sentences(project: Path) -> str:
    """What the first figure of the report shows, as a quotation."""
    from farther.params import parse
    from farther.report import headline

    return "".join(
        f"> - {line}\n" for line in headline(parse((project / "params.yaml").read_text()), project)
    )


def printed(project: Path) -> dict[str, str]:
    """What commands of farther print in a project: the beginning of each."""
    said = output(project, "summary")
    first = said.index("") + 1  # below the sentences
    lines = {
        "summary": said[first : first + 8],
        "explained": output(project, "explain", "number", RUN, "knn", SPLITS[0], "nose")[:5],
    }
    return {name: "\n".join(["```text", *found, "…", "```\n"]) for name, found in lines.items()}


def output(project: Path, *arguments: str) -> list[str]:
    """The lines that a command prints, in a terminal of 110 columns."""
    environment = {**os.environ, "COLUMNS": "110", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "farther", *arguments]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def blocks(page: str) -> dict[str, str]:
    """The rendered blocks of a page, by their names."""
    return {
        name: text[len(opening) : -len("<!-- end -->")] for opening, name, text in _marked(page)
    }


def _marked(page: str) -> list[tuple[str, str, str]]:
    return [
        (found[1], found[2], found[0])
        for found in MARKED.finditer((DOCS / page).read_text(encoding="utf-8"))
    ]


def write_blocks(page: str, texts: dict[str, str]) -> None:
    """Replaces the marked blocks of a page."""
    file = DOCS / page
    text = MARKED.sub(
        lambda found: f"{found[1]}{texts[found[2]]}{found[3]}", file.read_text(encoding="utf-8")
    )
    file.write_text(text, encoding="utf-8")


def figure(file: Path) -> None:
    """The first figure of the report, in 64 colours: a tenth of its size."""
    picture = Image.open(file).convert("RGB")
    small = picture.resize(
        (1400, round(picture.height * 1400 / picture.width)), Image.Resampling.LANCZOS
    )
    small.quantize(64, dither=Image.Dither.NONE).save(DOCS / "outcomes.png", optimize=True)


def main(project: str = ".") -> None:
    """Renders everything; results only where the project has a report."""
    write_blocks("methods.md", {"methods": table_of_methods()})
    (DOCS / "architecture.svg").write_text(drawing(), encoding="utf-8")
    (ROOT / "params.schema.json").write_text(as_json(params_schema()) + "\n", encoding="utf-8")

    folder = Path(project).resolve()
    artifacts = folder / "artifacts"
    picture = artifacts / "report/figures/outcomes.png"
    if not picture.exists():
        print(f"{picture} is absent: results in the docs stay as they are")
        return
    figure(picture)
    texts = {split: table(artifacts, split) for split in SPLITS}
    write_blocks("reading-results.md", {**texts, "sentences": sentences(folder)})
    write_blocks("tutorial.md", printed(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
