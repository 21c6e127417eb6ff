"""The scores of a run's splits by its fitted methods: the work of the stage `score`.

One process scores all methods of a run, and only what changed: a split is scored again when the
fitted state, the code of the method or the regions of the split changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
from tqdm import tqdm

from farther.errors import DataError
from farther.incremental.keyed import Keyed, content_digest, key_of
from farther.methods.base import Method
from farther.methods.loading import load, read_method
from farther.naming import extensions
from farther.processes import count_cores, in_threads
from farther.scoring.device import Device, torch_device
from farther.scoring.fitted import FittedEntry, applicable, read_entries
from farther.tables import Header, Regions, RegionsFolder, Scores
from farther.tables.files import inside
from farther.tables.folders import listed
from farther.tables.joined import JoinedFolder
from farther.tables.parquet import ROW_GROUP

if TYPE_CHECKING:
    from farther.methods.torch_form import ScoreModule

#: Fewest rows of a part of a batch: a search in an index compares many rows with a cell at a time.
PART = 2048


@dataclass
class ScoreSummary:
    """What was done for a run.

    Args:
        methods: Names of the methods that apply.
        scored: Names `<method>/<split>` of what was scored.
        failed: {method: file, line and text of the error in its extension}; it has no scores.
    """

    methods: list[str] = field(default_factory=list)
    scored: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        methods = list(dict.fromkeys(name.partition("/")[0] for name in self.scored))
        splits = sorted({name.partition("/")[2] for name in self.scored})
        unchanged = len(self.methods) - len({*methods, *self.failed})
        parts = []
        if methods:
            parts.append(f"scored {', '.join(splits)} by {', '.join(methods)}")
        if unchanged:
            parts.append(f"{unchanged} method{'' if unchanged == 1 else 's'} unchanged")
        return "; ".join(parts) or "no methods"


@dataclass(frozen=True)
class ScoreTable:
    """A table of scores that a run shall have: a method on a split.

    Args:
        method: The method's name in the section `methods`.
        regions: Folder of the regions that are scored.
        beside: The folder of each pass whose columns it reads beside theirs: names and folders.
        key: See `farther.incremental.keyed`.
    """

    method: str
    regions: Path
    beside: tuple[tuple[str, Path], ...]
    key: str

    @property
    def split(self) -> str:
        """Name of the split."""
        return self.regions.name

    @property
    def item(self) -> str:
        """Its file below the folder of scores."""
        return f"{self.method}/{self.split}.parquet"

    def read(self) -> RegionsFolder | JoinedFolder:
        """The regions that are scored.

        Raises:
            DataError: a folder is absent or damaged.
        """
        if self.beside:
            return JoinedFolder(self.regions, dict(self.beside))
        return RegionsFolder(self.regions)


def score_run(
    regions: Path,
    passes: Path,
    fitted: Path,
    scores: Path,
    code: Callable[[str], str],
    device: Device = "cpu",
) -> ScoreSummary:
    """Scores all rows of a run's splits by its fitted methods, rows below t* included.

    Splits that methods only learn from are not scored.

    Args:
        regions: Folder of the run's regions, one folder per split.
        passes: Folder of its passes, one folder per pass and split.
        fitted: Folder of the fitted methods; see `farther.scoring.fitted`.
        scores: Folder of the scores, `<method>/<split>.parquet`.
        code: Digest of the code of a method, of the name that it is registered under.
        device: Where scores are computed; see `farther.scoring.device`.

    Raises:
        ParameterError: the device cannot be used here.
        DataError: a fitted method or a split is absent or damaged, or they do not fit each other.
    """
    entries = read_entries(fitted)
    methods = applicable(fitted, entries)
    summary = ScoreSummary(methods=[entry.name for entry in methods])
    place = torch_device(device)
    made_on = {} if place is None else {"device": place}
    wanted = _score_tables(methods, regions, passes, fitted, code, entries.not_scored, made_on)

    tables = Keyed(scores)
    outdated = set(tables.outdated({table.item: table.key for table in wanted}))
    by_regions: dict[tuple, list[ScoreTable]] = {}
    for table in wanted:
        if table.item in outdated:
            by_regions.setdefault((table.regions, table.beside), []).append(table)

    loaded: dict[str, Method] = {}
    for tables_of_folder in by_regions.values():
        for table in tables_of_folder:
            if table.method not in loaded:
                loaded[table.method] = load(inside(fitted, table.method))
        _score_split(tables_of_folder[0].read(), tables_of_folder, loaded, tables, summary, place)
    return summary


def _score_tables(
    methods: list[FittedEntry],
    regions: Path,
    passes: Path,
    fitted: Path,
    code: Callable[[str], str],
    not_scored: list[str],
    made_on: Mapping[str, str],
) -> list[ScoreTable]:
    """The tables that a run shall have, by split and method.

    The run's own regions come first, then those of passes.
    """
    digests: dict[Path, str] = {}
    tables = []
    for entry in methods:
        state = inside(fitted, entry.name)
        source = regions if entry.pass_name is None else inside(passes, entry.pass_name)
        made_from = {
            "fitted": content_digest(state),
            "code": code(read_method(state)["name"]),
            **made_on,
        }
        for header in listed(source, "*/regions.json"):
            folder = header.parent
            beside = _folders_beside(entry, passes, folder.name)
            if folder.name in not_scored or beside is None:
                continue
            read_folders = [folder, *(folder_beside for _, folder_beside in beside)]
            for read_folder in read_folders:
                if read_folder not in digests:
                    digests[read_folder] = content_digest(read_folder)
            made_from_regions = {**made_from, "regions": digests[folder]}
            if beside:
                made_from_regions["beside"] = " ".join(digests[read] for read in read_folders[1:])
            key = key_of([], made_from_regions)
            tables.append(ScoreTable(entry.name, folder, beside, key))
    return tables


def _folders_beside(
    entry: FittedEntry, passes: Path, split: str
) -> tuple[tuple[str, Path], ...] | None:
    """The folders of a split in the passes that a method reads; None where one leaves it out."""
    folders = []
    for name in entry.passes_beside:
        folder = inside(passes, name) / split
        if not (folder / "regions.json").is_file():
            return None
        folders.append((name, folder))
    return tuple(folders)


def _score_split(
    regions: RegionsFolder | JoinedFolder,
    wanted: list[ScoreTable],
    methods: Mapping[str, Method],
    tables: Keyed,
    summary: ScoreSummary,
    device: str | None,
) -> None:
    """Scores a split by several methods.

    Those whose extension fails are noted, and the others scored.
    """
    while True:
        remaining = [table for table in wanted if table.method not in summary.failed]
        if not remaining:
            return
        try:
            _write_scores(regions, remaining, methods, tables, device)
        except _ExtensionError as error:
            summary.failed[error.method] = error.text
        else:
            summary.scored += [f"{table.method}/{table.split}" for table in remaining]
            return


class _ExtensionError(Exception):
    """An error in the extension that defines a method."""

    def __init__(self, method: str, text: str):
        super().__init__(text)
        self.method = method
        self.text = text


def _write_scores(
    regions: RegionsFolder | JoinedFolder,
    wanted: list[ScoreTable],
    methods: Mapping[str, Method],
    tables: Keyed,
    device: str | None,
) -> None:
    """Reads the regions of a split once, and writes their scores by several methods."""
    columns = sorted({column for table in wanted for column in methods[table.method].columns})
    schema = Scores.empty().frame.to_arrow().schema
    with ExitStack() as stack:
        writers = []
        for table in wanted:
            path = stack.enter_context(tables.make(table.item, table.key))
            writer = pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)
            writers.append(stack.enter_context(writer))
        title = f"{regions.path.parent.name} {regions.path.name}"
        progress = stack.enter_context(
            tqdm(total=len(regions), desc=title, unit="region", disable=None)
        )

        scorers = {}
        for table in wanted:
            method = methods[table.method].for_split(table.split)
            scorers[table.method] = Scorer.of(table.method, method, regions.header, device)
        for batch in regions.batches(columns):
            scores_by_method = _score_batch(
                batch, [scorers[table.method] for table in wanted], regions.path
            )
            for writer, scores in zip(writers, scores_by_method, strict=True):
                rows = Scores(image_id=batch.image_id, region_id=batch.region_id, score=scores)
                writer.write_table(rows.frame.to_arrow().cast(schema), row_group_size=ROW_GROUP)
            progress.update(len(batch))


@dataclass(frozen=True)
class Scorer:
    """A method that scores the rows of a split.

    Args:
        name: Its name in the section `methods`.
        method: The method.
        module: Its form in PyTorch, on a device; None where NumPy computes the scores.
    """

    name: str
    method: Method
    module: ScoreModule | None = None

    @classmethod
    def of(cls, name: str, method: Method, header: Header, device: str | None) -> Scorer:
        """A scorer on a device of PyTorch, where the method has a form in it; else NumPy's."""
        if device is None or method.no_torch_form():
            return cls(name, method)
        return cls(name, method, method.to_torch(device, header=header))

    def score(self, regions: Regions) -> np.ndarray:
        """Scores of rows, shape (N,), float64.

        Raises:
            DataError: see `Method.score`.
            _ExtensionError: the method is an extension's, and its code fails.
        """
        try:
            if self.module is not None:
                return self.module.score_regions(regions)
            return self.method.score(regions)
        except DataError:
            raise
        except Exception as error:
            failure = extensions.failure(error)
            if failure is None:
                raise
            raise _ExtensionError(self.name, failure) from error


def _score_batch(batch: Regions, scorers: list[Scorer], source: Path) -> list[np.ndarray]:
    """Scores of a batch by each method, ndarrays of shape (N,).

    A score depends on its own row alone: all cores are busy to the end when each method on the CPU
    is shared among them. Methods on a GPU take the batch as a whole.
    """
    calls = []
    for scorer in scorers:
        rows = [batch] if scorer.module is not None else _parts(batch)
        calls += [(scorer, part) for part in rows]
    try:
        scores = in_threads(lambda call: call[0].score(call[1]), calls)
    except DataError as error:
        raise error.within(source) from None

    scores_by_method: dict[str, list[np.ndarray]] = {}
    for (scorer, _), scores_of_part in zip(calls, scores, strict=True):
        scores_by_method.setdefault(scorer.name, []).append(scores_of_part)
    return [np.concatenate(scores_by_method[scorer.name]) for scorer in scorers]


def _parts(batch: Regions) -> list[Regions]:
    """The rows in as many parts as there are cores.

    Fewer where parts would have less than `PART` rows.
    """
    count = max(1, min(count_cores(), len(batch) // PART))
    ends = [len(batch) * k // count for k in range(count + 1)]
    return [batch[first:end] for first, end in pairwise(ends)]
