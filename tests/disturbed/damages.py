"""What is done to files: `DAMAGES` has all damages, `STRUCTURES` the kinds of files.

A new kind of file gets an entry in `STRUCTURES`, and a function in `damage/`; a new value that is
written somewhere, one in `damage/values.py`.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from tests.disturbed.damage import contents, grammar, meaning, texts
from tests.disturbed.damage.values import one_of

#: Ends of the names of files that may hold a pickle, and with them those that end SciPy's process
#: where damaged.
PICKLES = (".pt", ".pth", ".ckpt")
UNSAFE = (*PICKLES, ".mat")


def mutate_folder(folder: Path, files: list[Path], chance: random.Random) -> str:
    """Damages one of the files, sometimes up to three; returns how.

    A file may be a link that is shared: it is replaced.
    """
    said: dict[Path, str] = {}
    for _ in range(1 if chance.random() < 0.85 else chance.randint(2, 3)):
        path = chance.choice(files)
        try:
            path, how = _change(path, folder, files, chance, is_valid=path not in said)
        except (
            OSError,
            RecursionError,
        ):  # a folder above it was replaced before, or is too deep to delete
            continue
        said[path] = (
            f"{said[path]}, {how}" if path in said else f"{path.relative_to(folder)}: {how}"
        )
    return "; ".join(said.values())


def _change(
    path: Path, folder: Path, files: list[Path], chance: random.Random, *, is_valid: bool
) -> tuple[Path, str]:
    """Damages a file, or the folder that it is in; returns which, and how."""
    if chance.random() < 0.02 and path.parent != folder:
        return path.parent, _replace_folder(path.parent, chance)
    if chance.random() < 0.06 or not _holds_content(path):
        return path, _replace(path, folder, chance)
    if chance.random() < 0.06:
        return path, _misplace(path, files, chance)
    # Some files are not read here once they were changed: a pickle may hold the command that must
    # not run in farther.
    structure = is_valid or not path.name.endswith(UNSAFE)
    content, how = mutated(path.read_bytes(), path.name, chance, structure=structure)
    path.unlink()
    path.write_bytes(content)
    return path, how


def _holds_content(path: Path) -> bool:
    """Whether a file was not replaced yet by a link, a folder or a huge file."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 10**8


def _replace(path: Path, folder: Path, chance: random.Random) -> str:
    """Puts something else than a file in its place."""
    kinds = (
        "gone folder full FIFO socket loop dangling device above empty forbidden unlisted "
        "unreadable "
    )
    kind = one_of(chance, 3 * kinds + "sparse")  # a sparse file takes seconds to read
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if kind in ("folder", "full"):
        path.mkdir()
        if kind == "full":
            (path / path.name).write_bytes(b"x")
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        with chdir(path.parent), socket.socket(socket.AF_UNIX) as made:  # the address is short
            made.bind(path.name[:100])
    elif kind in ("empty", "forbidden"):
        path.touch(0o666 if kind == "empty" else 0)
    elif kind == "sparse":  # 1.2 GB of zeros that need no disk
        path.touch()
        os.truncate(path, 12 * 10**8)
    elif kind == "unlisted":
        (path.parent / ("." + path.name)).write_bytes(b"x")
    elif kind != "gone":
        targets = {
            "loop": path.name,
            "dangling": "nowhere",
            "device": "/dev/zero",
            "above": str(folder),
        }
        path.symlink_to(targets.get(kind, "/proc/self/mem"))
    return kind


def _replace_folder(path: Path, chance: random.Random) -> str:
    """Puts something else than the folder in its place, or more into it."""
    if not path.is_dir() or path.is_symlink():  # it was replaced before
        return "as it is"
    kind = one_of(chance, "gone file loop itself FIFO above deep within forbidden moved")
    if kind == "deep":  # deeper than code that calls itself goes, or than a path may be long
        _deepen(path, *chance.choice([("d" * 200, 25), ("d", 1500)]))
    elif kind == "within":
        (path / "more").symlink_to("..")
    elif kind == "forbidden":
        path.chmod(0)
    elif kind == "moved":
        path.rename(path.with_name(f"{path.name} "))
    else:
        shutil.rmtree(path)
        if kind == "file":
            path.write_bytes(b"x")
        elif kind == "FIFO":
            os.mkfifo(path)
        elif kind != "gone":
            path.symlink_to({"loop": path.name, "itself": ".", "above": ".."}[kind])
    return f"folder {kind}"


