"""Digests of the code of each stage, and of each adapter, format and method: what a change of code reruns.

Usage: stages/code_digests.py

Reads params.yaml (methods), the scripts of the stages, lib/farther and data/methods. Writes artifacts/code.json.
"""

from pathlib import Path

from farther.code import digest_of, registered
from farther.params import CODE, section
from farther.scoring.entries import method_files
from farther.tables.files import write_json

STAGES = (Path(__file__).parent, Path(__file__).parents[1] / "training" / "stages")
#: Stages that run one registered name each: a change concerns those stages only whose name it is.
BY_NAME = {
    "derive": "farther.tools.derived",
    "ingest": "farther.datasets",
    "infer": "farther.detectors",
    "train": "farther.tools.training.trainers",
}


def main() -> None:
    """Writes {stage: digest}, or {stage: {name: digest}} where names are registered that a stage runs."""
    found: dict[str, str | dict[str, str]] = {}
    for script in sorted(file for folder in STAGES for file in folder.glob("*.py")):
        name = script.stem
        if name in BY_NAME:
            known = registered(BY_NAME[name]).items()
            found[name] = {kind: digest_of(script, module) for kind, module in known}
        elif name == "score":
            files = method_files(section("methods"))
            found[name] = {entry: digest_of(script, *places) for entry, places in files.items()}
        else:
            modules = registered("farther.metrics").values() if name == "evaluate" else ()  # user-defined metrics
            found[name] = digest_of(script, *modules)
    write_json(CODE, found)


if __name__ == "__main__":
    main()
