"""Cases of damage: files of a target are damaged, and it reads them.

Each case is a process, so that a crash, a hang of more than 20 s or more than 4 GiB is blamed on
its case. A case passes if the files are accepted, or refused by an error of farther that names a
file or a parameter in a message of a bounded length; where the damage leaves files valid, what is
accepted must give what the undamaged files give, or a warning that these do not. Nothing may run,
connect, or write outside of the case's folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.disturbed.damage import meaning
from tests.disturbed.damages import DAMAGES, files_in
from tests.disturbed.processes import answers, forked
from tests.disturbed.targets import TARGETS, Target

from farther.errors import FartherError, ParameterError

SECONDS, BYTES = 20, 4 * 2**30
#: Most characters of a message, without the paths in it.
MESSAGE = 4000

#: Programs that farther runs by itself: `farther doctor` asks git.
ALLOWED = ("git", "/sbin/ldconfig")

#: Events that no case may cause.
FORBIDDEN = (
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pty.spawn"),
    *("socket.connect", "socket.getaddrinfo"),
)


@dataclass(frozen=True)
class Result:
    """Outcome of a case: "accepted", "refused" or "unexplained".

    Args:
        target: Name of the target, behind that of the damage: "voc", "grammar/voc".
        case: Number of the case; 0 is the folder as it is.
        kind: The outcome.
        text: The message.
        how: The damage.
        file: Whether a refusal names a file.
        field: Whether it names a place in it.
        seconds: Processor time.
    """

    target: str
    case: int
    kind: str
    text: str = ""
    how: str = ""
    file: bool = False
    field: bool = False
    seconds: float = 0.0


def planned(count: int, targets: Sequence[str]) -> list[tuple[str, int]]:
    """Cases of targets by their shares: each undamaged, and then with each kind of damage."""
    share_by_case = {}
    for damage_name, damage in DAMAGES.items():
        for name in targets:
            if TARGETS[name].compared or not damage.compared:
                share = TARGETS[name].share * damage.share
                share_by_case[f"{damage_name}/{name}".lstrip("/")] = share
    total = sum(share_by_case.values())

    cases = [(name, 0) for name in targets]
    for name, share in share_by_case.items():
        last = max(2, round(count * share / total))
        cases.extend((name, number) for number in range(1, last))
    return cases


def run_cases(cases: Sequence[tuple[str, int]], seed: str, work: Path) -> Iterator[Result]:
    """Yields the results of cases.

    Args:
        cases: Names of targets behind those of damages, and numbers.
        seed: Draws the damage.
        work: A folder.
    """
    cases_by_target: dict[str, list[tuple[str, int]]] = {}
    for case, number in cases:
        cases_by_target.setdefault(case.rpartition("/")[2], []).append((case, number))
    for name, of_target in cases_by_target.items():
        # Results of damaged files are compared with those of the undamaged ones.
        if TARGETS[name].compared and (name, 0) not in of_target:
            of_target.insert(0, (name, 0))
        valid = work / "valid" / name
        valid.mkdir(parents=True)
        status = forked(partial(_make, TARGETS[name], valid))
        assert status == 0, f"{name}: its valid folder cannot be made"
        yield from _run_target(of_target, seed, work)
        shutil.rmtree(valid)


def _run_target(cases: list[tuple[str, int]], seed: str, work: Path) -> list[Result]:
    """Results of the cases of a target, in one process; after one that ends, another goes on.

    A hang counts if it happens twice: the first one may be a machine that was stopped or busy.
    """
    left = list(cases)
    hung = set()
    results = []

    def answered(line: str) -> None:
        results.append(Result(**json.loads(line)))
        left.pop(0)

    while left:
        status = answers(partial(_run, left, seed, work), SECONDS, answered)
        if not left or status == 0:  # a process that held much memory ended early
            continue
        if status is None and left[0] not in hung:
            hung.add(left[0])
            continue
        case, number = left.pop(0)
        text = f"more than {SECONDS} s" if status is None else f"the process died ({status})"
        results.append(Result(case, number, "unexplained", text))
    return results


def _run(cases: Sequence[tuple[str, int]], seed: str, work: Path) -> Iterator[str]:
    """Damages and reads the folders of cases, in a process that is watched; yields JSON."""
    _silence()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (2 * BYTES, 2 * BYTES))  # not the whole machine's
    # A command that ran anywhere leaves its mark here or in the case's folder.
    os.chdir(work)
    watch = Watch(work)
    sys.addaudithook(watch.audit)
    for case, number in cases:
        folder = _fresh(case.rpartition("/")[2], work)
        result = damage_and_read(case, number, seed, folder, watch)
        _delete(folder)
        yield json.dumps(vars(result))
        if "GiB of memory" in result.text:  # much of it may still be held
            return


def _fresh(name: str, work: Path) -> Path:
    """A copy of a valid folder; where the target allows it, files are links to the valid ones."""
    folder = work / "case"
    _delete(folder)  # that of a case that ended its process
    copy_function = os.link if TARGETS[name].links else shutil.copy
    shutil.copytree(work / "valid" / name, folder, symlinks=True, copy_function=copy_function)
    return folder


def _delete(folder: Path) -> None:
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # too deep for Python
        subprocess.run(["rm", "-rf", folder], check=False)


def _make(target: Target, folder: Path) -> None:
    os.chdir(folder)
    _silence()
    target.make()


def _silence() -> None:
    """Prints nothing any more, unless FUZZ_LOUD is set."""
    if not os.environ.get("FUZZ_LOUD"):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)


def damage_and_read(case: str, number: int, seed: str, folder: Path, watch: Watch) -> Result:
    """Damages the folder and reads it."""
    damage_name, _, name = case.rpartition("/")
    target = TARGETS[name]
    damage = DAMAGES[damage_name]
    chance = random.Random(f"{seed} {case} {number}")
    found = {path for pattern in target.damaged for path in folder.glob(pattern) if path.is_file()}
    files = sorted(path for path in found if not in_hidden(path, folder))
    how = "as it is"
    if number:
        how = damage.apply(folder, files, chance)

    watch.start(folder)
    start = time.process_time()
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            target.act()
            result = Result(case, number, "accepted")
        except FartherError as error:
            known_files = [*files, *folder.iterdir()]
            result = refused(
                Result(case, number, "refused", str(error)), error, known_files, folder
            )
        except BaseException as error:  # a panic of Rust code is no Exception
            result = Result(case, number, "unexplained", describe(error))
            if os.environ.get("FUZZ_LOUD"):
                traceback.print_exc()
    if done := watch.stop():
        result = replace(result, kind="unexplained", text=done)
    is_compared = damage.compared or (number == 0 and target.compared)
    if is_compared and result.kind == "accepted":
        outcome = meaning.outcome(folder, printed.getvalue().splitlines())
        result = told_or_equal(result, outcome, folder.with_name(f"{name}.json"))
    if number == 0 and result.kind == "refused":
        text = f"the valid folder is not read: {result.text}"
        result = replace(result, kind="unexplained", text=text)
    return replace(result, how=how, seconds=time.process_time() - start)


def told_or_equal(
    result: Result, outcome: tuple[dict[str, Any], Counter[str]], undamaged: Path
) -> Result:
    """Unexplained where tables are not those of the undamaged folder, and no warning is new.

    Args:
        result: The result so far.
        outcome: Tables and warnings.
        undamaged: A file with those of the undamaged folder, which case 0 writes.
    """
    tables, warnings = outcome
    if result.case == 0:
        undamaged.write_text(json.dumps([tables, warnings]))
        return result
    valid_tables, valid_warnings = json.loads(undamaged.read_text())
    if tables == valid_tables or warnings - Counter(valid_warnings):
        return result
    names = tables.keys() | valid_tables.keys()
    other = sorted(name for name in names if tables.get(name) != valid_tables.get(name))
    text = f"another result, and no word of it: {', '.join(other)}"
    return replace(result, kind="unexplained", text=text)


def refused(result: Result, error: Exception, files: list[Path], folder: Path) -> Result:
    """Whether the message names a file, and a place in it.

    It is unexplained where it names no file, or is too long.
    """
    file, row, field = (getattr(error, name, None) for name in ("file", "row", "field"))
    by_name = isinstance(error, ParameterError)
    named = (
        by_name or file or any(p.name in result.text for p in files) or str(folder) in result.text
    )
    placed = by_name or row is not None or field is not None
    result = replace(result, file=bool(named), field=placed)
    long = [
        text for text in (result.text.replace(str(folder), ""), str(file)) if len(text) > MESSAGE
    ]
    if long or not named:
        problem = f"a message or a name of {len(long[0])} characters" if long else "names no file"
        result = replace(result, kind="unexplained", text=f"{problem}: {result.text[:300]}")
    return result


def in_hidden(path: Path, folder: Path) -> bool:
    return (
        any(part.startswith(".") for part in path.relative_to(folder).parts)
        or path.name == "dvc.yaml"
    )


def describe(error: BaseException) -> str:
    """Type, message, and where in farther it left which library."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        f"{file.parent.name}/{file.name}:{frame.name}:{frame.lineno}"
        for frame in frames
        if {"farther", "stages"} & set((file := Path(frame.filename)).parts)
    ]
    last = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""
    return f"{type(error).__name__}: {' < '.join(ours[-1:])} < {last}: {str(error)[:200]}"


