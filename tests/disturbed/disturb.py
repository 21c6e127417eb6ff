"""Damages the files of targets (`damages.py`), and interrupts targets at moments (`moments.py`).

    python tests/disturbed/disturb.py --cases 20000 --seed 5        damaged files of every kind
    python tests/disturbed/disturb.py --cases 0 --pairs 300         interrupted targets
    python tests/disturbed/disturb.py --only voc:17 --seed 5        one case of damage again
    python tests/disturbed/disturb.py --targets voc predict_video   some targets

Prints the cases of damage that nothing explains, and a table of all; one line of JSON per
interrupted target. Where `unshare --map-root-user --mount` starts it, it mounts file systems.
Packages are imported once: what is disturbed runs in processes that are forked.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

#: Set before packages are imported.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TQDM_DISABLE": "1",
}
os.environ.update(ENVIRONMENT)
sys.path.insert(1, str(Path(__file__).parents[2]))

from tests.disturbed import damaged, moments, processes  # noqa: E402
from tests.disturbed.moments import MOMENTS, Outcome, Trial  # noqa: E402
from tests.disturbed.targets import TARGETS, Target  # noqa: E402
from tests.disturbed.valid import pipeline  # noqa: E402
from tests.stages import in_process  # noqa: E402

#: Imported before a fork; PyTorch and Polars must not start threads before.
PACKAGES = (
    "dvc.cli", "dvc.commands.repro", "dvc.repo", "farther.command", "farther.command.repro",
    "farther.derived", "farther.detectors.faster_rcnn", "farther.evaluation.cost",
    "farther.evaluation.detector", "farther.monitor.onnx.export", "farther.monitor.predict",
    "farther.publication", "farther.report", "farther.similarity", "farther_demo.world", "h5py",
    "jinja2", "open_clip", "scipy.io", "scipy.stats", "sklearn.covariance", "supervision",
    "tests.monitor.conftest", "torch.onnx", "tqdm", "transformers",
)  # fmt: skip


def load() -> None:
    """Imports packages, with PyTorch on one thread."""
    for package in PACKAGES:
        importlib.import_module(package)
    import torch

    torch.set_num_threads(1)


# --------------------------------------------------------------------------------------------------
# interruptions


class Folders:
    """Folders that targets start from, and those in which they ran undisturbed.

    Args:
        root: Where they are made.
    """

    def __init__(self, root: Path):
        self._root = root
        self._start_by_maker: dict[object, Path] = {}
        self._calm_by_target: dict[str, Path] = {}

    def trial(self, name: str) -> Trial:
        """Runs a target undisturbed, in a copy of the folder that it starts from."""
        start = self._start(name)
        calm = self._root / f"{name.replace(' ', '-')}/calm"
        shutil.copytree(start, calm, symlinks=True)
        trial = Trial(name, start, calm, changes=0)
        status, changes = trial.run(calm)
        assert status == 0, f"{name}: {moments.message_of(calm)}"
        self._calm_by_target[name] = calm
        return replace(trial, changes=changes)

    def _start(self, name: str) -> Path:
        target = TARGETS[name]
        if target.after and target.make is pipeline.nothing:
            return self._calm_by_target[target.after]
        if target.make in self._start_by_maker:
            return self._start_by_maker[target.make]
        start = self._root / f"start {len(self._start_by_maker)}"
        if target.after:
            shutil.copytree(self._calm_by_target[target.after], start, symlinks=True)
        else:
            start.mkdir(parents=True)
        assert processes.forked(partial(_make, target, start)) == 0, name
        self._start_by_maker[target.make] = start
        return start


def _make(target: Target, folder: Path) -> None:
    os.chdir(folder)
    with contextlib.redirect_stdout(sys.stderr):
        target.make()


def interrupt(
    pairs: Sequence[tuple[str, str]], rng: random.Random, root: Path
) -> Iterator[Outcome]:
    """Yields the outcome of each pair of a target and a moment."""
    moments_by_target: dict[str, list[str]] = {}
    for name, moment in pairs:
        moments_by_target.setdefault(name, []).append(moment)
    # Digests of code are computed in this process, which then knows the code.
    in_process.run(pipeline.small_demo(root / "code"), "code_digests")
    folders = Folders(root)
    for name in _with_those_before(list(moments_by_target)):
        trial = folders.trial(name)
        for moment in moments_by_target.get(name, ()):
            yield MOMENTS[moment](trial, rng)


def _with_those_before(names: Sequence[str]) -> list[str]:
    """Targets and those that they come after, in the order of the table."""
    needed = set()
    for name in names:
        while name and name not in needed:
            needed.add(name)
            name = TARGETS[name].after
    return [name for name in TARGETS if name in needed]


def all_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Each target with each moment at which it is interrupted."""
    pairs = []
    for name in names:
        for moment in moments.moments_of(TARGETS[name]):
            pairs.append((name, moment))
    return pairs


# --------------------------------------------------------------------------------------------------
# the program


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    parser.add_argument("--cases", type=int, default=1200, help="number of cases of damage")
    parser.add_argument("--pairs", type=int, default=0, help="number of targets and moments")
    parser.add_argument("--only", default="", help="a case of damage: voc:17, or meaning/voc:17")
    parser.add_argument("--seed", default="1", help="draws the damage")
    parser.add_argument("--drawn-by", default="1", help="draws pairs, and places of kills")
    given = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="farther-disturbed-") as name:
        folder = Path(name).resolve()
        load()
        wrong = damage(given, folder / "damaged")
        rng = random.Random(given.drawn_by)
        pairs = all_pairs(given.targets)
        if given.pairs and not moments.may_mount(folder / "mounted"):
            pairs = [(name, moment) for name, moment in pairs if moment != "full"]
        chosen = sorted(rng.sample(range(len(pairs)), min(given.pairs, len(pairs))))
        for outcome in interrupt([pairs[place] for place in chosen], rng, folder / "interrupted"):
            print(json.dumps(asdict(outcome)), flush=True)
    sys.stdout.flush()
    # Libraries that PyTorch loads would print hundreds of lines at the end.
    os._exit(wrong)


def damage(given: argparse.Namespace, folder: Path) -> bool:
    """Runs the cases of damage and prints their table; returns whether one is unexplained."""
    names = [name for name in given.targets if TARGETS[name].damaged]
    cases = damaged.planned(given.cases, names) if given.cases else []
    if given.only:
        case, _, number = given.only.partition(":")
        cases = [(case, int(number))]
    results = []
    for result in damaged.run_cases(cases, given.seed, folder):
        results.append(result)
        if result.kind == "unexplained" or given.only:
            place = f"{result.target}:{result.case}"
            print(f"{place} {result.kind} [{result.how}] {result.text}", flush=True)
    if results:
        print(damaged.table(results))
        print(f"seed {given.seed}")
    return any(result.kind == "unexplained" for result in results)


if __name__ == "__main__":
    main()
