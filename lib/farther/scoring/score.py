"""The stage `score`: one Scores file a split, and no work for a split whose inputs did not change."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from farther.code import digest_of
from farther.errors import DataError
from farther.methods.base import READ_WHEN_NEEDED, Method, load, not_applicable, read_method
from farther.scoring.fit import folder_digest
from farther.tables import RegionsFolder, Scores
from farther.tables.files import digest, write_aside, write_json
from farther.tables.table import ROW_GROUP

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
        DataError: a folder is absent or damaged, the method does not fit a split's regions, or its parameters were
            chosen on regions that have changed.
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
    _check_choice(fitted, run)
    state = digest(folder_digest(fitted), digest_of(type(method).__module__))
    for split in splits:
        key = digest(state, folder_digest(run / split))
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
    schema = Scores.empty().frame.to_arrow().schema.with_metadata({KEY: key.encode()})
    columns = sorted(method.needs & READ_WHEN_NEEDED)
    progress = tqdm(total=len(regions), desc=f"{method.name} {regions.path.name}", unit="region", disable=None)
    with write_aside(path) as aside, pq.ParquetWriter(aside, schema, compression="zstd") as writer, progress:
        for batch in regions.batches(columns):
            scores = Scores(image_id=batch.image_id, region_id=batch.region_id, score=method.score(batch))
            writer.write_table(scores.frame.to_arrow().cast(schema), row_group_size=ROW_GROUP)
            progress.update(len(batch))


def _check_choice(fitted: Path, run: Path) -> None:
    """Refuses parameters that were chosen on regions that have changed since."""
    choice = read_method(fitted).get("choice")
    if choice and choice["regions"] != folder_digest(run / choice["ood_split"]):
        problem = f"parameters were chosen on other regions of {choice['ood_split']!r}; fit again: dvc repro --force"
        raise DataError(problem, file=fitted / "method.json", field="choice")


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
