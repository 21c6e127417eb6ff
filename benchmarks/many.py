"""Time of commands, and size of files, in a project of many runs.

    python benchmarks/many.py PROJECT OUT
        measures, after 100 copies of the run voc-vos were added
    python benchmarks/many.py PROJECT OUT --runs 20 --of bdd-yolov8 --commands summary

PROJECT is a finished demo under git. OUT gets a copy, unless it has one of an earlier call: each
run that is added has the files of one run of the project, and values that differ from those by up
to five points. What was inferred is linked, and DVC's cache has equal files once, so that 100 runs
need 2 GB of disk.

Prints seconds, processor seconds and memory of commands that read what is finished, and the sizes
of the report and of dvc.lock. Before `dvc repro`, `dvc commit --force` records all files as outputs
of their stages, which is what a run of all stages would have recorded: so nothing has changed.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import yaml

from farther.evaluation.files import RunFiles
from farther.evaluation.long_table import read_long_table
from farther.evaluation.results import read_description
from farther.evaluation.write import write_table
from farther.tables.documents import parse_json, write_json

ROOT = Path(__file__).parents[1]
#: Files that have an entry per run.
LISTING = ("cost.json", "times.json")
#: Largest change of a share.
JITTER = 0.05
#: Arguments of Python, in the order of the measurements: those after the report need its pages.
COMMANDS = {
    "report": ("stages/report.py",),
    "report, again": ("stages/report.py",),
    "summary": ("-m", "farther", "summary"),
    "summary --all": ("-m", "farther", "summary", "--all"),
    "compare": ("-m", "farther", "compare", "HEAD", "workspace"),
    "compare --runs": ("-m", "farther", "compare", "--runs", "voc-faster_rcnn", "voc-vos"),
    "doctor --quick": ("-m", "farther", "doctor", "--quick"),
    "doctor": ("-m", "farther", "doctor"),
    "dvc repro": ("-m", "dvc", "repro"),
}
#: Number of the largest pages whose sizes are printed.
LARGEST = 6


def add_runs(project: Path, source: str, count: int) -> list[str]:
    """Adds copies of a run to the parameters and to the artifacts; returns their names."""
    file = project / "params.yaml"
    params = yaml.safe_load(file.read_text())
    entry = params["detectors"][source]
    files = RunFiles(source, entry["benchmark"], project / "artifacts")
    table = read_long_table(files.long_table)
    id_split = read_description(files.description).settings.id_split
    names = []
    for number in range(1, count + 1):
        name = f"{source}-{number:03d}"
        names.append(name)
        if name in params["detectors"]:
            continue
        params["detectors"][name] = {**entry, "title": f"{entry['title']} {number:03d}"}
        copy_files(project / "artifacts", source, name)
        files_of_copy = RunFiles(name, entry["benchmark"], project / "artifacts")
        write_table(files_of_copy, changed(table, name, np.random.default_rng(number)), id_split)
    file.write_text(yaml.safe_dump(params, sort_keys=False))
    for listing in LISTING:
        add_to_listing(project / "artifacts" / listing, source, names)
    return names


def copy_files(artifacts: Path, source: str, name: str) -> None:
    """Links or copies the files and folders that a run has in each folder of the artifacts."""
    for path in list(artifacts.glob("*/*")) + list(artifacts.glob("*/*/*")):
        folder = path.relative_to(artifacts).parts[0]
        stem = path.name.removesuffix(path.suffix) if path.is_file() else path.name
        if stem != source or folder in ("report", ".work", "demo", "derived"):
            continue
        copy = path.with_name(path.name.replace(source, name))
        if path.is_dir():
            shutil.copytree(path, copy, copy_function=os.link)
        elif path.suffix == ".json":
            copy.write_text(path.read_text().replace(f'"{source}"', f'"{name}"'))
        else:
            shutil.copy(path, copy)


def changed(table: pl.DataFrame, name: str, rng: np.random.Generator) -> pl.DataFrame:
    """The long table of another run: all shares of a method move by the same amount."""
    shift_by_method = {}
    for method in table["method"].unique(maintain_order=True):
        shift_by_method[method] = rng.uniform(-JITTER, JITTER) if method else 0.0
    shift = pl.col("method").replace_strict(shift_by_method, return_dtype=pl.Float64)

    is_of_methods = pl.col("part").eq("") | pl.col("part").str.starts_with("distance=")
    is_share = is_of_methods & pl.col("value").is_between(0, 1) & pl.col("unit").eq("fraction")
    columns = [pl.lit(name).alias("run")]
    for column in ("value", "low", "high"):
        moved = (pl.col(column) + shift).clip(0, 1)
        columns.append(pl.when(is_share).then(moved).otherwise(column).alias(column))
    return table.with_columns(columns)


def add_to_listing(file: Path, source: str, names: Sequence[str]) -> None:
    """Gives each run the entry of another."""
    content = parse_json(file.read_bytes(), file)
    for name in names:
        content["runs"][name] = content["runs"][source]
    write_json(file, content)


def run(project: Path, arguments: Sequence[str]) -> None:
    """Runs Python in the project with this checkout's library; ends the program if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib")}
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    is_doctor = "doctor" in arguments  # exits with 1 where it finds a problem
    if process.returncode > is_doctor:
        sys.exit(f"{' '.join(arguments)}:\n{process.stdout.decode()[-4000:]}")


