"""Stages of a group run in one process, and see and leave what they would in one process each."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from farther.command.process_output import read_output
from farther.command.processes import Processes, _arguments


@pytest.fixture
def processes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pool = Processes()
    yield pool
    pool.close()


def run(
    processes: Processes,
    code: str,
    stage: str = "evaluate@a",
    argument: str = "a",
    program: str = "step.py",
) -> tuple[int, str, str]:
    """Exit status of a stage, and what it printed on stdout and stderr."""
    Path("step.py").write_text(code)
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    environment = {
        **os.environ,
        "OF_STAGE": stage,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    options = {"cwd": str(Path.cwd()), "env": environment}
    command = ["/bin/sh", "-c", f"python {program} '{argument}'"]
    started = processes.start(stage, command, options, out_write, err_write)
    os.close(out_write)
    os.close(err_write)
    printed = {"out": "", "err": ""}
    for event in read_output({out_read: "out", err_read: "err"}, started.ended):
        if event.kind == "line":
            printed[event.source] += f"{event.text}\n"
    status = started.wait()
    os.close(out_read)
    os.close(err_read)
    processes.give_back(started)
    return status, printed["out"], printed["err"]


SEEN = "import os, sys; print(__name__, sys.argv, os.getcwd(), os.environ['OF_STAGE'], sys.path[0])"


def test_a_stage_sees_what_it_sees_in_a_process_of_its_own(processes):
    for stage, argument in (("evaluate@a", "a"), ("proposals@b c", "b c")):
        status_in_group, printed_in_group, _ = run(processes, SEEN, stage, argument)
        status, printed, _ = run(processes, SEEN, "other", argument)
        assert (status, status_in_group) == (0, 0)
        assert printed_in_group == printed.replace("other", stage)


def test_stages_of_a_group_share_a_process_and_others_do_not(processes):
    pid = "import os; print(os.getpid())"
    number_by_stage = {}
    for stage in ("evaluate@a", "proposals@b", "infer@a", "embed"):
        number_by_stage[stage] = run(processes, pid, stage)[1]
    assert number_by_stage["evaluate@a"] == number_by_stage["proposals@b"]
    assert len(set(number_by_stage.values())) == 3


def test_a_prepared_process_has_imported_packages_and_runs_the_first_stage(processes, monkeypatch):
    Path("early.py").write_text("")
    modules = ("early", "a_module_that_is_absent")
    monkeypatch.setattr("farther.command.processes.PREPARED_MODULES", modules)
    processes.prepare(dict(os.environ))
    code = "import os, sys; print(os.getpid(), 'early' in sys.modules)"
    prepared, has_imported = run(processes, code, "code")[1].split()
    assert has_imported == "True"
    assert run(processes, code, "report")[1].split()[0] == prepared


def test_a_module_that_was_imported_early_runs_without_a_warning(processes, monkeypatch):
    Path("zoo").mkdir()
    Path("zoo/__init__.py").touch()
    Path("zoo/opening.py").write_text("print(__name__)\n")
    monkeypatch.setattr("farther.command.processes.PREPARED_MODULES", ("zoo.opening",))
    processes.prepare(dict(os.environ))
    for _ in range(2):
        said = run(processes, "", "code", program="-m zoo.opening")
        assert said == (0, "__main__\n", "")


def test_nothing_of_a_stage_is_left_to_the_next(processes):
    before = (
        "import os, sys; os.environ['LEFT'] = '1'; left = 1; sys.argv.append('x'); os.chdir('/'); "
        "print('a', end='')"
    )
    assert run(processes, before)[:2] == (0, "a\n")
    after = (
        "import os, sys; print('LEFT' in os.environ, 'left' in globals(), sys.argv, os.getcwd())"
    )
    assert run(processes, after)[:2] == (0, f"False False ['step.py', 'a'] {Path.cwd()}\n")


CYCLE = """
import gc, kept, weakref
class Node:
    pass
