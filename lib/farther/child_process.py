"""What processes do that another one starts for its work."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait

from farther.cores import end_without_collection


def follow_parent() -> None:
    """Has this process, which `multiprocessing` started, end with its parent, and only then.

    Ctrl-C goes to both: the parent ends its workers. One that is killed with -9 cannot tell them.
    """
    end_without_collection()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
