"""Renders the demo's results in the docs: run `python tests/docs/render.py` after `make demo`.

It renders `docs/outcomes.png`, `docs/carrots.jpg`, and the marked blocks of pages:

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

import polars as pl
from PIL import Image, ImageDraw, ImageFont

from farther.command.output import as_json
from farther.methods.reference import table as table_of_methods
from farther.pipeline.params_schema import params_schema
from farther.report.results import title_of
from farther.tables import Images, Objects, Regions

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


def carrots(project: Path) -> None:
    """Three carrots of a near split: the most confident detections, and the widest one missed."""
    split, method = SPLITS[0], "knn"
    regions = Regions.read(project / f"artifacts/regions/{RUN}/{split}")
    images = Images.read(project / f"artifacts/splits/voc/{split}/images.parquet").frame
    boxes = Objects.read(project / f"artifacts/splits/voc/{split}/objects.parquet").frame.drop(
        "category"
    )
    said = regions.frame.select(
        "image_id",
        "region_id",
        "score",
        pl.col("label").map_elements(regions.classes.__getitem__, pl.String),
    )
    outcomes = pl.read_parquet(
        project / f"artifacts/outcomes/{RUN}/{method}/{split}.objects.parquet"
    )
    shown = (
        outcomes.filter(category="carrot")
        .join(boxes, on=["image_id", "object_id"])
        .join(images, on="image_id")
    )
    shown = shown.join(said, on=["image_id", "region_id"], how="left")
    shown = shown.with_columns(span=pl.col("box").arr.get(2) - pl.col("box").arr.get(0))
    words = {
        "found": ("found: flagged as unknown", "#0072b2"),
        "misclassified": ("misclassified: {label}, {score:.0%}", "#d55e00"),
        "missed": ("missed: no detection", "#6e6e6e"),
    }
    side, caption = 320, 48
    sheet = Image.new("RGB", (3 * side + 40, side + caption), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(26)
    for place, (outcome, (text, colour)) in enumerate(words.items()):
        row = (
            shown.filter(outcome=outcome).sort("score", "span", descending=True).row(0, named=True)
        )
        scene = Image.open(project / "artifacts/demo" / row["dataset"] / row["file"]).convert("RGB")
        cut = min(scene.size)
        left, top, right, bottom = row["box"]
        corner = [
            round(min(max((low + high - cut) / 2, 0), whole - cut))
            for low, high, whole in zip((left, top), (right, bottom), scene.size, strict=True)
        ]
        scale, x = side / cut, place * (side + 20)
        sheet.paste(
            scene.crop((*corner, corner[0] + cut, corner[1] + cut)).resize((side, side)), (x, 0)
        )
        edges = [
            scale * (edge - start) + add
            for edge, start, add in zip(row["box"], corner * 2, (x, 0, x, 0), strict=True)
        ]
        draw.rectangle(edges, outline=colour, width=4)
        draw.text((x, side + 8), text.format(**row), fill=colour, font=font)
    sheet.save(DOCS / "carrots.jpg", quality=76)


def main(project: str = ".") -> None:
    """Renders everything from the artifacts of a project that ran."""
    folder = Path(project).resolve()
    artifacts = folder / "artifacts"
    figure(artifacts / "report/figures/outcomes.png")
    carrots(folder)
    texts = {split: table(artifacts, split) for split in SPLITS}
    write_blocks("reading-results.md", {**texts, "sentences": sentences(folder)})
    write_blocks("tutorial.md", printed(folder))
    write_blocks("methods.md", {"methods": table_of_methods()})
    (ROOT / "params.schema.json").write_text(as_json(params_schema()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
