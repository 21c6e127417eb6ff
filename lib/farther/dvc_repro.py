"""`dvc repro` as a process that says in marked lines what becomes of each stage: python -m farther.dvc_repro.

Stages print to the same stdout, so that a line belongs to the stage that was named last.
"""

from __future__ import annotations

import logging
import sys

#: Begins a line about a stage; the kind and the stage's name follow.
MARK = "\x1e"
RUNS, CACHED, UNCHANGED = "runs", "cached", "unchanged"
#: What DVC logs about a stage, before the name is filled in.
EVENTS = {
    "Running stage '%s':": RUNS,
    "Stage '%s' is cached - skipping run, checking out outputs": CACHED,
    "Stage '%s' didn't change, skipping": UNCHANGED,
}
#: Before the targets: only these stages, beside other processes that run others.
ALONE = "--alone"


class _Events(logging.Handler):
    """Prints what happened to stages, and nothing else that DVC informs about."""

    def emit(self, record: logging.LogRecord) -> None:
        if event := EVENTS.get(str(record.msg)):
            stage = record.getMessage().split("'")[1]
            print(f"{MARK}{event} {stage}", flush=True)


def main(arguments: list[str]) -> int:
    """Runs stages; returns DVC's exit status.

    Args:
        arguments: Stages to run, none for all of them.
    """
    from dvc.repo import Repo

    log = logging.getLogger("dvc")
    for handler in [one for one in log.handlers if one.level <= logging.INFO]:
        log.removeHandler(handler)  # warnings and errors have a handler of their own
    log.addHandler(_Events())
    alone = ALONE in arguments
    try:
        with Repo(_wait_for_lock=alone) as repo:
            repo.reproduce([name for name in arguments if name != ALONE] or None, single_item=alone)
    except KeyboardInterrupt:
        return 130
    except Exception:
        log.exception("")  # in DVC's form: without a traceback, unless DVC_SHOW_TRACEBACK is set
        return 255
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
