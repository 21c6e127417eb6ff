"""Checks the names in training/params.yaml: `python training/stages/names.py`.

They become part of commands, so all other stages of this pipeline wait for it.
"""

from farther.params import section
from farther.stage import run_stage
from farther.tables.documents import write_json


def main() -> None:
    """Reads training/params.yaml.

    Writes artifacts/train/names.json, which is the same whatever the names are.
    """
    # Reading a section checks the names in all of them.
    section("train", file="training/params.yaml")
    section("train_clip", file="training/params.yaml")
    write_json("artifacts/train/names.json", {"checked": True})


if __name__ == "__main__":
    run_stage(main, "artifacts/train/names.json")