class Watch:
    """Notes what a case must not do.

    It must not run a program, connect, import from its folder, write elsewhere or fill memory.
    """

    def __init__(self, work: Path):
        self._work, self._folder, self._seen = str(work), "", ""

    def start(self, folder: Path) -> None:
        """A case begins."""
        Path("/proc/self/clear_refs").write_text("5")
        self._folder, self._seen = str(folder), ""

    def stop(self) -> str:
        """The case has ended: what it did, or nothing."""
        status = Path("/proc/self/status").read_text().splitlines()
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
        folder, self._folder = self._folder, ""
        left = [Path(self._work, "FARTHER_CANARY"), *files_in(Path(folder))]
        if any(file.name == "FARTHER_CANARY" and file.exists() for file in left):
            self._seen = "it ran a command"
        return self._seen or (f"{peak / 2**30:.1f} GiB of memory" if peak > BYTES else "")

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Python's audit hook."""
        if not self._folder:
            return
        if event in FORBIDDEN:
            if not (event in ("subprocess.Popen", "os.posix_spawn") and args[0] in ALLOWED):
                self._seen = self._seen or f"{event}: {str(args)[:200]}"
        elif event == "exec" and str(getattr(args[0], "co_filename", "")).startswith(self._folder):
            self._seen = f"it ran {args[0].co_filename}"
        elif (
            event == "open" and isinstance(args[0], str) and args[1] and set(args[1]) & set("wax+")
        ):
            path = str(Path(args[0]).absolute())
            if (
                not path.startswith((self._work, "/dev/", "/proc/", tempfile.gettempdir()))
                and "__pycache__" not in path
            ):
                self._seen = f"it wrote {path}"


def table(results: list[Result]) -> str:
    """One row per target: cases by outcome, and refusals with a file and with a field or row."""
    names = list(dict.fromkeys(result.target for result in results))
    heads = ("cases", "accepted", "refused", "file", "field", "unexplained", "ms per case")
    lines = ["target".ljust(20) + "".join(head.rjust(len(head) + 3) for head in heads)]
    for name in [*names, "all"]:
        of = [result for result in results if name in (result.target, "all")]
        kinds = Counter(result.kind for result in of)
        refused = [result for result in of if result.kind == "refused"]
        named = [sum(r.file for r in refused), sum(r.field for r in refused)]
        spent = round(1000 * sum(r.seconds for r in of) / max(len(of), 1))
        counts = [len(of), kinds["accepted"], len(refused), *named, kinds["unexplained"], spent]
        lines.append(
            name.ljust(20)
            + "".join(str(n).rjust(len(h) + 3) for n, h in zip(counts, heads, strict=True))
        )
    return "\n".join(lines)
