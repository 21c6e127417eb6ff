"""Time of commands, and size of files, in a project of many runs.

    python benchmarks/many.py PROJECT OUT
        measures, after 100 copies of the run voc-vos were added
    python benchmarks/many.py PROJECT OUT --runs 20 --of bdd-yolov8 --commands summary

PROJECT is a finished demo under git. OUT gets a copy, unless it has one of an earlier call: each
run that is added has the files of one run of the project, and values that differ from those by up
to five points. What was inferred is linked, so that 100 runs need 1 GB of disk.

Prints seconds, processor seconds and memory of commands that read what is finished.
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
from typing import Any

import numpy as np
import yaml

from farther.evaluation.files import RunFiles
from farther.evaluation.recovery import read_recovered
from farther.evaluation.results import Evaluation, read_evaluation
from farther.evaluation.write import write_values
from farther.tables.documents import parse_json, write_json

ROOT = Path(__file__).parents[1]
#: Files that have an entry per run.
LISTING = ("cost.json", "times.json")
#: Largest change of a share.
JITTER = 0.05
COMMANDS = {
    "summary": ("summary",),
    "summary --all": ("summary", "--all"),
    "compare": ("compare", "HEAD", "workspace", "--no-test"),
    "doctor --quick": ("doctor", "--quick"),
    "doctor": ("doctor",),
}


def add_runs(project: Path, source: str, count: int) -> list[str]:
    """Adds copies of a run to the parameters and to the artifacts; returns their names."""
    file = project / "params.yaml"
    params = yaml.safe_load(file.read_text())
    entry = params["detectors"][source]
    files = RunFiles(source, entry["benchmark"], project / "artifacts")
    evaluation = read_evaluation(files.evaluation)
    names = []
    for number in range(1, count + 1):
        name = f"{source}-{number:03d}"
        names.append(name)
        if name in params["detectors"]:
            continue
        params["detectors"][name] = {**entry, "title": f"{entry['title']} {number:03d}"}
        copy_files(project / "artifacts", source, name)
        files_of_copy = RunFiles(name, entry["benchmark"], project / "artifacts")
        of_copy = changed(evaluation, name, np.random.default_rng(number))
        write_values(files_of_copy, of_copy, read_recovered(files_of_copy))
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


def changed(evaluation: Evaluation, name: str, rng: np.random.Generator) -> Evaluation:
    """The evaluation of another run: all shares of a method in a split move by the same amount."""
    changed = evaluation.model_copy(deep=True, update={"run": name})
    for results in changed.methods.values():
        sections: list[Any] = [*results.means.values()]
        for split in results.splits.values():
            sections += split.groups.values()
        shift = rng.uniform(-JITTER, JITTER)
        for section in sections:
            for key, value in section.values.items():
                if isinstance(value, float) and 0 <= value <= 1:
                    section.values[key] = moved(value, shift)
                    if section.intervals.get(key) is not None:
                        low, high = section.intervals[key]
                        section.intervals[key] = (moved(low, shift), moved(high, shift))
    return changed


def moved(share: float, shift: float) -> float:
    """A share that moved, still between 0 and 1."""
    return min(1.0, max(0.0, share + shift))


def add_to_listing(file: Path, source: str, names: Sequence[str]) -> None:
    """Gives each run the entry of another."""
    content = parse_json(file.read_bytes(), file)
    for name in names:
        content["runs"][name] = content["runs"][source]
    write_json(file, content)


def measure(project: Path, command: Sequence[str]) -> tuple[float, float, float]:
    """Seconds, processor seconds, and MiB of the largest process so far, of a command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-m", "farther", *command],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    seconds = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode > 1:
        sys.exit(f"{' '.join(command)}:\n{process.stdout.decode()[-4000:]}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, processor, after.ru_maxrss / 1024


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

    print("| command | seconds | processor seconds | MiB |\n| --- | ---: | ---: | ---: |")
    for name in arguments.commands:
        seconds, processor, memory = measure(project, COMMANDS[name])
        print(f"| `{name}` | {seconds:.1f} | {processor:.1f} | {memory:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