def measure(project: Path, arguments: Sequence[str]) -> tuple[float, float, float]:
    """Seconds, processor seconds, and MiB of the largest process so far, of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    run(project, arguments)
    seconds = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, processor, after.ru_maxrss / 1024


def record(project: Path) -> None:
    """Records all files as outputs of their stages, in DVC's cache and in dvc.lock."""
    if not (project / "artifacts/report").exists():
        run(project, COMMANDS["report"])
    run(project, ("-m", "dvc", "commit", "--force"))


def print_sizes(project: Path) -> None:
    """Prints the sizes of the report, its largest pages and dvc.lock, as a table in Markdown."""
    report = project / "artifacts/report"
    size_by_file = {}
    for file in report.rglob("*"):
        if file.is_file():
            size_by_file[file] = file.stat().st_size
    pages = [file for file in size_by_file if file.suffix == ".html"]
    print("\n| file | kB |\n| --- | ---: |")
    print(f"| report, {len(size_by_file):,} files | {sum(size_by_file.values()) / 1000:,.0f} |")
    for file in sorted(pages, key=size_by_file.__getitem__, reverse=True)[:LARGEST]:
        print(f"| {file.relative_to(report)} | {size_by_file[file] / 1000:,.0f} |")
    lock = project / "dvc.lock"
    if lock.exists():  # without the command `dvc repro`, the project may have none
        print(f"| dvc.lock | {lock.stat().st_size / 1000:,.0f} |")


def main() -> None:
    """Adds the runs where they are absent, and prints a table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("project", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--of", default="voc-vos", help="the run that is copied")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    arguments = parser.parse_args()
    project = arguments.out.resolve()
    if not (project / "params.yaml").exists():
        ignored = shutil.ignore_patterns(".venv", "cache", ".work", "report")
        shutil.copytree(
            arguments.project, project, ignore=ignored, symlinks=True, dirs_exist_ok=True
        )
    add_runs(project, arguments.of, arguments.runs)
    run(project, ("stages/code_digests.py",))

    print("| command | seconds | processor seconds | MiB |\n| --- | ---: | ---: | ---: |")
    for name in arguments.commands:
        if name == "dvc repro":
            record(project)
        seconds, processor, memory = measure(project, COMMANDS[name])
        print(f"| `{name}` | {seconds:.1f} | {processor:.1f} | {memory:,.0f} |", flush=True)
    print_sizes(project)


if __name__ == "__main__":
    main()
