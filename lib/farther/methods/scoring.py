"""The stage `score`: one Scores file a split, and no work for a split whose inputs did not change."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from farther.methods.base import Method, load, not_applicable
from farther.tables import RegionsFolder, Scores
from farther.tables.columns import ROW_GROUP
from farther.tables.files import digest, write_aside, write_json

#: Where a Scores file keeps the name of what it was computed from, in its Parquet metadata.
KEY = b"farther.key"


def score_run(
    run: str | Path, fitted: str | Path, path: str | Path, skip: Collection[str] = ("train",)
) -> dict[str, str]:
    """Scores every split of a run with a fitted method, all stored rows, also those below the operating threshold.

    A split is left alone when its file was made of the same state, rows and code; the file of a split that is no more
    is removed. Where the method does not apply, all that is written is `not_applicable.json` with the reason.

    Args:
        run: Folder that holds one regions folder a split.
        fitted: The method's folder.
        path: Folder of the Scores files, `<split>.parquet`.
        skip: Names of splits that get no scores.

    Returns:
        What was done, by split: "scored", "unchanged", "removed", or "not applicable: why".

    Raises:
        DataError: a folder is absent or damaged, or the method does not fit a split's regions.
    """
    run, fitted, path = Path(run), Path(fitted), Path(path)
    path.mkdir(parents=True, exist_ok=True)
    reason = not_applicable(fitted)
    splits = [] if reason else [split for split in split_names(run) if split not in skip]
    done = dict.fromkeys(_remove_others(path, splits), "removed")
    if reason:
        write_json(path / "not_applicable.json", {"reason": reason})
        return {**done, **{split: f"not applicable: {reason}" for split in split_names(run) if split not in skip}}
    method = load(fitted)
    state = digest(*_framed(fitted), *source_files(type(method)))
    for split in splits:
        key = digest(state, *_framed(run / split))
        if _key(path / f"{split}.parquet") == key:
            done[split] = "unchanged"
        else:
            write_scores(method, RegionsFolder(run / split), path / f"{split}.parquet", key)
            done[split] = "scored"
    return done


def split_names(run: str | Path) -> list[str]:
    """Names of the regions folders in a run's folder, sorted; hidden folders hold unfinished work."""
    found = Path(run).glob("*/regions.json")
    return sorted(file.parent.name for file in found if not file.parent.name.startswith("."))


def write_scores(method: Method, regions: RegionsFolder, path: str | Path, key: str) -> None:
    """Scores a regions folder batch by batch and writes a Scores file that carries `key`.

    Raises:
        DataError: see `Method.score`.
    """
    schema = Scores.empty().to_arrow().schema.with_metadata({KEY: key.encode()})
    columns = sorted(method.needs & {"features", "latent"})
    progress = tqdm(total=len(regions), desc=f"{method.name} {regions.path.name}", unit="region", disable=None)
    with write_aside(path) as aside, pq.ParquetWriter(aside, schema, compression="zstd") as writer, progress:
        for batch in regions.batches(columns):
            scores = Scores(image_id=batch.image_id, region_id=batch.region_id, score=method.score(batch))
            writer.write_table(scores.to_arrow().cast(schema), row_group_size=ROW_GROUP)
            progress.update(len(batch))


def source_files(cls: type) -> list[Path]:
    """The modules of this package that a method's code is in: its own, and those that it imports from, sorted."""
    package = __name__.rpartition(".")[0]
    found: dict[str, Path] = {}
    waiting = [cls.__module__]
    while waiting:
        name = waiting.pop()
        if name in found or not name.startswith(f"{package}."):
            continue
        module = sys.modules[name]
        found[name] = Path(inspect.getfile(module))
        values = vars(module).values()
        waiting += [v.__name__ if inspect.ismodule(v) else str(getattr(v, "__module__", "")) for v in list(values)]
    return sorted(found.values())


def _framed(folder: Path) -> Iterator[str | Path]:
    for file in sorted(folder.iterdir()):
        if file.is_file():
            yield file.name
            yield file


def _key(file: Path) -> str | None:
    try:
        metadata = pq.read_schema(file).metadata or {}
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
    return metadata.get(KEY, b"").decode(errors="replace")


def _remove_others(path: Path, splits: list[str]) -> list[str]:
    others = [file for file in path.glob("*.parquet") if file.stem not in splits]
    for file in others:
        file.unlink()
    (path / "not_applicable.json").unlink(missing_ok=True)
    return sorted(file.stem for file in others)