def _deepen(path: Path, name: str, count: int) -> None:
    """Folders in each other: their path may be longer than the system takes."""
    with chdir(path):
        for _ in range(count):
            Path(name).mkdir(exist_ok=True)
            os.chdir(name)
        Path("a.png").write_bytes(b"x")


def files_in(folder: Path) -> Iterator[Path]:
    """The files at most ten folders deep."""
    for place, folders, names in os.walk(folder):
        yield from (Path(place, name) for name in names)
        if len(Path(place).relative_to(folder).parts) == 10:
            folders.clear()


def _misplace(path: Path, files: list[Path], chance: random.Random) -> str:
    """Puts valid files where others belong."""
    others = [p for p in files if p != path and _holds_content(p)]
    alike = [p for p in others if p.suffix == path.suffix]
    kind = one_of(chance, "swapped swapped another alike more more renamed renamed link")
    other = chance.choice((alike if kind == "alike" else others) or [path])
    if kind == "swapped":
        here, there = path.read_bytes(), other.read_bytes()
        for file, content in ((path, there), (other, here)):
            file.unlink(missing_ok=True)
            file.write_bytes(content)
    elif kind in ("another", "alike"):
        content = other.read_bytes()
        path.unlink()
        path.write_bytes(content)
    elif kind == "link":
        path.unlink()
        path.symlink_to(other if other != path else "/dev/null")
    else:
        stem, suffix = path.stem, path.suffix
        endings = [f"{end}{suffix}" for end in ("-copy", " ", "\n", "99999")] + [f"{suffix}.tmp"]
        names = [f"{stem}{end}" for end in endings] + [f"{stem.upper()}{suffix}", f"0{path.name}"]
        names += [f"e\u0301{path.name}", unicodedata.normalize("NFD", f"é{path.name}")]
        named = path.with_name(chance.choice(names))
        bad = path.parent / os.fsdecode(os.fsencode(stem) + b"\xff" + os.fsencode(suffix))
        made = bad if chance.random() < 0.15 else named
        content = path.read_bytes()
        if kind == "renamed":
            path.unlink()
        made.write_bytes(content)
    return kind


def mutated(
    content: bytes, name: str, chance: random.Random, *, structure: bool = True
) -> tuple[bytes, str]:
    """Other content for a file of this name, and what was changed.

    That is often its structure, where allowed, else its bytes.
    """
    kinds = [kind for end, kind in STRUCTURES.items() if name.endswith(end)]
    kinds += [texts.words] * name.endswith((".json", ".jsonl", ".yaml", ".xml", ".md", ".csv"))
    if structure and kinds and chance.random() < 0.65:
        kind = chance.choice(kinds)
        try:
            made, how = kind(content, chance), kind.__name__
            # What is compressed or has checksums is written anew without, so that damage gets past
            # them.
            return (
                (texts.damaged(made, chance), f"{how} and bytes")
                if chance.random() < 0.1
                else (made, how)
            )
        except Exception:  # a first change was so large that the structure is gone
            pass
    if chance.random() < 0.05:
        return contents.foreign(chance), "foreign"
    return texts.damaged(content, chance), "bytes"


#: Kinds of structure by the ending of a file's name.
STRUCTURES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".json": texts.json_file, ".jsonl": texts.json_lines, ".yaml": texts.yaml_file,
    "README.md": texts.readme, ".xml": texts.xml, ".csv": texts.csv_file,
    **dict.fromkeys((".txt", ".exc", ".noun"), texts.words),
    **dict.fromkeys((".parquet", ".arrow"), contents.table), ".safetensors": contents.safetensors,
    **dict.fromkeys(PICKLES, contents.pickled),
    **dict.fromkeys((".png", ".jpg"), contents.image),
    ".mat": contents.matlab, "ubyte": contents.idx, ".gz": contents.gzipped,
}  # fmt: skip


@dataclass(frozen=True)
class Damage:
    """A kind of damage.

    Args:
        apply: Damages one of the files of a folder, sometimes up to three; returns how.
        share: Share of the cases.
        compared: Whether files stay valid: what is accepted must give what the undamaged files
            give, or a warning that these do not. Only targets whose results are compared get it.
    """

    apply: Callable[[Path, list[Path], random.Random], str]
    share: float
    compared: bool = False


#: By the prefix of the names of cases.
DAMAGES = {
    "": Damage(mutate_folder, 0.8),
    "grammar": Damage(grammar.mutate, 0.1),
    "meaning": Damage(meaning.mutate, 0.1, compared=True),
}