print(len(kept.freed), gc.get_freeze_count() > 0)
node = Node()
node.itself = node
weakref.finalize(node, kept.freed.append, 1)
"""


def test_objects_of_a_stage_are_freed_and_those_of_modules_are_not_searched_again(processes):
    Path("kept.py").write_text("freed = []\n")
    assert [run(processes, CYCLE)[1] for _ in range(3)] == ["0 True\n", "1 True\n", "2 True\n"]


def test_a_warning_that_a_stage_showed_or_ignored_is_shown_by_the_next(processes):
    Path("shown.py").write_text("import warnings\n\ndef show():\n    warnings.warn('old')\n")
    code = "import shown, warnings; shown.show(); warnings.simplefilter('ignore')"
    status, _, printed = run(processes, code)
    assert status == 0
    assert "UserWarning: old" in printed
    assert run(processes, code) == (0, "", printed)


STATES = """
import random, numpy, torch
print(random.random(), numpy.random.rand(), torch.rand(1).item())
random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
print(random.random(), numpy.random.rand(), torch.rand(1).item())
"""


def test_a_seed_that_a_stage_sets_is_not_that_of_the_next(processes):
    first = run(processes, STATES, "infer@a")[1].split()
    second = run(processes, STATES, "infer@b")[1].split()
    assert len(first) == 6
    assert first[3:] == second[3:]
    assert not set(second[:3]) & set(first)


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("import sys; sys.exit('bad input')", 1, "bad input\n"),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit()", 0, ""),
        ("1 / 0", 1, "(?s)Traceback.*ZeroDivisionError: division by zero\n"),
        ("raise KeyboardInterrupt", 130, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
    ],
)
def test_the_exit_status_is_that_of_the_stage(processes, code, status, said):
    printed = run(processes, code)
    assert printed[0] == status
    assert re.fullmatch(said, printed[2])
    assert run(processes, "print('next')") == (0, "next\n", "")


def test_a_process_that_was_killed_while_it_was_idle_is_not_asked(processes):
    pid = "import os; print(os.getpid())"
    killed = int(run(processes, pid)[1])
    os.kill(killed, signal.SIGKILL)
    os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
    status, printed, _ = run(processes, pid)
    assert status == 0
    assert int(printed) != killed


def has_ended(pid: int, milliseconds: int = 0) -> bool:
    """Whether a process has ended, or ends while some milliseconds are waited for it."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        end = select.poll()
        end.register(process, select.POLLIN)
        return bool(end.poll(milliseconds))
    finally:
        os.close(process)


def test_a_process_that_a_stage_leaves_behind_does_not_hold_up_the_next(processes):
    code = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"
    status, printed, _ = run(processes, code)
    assert status == 0
    left_behind = int(printed)
    assert not has_ended(left_behind)  # the stage did not wait for it
    os.kill(left_behind, signal.SIGKILL)


def test_the_process_ends_with_its_parent(tmp_path):
    (tmp_path / "step.py").write_text("import os; print(os.getpid(), flush=True)")
    code = (
        "import os, sys, time; from farther.command.processes import Processes\n"
        "options = {'cwd': os.getcwd(), 'env': dict(os.environ)}\n"
        "Processes().start('evaluate@a', ['sh', '-c', 'python step.py'], options, 1, 2)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    assert has_ended(pid, milliseconds=600_000)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("python stages/evaluate.py 'voc-vos'", ["stages/evaluate.py", "voc-vos"]),
        ("python -m farther.pipeline.evaluate 'a b'", ["-m", "farther.pipeline.evaluate", "a b"]),
        *(
            (text, None)
            for text in (
                "python",
                "",
                "bash a.py",
                "python -c 'a'",
                "python 'a",
                "python a.py | tail",
            )
        ),
        *(
            (f"python a.py {text}", None)
            for text in ("> a", "&& b", "; b", "$A", "`b`", "*.py", "a\nb", "# b")
        ),
    ],
)
def test_only_commands_that_start_python_and_nothing_else_are_taken(command, arguments):
    assert _arguments(["/bin/sh", "-c", command]) == arguments
