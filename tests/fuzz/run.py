"""Fuzzes all that reads files: `python tests/fuzz/run.py --cases 20000 --seed 5 --families meaning`.

Cases run in child processes, so that a crash, a hang of more than 20 s or more than 4 GiB is blamed
on its case, and the next child goes on behind it. A case passes if the files are accepted, or
refused by an error of farther that names a file or a parameter in a message of a bounded length; of
the family "meaning" also what is accepted must give what the undamaged files give, or a warning
that these do not. Nothing may run, connect, or write outside of the case's folder. `--only voc:17`
or `--only meaning/voc:17` repeats one case with its traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
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

#: What the child processes find in their environment.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TQDM_DISABLE": "1",
}

#: Groups of targets: each has a child process of its own, and the second imports PyTorch.
GROUPS = ("results", "reruns")


#: Kinds of damage, and their shares: of what a format or a reader has, of the grammar of a file, of
#: its meaning.
FAMILIES = {"": 0.8, "grammar": 0.1, "meaning": 0.1}


@dataclass(frozen=True)
class Result:
    """What became of a case: "accepted", "refused" or "unexplained"; whether a refusal names a file, and a place in it."""

    target: str
    case: int
    kind: str
    text: str = ""
    how: str = ""
    file: bool = False
    field: bool = False
    seconds: float = 0.0


# -------------------------------------------------------------------------------------------------------------
# the child


def child(group: str, seed: str, work: Path) -> None:
    """Runs the cases that standard input names, one per line, and prints each result."""
    sys.path.insert(0, str(HERE))
    module = __import__(group)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if not os.environ.get("FUZZ_LOUD"):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (2 * BYTES, 2 * BYTES))  # not the whole machine's
    remember(group)
    os.chdir(work)  # a command that ran anywhere leaves its mark here or in the case's folder
    watch = Watch(work)
    sys.addaudithook(watch.audit)
    for line in sys.stdin:
        case, _, number = line.strip().partition(":")
        target = module.TARGETS[case.rpartition("/")[2]]
        # A process that goes on behind a case that ended another one has not seen the undamaged
        # files yet.
        unseen = case.startswith("meaning/") and not undamaged(case.rpartition("/")[2])
        for one in [0, int(number)] if unseen and int(number) else [int(number)]:
            folder = fresh(target, case.rpartition("/")[2], work)
            result = run_case(target, case, one, seed, folder, watch)
            with contextlib.suppress(RecursionError):
                shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():  # too deep for Python
                subprocess.run(["rm", "-rf", folder], check=False)
        print(json.dumps(vars(result)), file=out)


def remember(group: str) -> None:
    """Keeps what is the same in all cases and takes long: CLIP's words."""
    if group == "reruns":
        import open_clip.factory

        make = open_clip.factory.SimpleTokenizer
        kept = lru_cache(8, typed=True)(make)
        open_clip.factory.SimpleTokenizer = lambda **given: (
            kept(**given)
            if all(isinstance(value, Hashable) for value in given.values())
            else make(**given)
        )


def fresh(target: Any, name: str, work: Path) -> Path:
    """A copy of the target's valid folder; its files are links to the valid ones."""
    valid = work / "valid" / name
    if not valid.exists():
        made = work / f".{os.getpid()}.{name}"
        made.mkdir(parents=True)
        with contextlib.chdir(made):
            target.build()
        valid.parent.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):  # another process was faster
            made.rename(valid)
    folder = work / f"{name}-{os.getpid()}"
    shutil.copytree(
        valid, folder, symlinks=True, copy_function=os.link if target.links else shutil.copy
    )
    return folder


def run_case(target: Any, name: str, number: int, seed: str, folder: Path, watch: Watch) -> Result:
    """Damages the folder and reads it."""
    import grammar
    import meaning
    import mutate

    from farther.errors import FartherError

    chance = random.Random(f"{seed} {name} {number}")
    found = {path for pattern in target.mutable for path in folder.glob(pattern) if path.is_file()}
    files = sorted(path for path in found if not in_hidden(path, folder))
    family = name.rpartition("/")[0]
    damage = {"": mutate.mutate_folder, "grammar": grammar.mutate, "meaning": meaning.mutate}[
        family
    ]
    how = damage(folder, files, chance) if number else "as it is"
    watch.start(folder)
    start = time.process_time()
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            target.read()
            result = Result(name, number, "accepted")
        except FartherError as error:
            result = refused(
                Result(name, number, "refused", str(error)),
                error,
                [*files, *folder.iterdir()],
                folder,
            )
        except BaseException as error:  # a panic of Rust code is no Exception
            result = Result(name, number, "unexplained", describe(error))
        if result.kind == "unexplained" and os.environ.get("FUZZ_LOUD"):
            traceback.print_exc()
    if done := watch.stop():
        result = replace(result, kind="unexplained", text=done)
    is_compared = family == "meaning" or (number == 0 and target.compared)
    if is_compared and result.kind == "accepted":
        result = told_or_equal(result, meaning.outcome(folder, printed.getvalue().splitlines()))
    if number == 0 and result.kind == "refused":
        result = replace(
            result, kind="unexplained", text=f"the valid folder is not read: {result.text}"
        )
    return replace(result, how=how, seconds=time.process_time() - start)


@cache
def undamaged(name: str) -> list[Any]:
    """What the valid folder of a target gives, once it was read; empty before."""
    return []


def told_or_equal(result: Result, found: tuple[dict[str, Any], Counter[str]]) -> Result:
    """Unexplained where tables are not those of the undamaged folder, and no warning is new."""
    valid = undamaged(result.target.rpartition("/")[2])
    if result.case == 0:
        valid.append(found)
    if found[0] == valid[0][0] or found[1] - valid[0][1]:
        return result
    other = [
        name for name in {*found[0], *valid[0][0]} if found[0].get(name) != valid[0][0].get(name)
    ]
    return replace(
        result,
        kind="unexplained",
        text=f"another result, and no word of it: {', '.join(sorted(other))}",
    )


