"""Ctrl-C: the answer comes at once, without a traceback, and with exit status 130."""

import signal
import subprocess
import sys
import threading

import pytest
import typer

from farther.command import main
from farther.command.interruption import answering_interrupts
from farther.command.predict import stop_signal


def test_the_first_ctrl_c_is_answered_and_the_handler_before_is_restored(capfd):
    before = signal.getsignal(signal.SIGINT)
    noticed = []
    with answering_interrupts(lambda: noticed.append(1)):
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err == "Stopping …\n"
    assert noticed == [1, 1]
    assert signal.getsignal(signal.SIGINT) is before


def test_where_ctrl_c_is_ignored_it_stays_ignored(capfd):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with answering_interrupts():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().err == ""


def test_other_threads_leave_signals_alone():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with answering_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, typer.Abort])
def test_a_command_that_is_interrupted_ends_with_status_130(monkeypatch, capsys, interruption):
    def interrupted(*_: object, **__: object) -> None:
        raise interruption

    monkeypatch.setattr("farther.projects.init", interrupted)
    arguments = ["init", "p", "--id", "a", "--ood", "b", "--detector", "c"]
    assert main(arguments) == 130
    assert capsys.readouterr().err == "Stopped.\n"


def test_predict_says_that_it_writes_what_it_has(capfd):
    with stop_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
    assert capfd.readouterr().err.startswith("Stopping … the results so far are written")


def test_the_entry_point_imports_nothing_of_farther_before_it_handles_ctrl_c():
    """So Ctrl-C right after the start of the command is answered, too."""
    code = (
        "import sys, __future__, farther; before = set(sys.modules); import farther.command; "
        "print(sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['farther.command']"
