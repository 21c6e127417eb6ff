"""Digests of the code of each stage, and of each registered name: what a change of code reruns.

Reads the installed farther, the project's extensions, and the files that params.yaml names. Writes
artifacts/code.json (`farther.incremental.stage_digests`), which all other stages wait for: the
names in params.yaml, which become part of commands and paths, and the sections that only late
stages read are checked here before any of them runs.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from farther.errors import FartherError
from farther.incremental.code import CODE
from farther.incremental.stage_digests import StageDigests
from farther.params import read_params
from farther.pipeline.later_sections import check_later_sections
from farther.stage import run_stage
from farther.tables.documents import read_json, write_json

OUTPUT = "artifacts/code.json"
#: Folders that stages depend on, and that no stage makes in a project without datasets or runs.
FOLDERS = (
    "artifacts/counts",
    "artifacts/passes",
    "artifacts/proposals",
    "artifacts/regions",
    "artifacts/tables",
)


def main(scripts: Sequence[Path] = ()) -> None:
    """Checks the names in params.yaml, then writes the digests.

    Args:
        scripts: Scripts of the stages, which a repository has beside the modules of the package.
    """
    params = read_params()
    relative_scripts = [Path(os.path.relpath(script)) for script in scripts]
    digests = StageDigests(params, relative_scripts)
    # The report imports all that checks a section.
    checked = check_later_sections(params, _checked_before(), digests.at("report"))
    for folder in FOLDERS:
        Path(folder).mkdir(parents=True, exist_ok=True)
    write_json(CODE, {**digests.all(), "checked": checked})


def _checked_before() -> dict[str, Any]:
    """What the last run of this stage checked; see `check_later_sections`."""
    with suppress(FartherError, AttributeError):
        return dict(read_json(CODE).get("checked") or {})
    return {}


if __name__ == "__main__":
    run_stage(main, OUTPUT)