def refused(result: Result, error: Exception, files: list[Path], folder: Path) -> Result:
    """Whether the message names a file, and a place in it; unexplained without a file, or where it is too long."""
    from farther.errors import ParameterError

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
    """Notes what a case must not do: run a program, connect, import from its folder, write elsewhere, fill memory."""

    def __init__(self, work: Path):
        self._work, self._folder, self._seen = str(work), "", ""

    def start(self, folder: Path) -> None:
        """A case begins."""
        Path("/proc/self/clear_refs").write_text("5")
        self._folder, self._seen = str(folder), ""

    def stop(self) -> str:
        """The case has ended: what it did, or nothing."""
        from mutate import files_in

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


# ------------------------------------------------------------------------------------------------------------
# the parent


def fuzz(
    cases: int,
    seed: str,
    groups: Sequence[str] = GROUPS,
    only: str = "",
    families: Sequence[str] = tuple(FAMILIES),
) -> list[Result]:
    """Results of that many cases, shared among all targets of the groups; with `only`, of one target or case."""
    sys.path.insert(0, str(HERE))
    shares = {
        (group, f"{family}/{name}".lstrip("/")): target.share * FAMILIES[family]
        for group in groups
        for name, target in __import__(group).TARGETS.items()
        for family in families
        if family != "meaning" or target.compared
    }
    total = sum(shares.values())
    wanted, _, number = only.partition(":")
    tasks: dict[str, list[str]] = {group: [] for group in groups}
    with_undamaged: set[str] = set()
    for (group, name), share in shares.items():
        count = cases if wanted else max(2, round(cases * share / total))
        if wanted and wanted != name:
            continue
        numbers = range(1, count)
        if number:
            numbers = [int(number)]
        # Undamaged files, which those of the family "meaning" are compared with, are the same in
        # all families.
        target = name.rpartition("/")[2]
        if target not in with_undamaged:
            with_undamaged.add(target)
            numbers = sorted({0, *numbers})
        tasks[group] += [f"{name}:{n}" for n in numbers]
    with (
        tempfile.TemporaryDirectory(prefix="farther-fuzz-") as work,
        ThreadPoolExecutor(len(groups)) as pool,
    ):
        found = [
            pool.submit(lambda g=g: list(told(run_group(g, tasks[g], seed, Path(work).resolve()))))
            for g in groups
        ]
        return [result for one in found for result in one.result()]


def told(results: Iterator[Result]) -> Iterator[Result]:
    """The same results; what is unexplained is printed at once."""
    for result in results:
        if result.kind == "unexplained":
            print(f"{result.target}:{result.case} [{result.how}] {result.text}", flush=True)
        yield result


def run_group(group: str, tasks: list[str], seed: str, work: Path) -> Iterator[Result]:
    """Results of tasks; after a death or a hang another child goes on.

    A hang counts if it happens twice: the first one may be a machine that was stopped or busy.
    """
    left, again = list(tasks), set()
    while left:
        given = ["--child", group, "--seed", seed, "--work", str(work)]
        command = [sys.executable, "-X", "faulthandler", str(HERE / "run.py"), *given]
        environment = {**os.environ, **ENVIRONMENT}
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        assert process.stdin is not None and process.stdout is not None
        started = True
        while left:
            task = left.pop(0)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(task + "\n")
                process.stdin.flush()
            line = answer(process, building=task.endswith(":0") or started)
            started = False
            if line:
                result = Result(**json.loads(line))
                yield result
                if (
                    result.kind == "unexplained" and "GiB of memory" in result.text
                ):  # much of it may still be held
                    break
                continue
            name, _, number = task.partition(":")
            process.kill()
            code = process.wait()
            if line is None and task not in again:
                again.add(task)
                left.insert(0, task)
                break
            text = f"more than {SECONDS} s" if line is None else f"the process died ({code})"
            yield Result(name, int(number), "unexplained", text)
            break
        process.stdin.close()
        process.kill()
        process.wait()


def answer(process: subprocess.Popen[str], *, building: bool) -> str | None:
    """The child's next line, "" if it died, None if it used more than `SECONDS` of processor time or waits for nothing.

    A machine may be busy with other work: a waiting process gets more time by the clock.
    """
    limit, start, begun = SECONDS + 100 * building, cpu_seconds(process.pid), time.monotonic()
    while True:
        if select.select([process.stdout], [], [], 1)[0]:
            return process.stdout.readline() if process.stdout is not None else ""
        if cpu_seconds(process.pid) - start > limit or time.monotonic() - begun > 10 * limit:
            return None


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def table(results: list[Result]) -> str:
    """One row per target: cases, accepted, refused, of these with file and with field or row, unexplained."""
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


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1200)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="", help="a target, or target:case")
    parser.add_argument("--groups", nargs="+", default=list(GROUPS))
    parser.add_argument(
        "--families", nargs="+", default=list(FAMILIES), help="'', grammar, meaning"
    )
    parser.add_argument("--child", default="")
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.seed, given.work)
        return
    start = time.time()
    results = fuzz(given.cases, given.seed, given.groups, given.only, given.families)
    wrong = [result for result in results if result.kind == "unexplained"]
    for r in results if given.only else ():
        if r.kind != "unexplained":
            print(f"{r.target}:{r.case} {r.kind} [{r.how}] {r.text[:300]}")
    print(table(results))
    print(f"seed {given.seed}, {time.time() - start:.0f} s")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
