"""Digests of the code of each stage, and of each adapter, format and method: what a change of code reruns.

Usage: stages/code_digests.py

Reads the scripts of the stages, lib/farther and data/methods. Writes artifacts/code.json, which all other stages wait
for: the names in params.yaml, which become part of commands and paths, are checked here before any of them runs.
"""

from pathlib import Path

from farther.code import CODE, digest_of, modules_of, registered
from farther.params import read_params
from farther.stage import run_stage
from farther.tables.documents import write_json

STAGES = (Path(__file__).parent, Path(__file__).parents[1] / "training" / "stages")
#: User-defined methods, `<name>.py` each.
METHODS = Path("data/methods")
#: Stages that run one registered name each: a change concerns those stages only whose name it is.
BY_NAME = {
    "derive": "farther.tools.derived",
    "ingest": "farther.datasets",
    "infer": "farther.detectors",
    "train": "farther.tools.training.trainers",
}


def main() -> None:
    """Checks the names in params.yaml, then writes the digests."""
    read_params()
    write_digests()


def write_digests() -> None:
    """Writes {stage: digest}, or {stage: {name: digest}} where names are registered that a stage runs.

    The stage `evaluate` redoes only what changed, so `kept` has a digest for each method, one for the metrics and
    one for the choice of what to deploy; the digest of the stage itself is of all of these.
    """
    methods = registered("farther.methods") | {file.stem: file for file in sorted(METHODS.glob("*.py"))}
    metrics = registered("farther.metrics").values()  # user-defined metrics
    found: dict[str, object] = {
        "kept": {
            "metrics": digest_of("farther.evaluation.evaluate", *metrics),
            "choice": digest_of("farther.evaluation.choosing"),
            "methods": {name: digest_of("farther.scoring.score", place) for name, place in methods.items()},
        }
    }
    for script in sorted(file for folder in STAGES for file in folder.glob("*.py")):
        name = script.stem
        if name in BY_NAME:
            known = registered(BY_NAME[name]).items()
            also = modules_of("farther.detectors.passes") if name == "infer" else ()
            found[name] = {kind: digest_of(script, module, *also) for kind, module in known}
        else:
            found[name] = digest_of(script, *((*metrics, *methods.values()) if name == "evaluate" else ()))
    write_json(CODE, found)


if __name__ == "__main__":
    run_stage(main, "artifacts/code.json")
