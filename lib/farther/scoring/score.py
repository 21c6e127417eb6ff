"""The methods of params.yaml fitted to the regions of a run, and the scores of its splits.

One process does all methods of a run, and only what changed: a method is fitted again when its parameters, its code or
the regions that it learns from have changed, a split is scored again when the fitted state or its regions have.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from tqdm import tqdm

from farther import extensions
from farther.cores import count_cores, in_threads
from farther.errors import DataError
from farther.keyed import Keyed
from farther.methods.base import METHODS, FitError, Method
from farther.methods.loading import load, not_applicable, read_method
from farther.scoring.entries import MethodEntry
from farther.scoring.fit import fit_entry
from farther.scoring.inputs import FitSettings, RunRegions, folder_digest
from farther.tables import Regions, RegionsFolder, Scores
from farther.tables.files import digest
from farther.tables.parquet import ROW_GROUP

#: Fewest rows of a part of a batch: a search in an index compares many rows with a cell at a time.
PART = 2048


@dataclass
class Done:
    """What was done for a run.

    Args:
        entries: All entries of params.yaml's section `methods`.
        fitted: Entries that were fitted, or found not to apply.
        scored: Names `<entry>/<split>` of what was scored.
        evaluated: Entries that were evaluated, and "the detector" if it was.
        refused: {entry: why it does not apply to the run}.
        remarks: {entry: remarks on what was fitted; see `Method.remarks`}.
        failed: {entry: file, line and text of the error in its extension}; it has no scores.
    """

    entries: list[str]
    fitted: list[str] = field(default_factory=list)
    scored: list[str] = field(default_factory=list)
    evaluated: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def unchanged(self) -> list[str]:
        """Entries that nothing was done for."""
        busy = {*self.fitted, *self.evaluated, *(name.partition("/")[0] for name in self.scored)}
        return [name for name in self.sound if name not in busy]

    @property
    def sound(self) -> list[str]:
        """Entries that did not fail."""
        return [name for name in self.entries if name not in self.failed]

    def __str__(self) -> str:
        splits = sorted({name.partition("/")[2] for name in self.scored})
        fitted = [name for name in self.fitted if name not in self.refused]
        done = {"fitted": fitted, "scored": splits, "evaluated": self.evaluated}
        parts = [f"{what} {', '.join(names)}" for what, names in done.items() if names]
        unchanged = len(self.unchanged)
        parts += [f"{unchanged} method{'' if unchanged == 1 else 's'} unchanged"] if unchanged else []
        parts += [f"not applicable: {', '.join(self.refused)}"] if self.refused else []
        parts += [f"{name}: {', '.join(texts)}" for name, texts in self.remarks.items() if texts]
        return "; ".join(parts) or "no methods"


def score_run(
    entries: Sequence[MethodEntry],
    run: RunRegions,
    fitted: Path,
    scores: Path,
    code: Mapping[str, str],
    evaluated: Collection[str] = (),
) -> Done:
    """Fits every entry to a run and scores all rows of its splits, those below t* included.

    Splits that methods only learn from are not scored: the training split, that of `fit.split`, and those of `fit_on`.

    Args:
        entries: Entries of params.yaml's section `methods`.
        run: The regions of the run.
        fitted: Folder of the fitted states, one folder per entry: see `fit_entry`.
        scores: Folder of the scores, `<entry>/<split>.parquet`.
        code: Digest of the code of each entry.
        evaluated: Splits that are evaluated or chosen on, which are scored even if methods learn from them.

    Raises:
        ParameterError: a parameter is unknown, or would be searched on a test split.
        DataError: a split is absent or damaged, or a method does not fit a split's regions.
    """
    done = Done([entry.name for entry in entries])
    states, tables = Keyed(fitted), Keyed(scores)
    kept: dict[str, tuple[str, RunRegions]] = {}
    for entry in entries:
        source = _source(entry, run)
        key = _fit_key(entry, source, code[entry.name])
        if not states.is_current(entry.name, key):
            try:
                with states.make(entry.name, key) as folder:
                    fit_entry(entry, run, folder)
            except Exception as error:
                done.failed[entry.name] = _in_extension(error)
                continue
            done.fitted.append(entry.name)
            done.remarks[entry.name] = read_method(states.path(entry.name)).get("remarks", [])
        if reason := not_applicable(states.path(entry.name)):
            done.refused[entry.name] = reason
        else:
            kept[entry.name] = digest(code[entry.name], folder_digest(states.path(entry.name))), source
    states.keep_only(done.entries)
    items: list[str] = []
    methods: dict[str, Method] = {}  # loaded when the first split needs them
    learned = {FitSettings.split, run.settings.split, *(entry.fit_split for entry in entries)}
    for split in run.digests:
        if split in learned.difference(evaluated, [run.settings.calibration_split]):
            continue
        # A pass may leave splits out (`skip`): those have no scores, and evaluation says so where it needs them.
        had = {name: of for name, of in kept.items() if split in of[1].digests or of[1].folder == run.folder}
        keys = {name: digest(state, source.digests.get(split, "")) for name, (state, source) in had.items()}
        items += [_item(name, split) for name in keys]
        stale = {name: key for name, key in keys.items() if not tables.is_current(_item(name, split), key)}
        methods |= {name: load(states.path(name)) for name in stale if name not in methods}
        # The run's own regions first, then those of each pass: each folder is read once.
        for folder in dict.fromkeys(kept[name][1].folder for name in stale):
            of_folder = {name: key for name, key in stale.items() if kept[name][1].folder == folder}
            _score_split(RegionsFolder(folder / split), methods, tables, of_folder, done.failed)
        done.scored += [f"{name}/{split}" for name in stale if name not in done.failed]
        kept = {name: of for name, of in kept.items() if name not in done.failed}
    tables.keep_only(items)
    return done


def _item(entry: str, split: str) -> str:
    return f"{entry}/{split}.parquet"


def _source(entry: MethodEntry, run: RunRegions) -> RunRegions:
    """What an entry scores; a run without splits where it has no such pass, which `fit_entry` says."""
    try:
        return run.on(entry)
    except FitError:
        return replace(run, folder=run.folder / f".no-{entry.pass_name}")


def _fit_key(entry: MethodEntry, run: RunRegions, code: str) -> str:
    choice = entry.search or entry.oracle
    settings, methods = run.settings, [METHODS.get(name) for name in entry.methods]
    tables = [run.truth] if run.truth is not None and run.truth.exists() else []
    if settings.labels == "annotated" and any(method.annotation != "unused" for method in methods):
        tables += [run.objects]
    ood_split = choice.ood_split if choice else entry.create().wants_split
    splits = (settings.calibration_split, *([ood_split] if ood_split else []))
    tested = sorted(run.test_splits) if ood_split and not entry.oracle else []
    said = json.dumps([asdict(entry), asdict(settings), run.operating, tested], sort_keys=True)
    passes = any(method.learn_pass is not Method.learn_pass for method in methods)
    return digest(code, said, run.fit_digest(passes=passes), *(run.digests.get(split, "") for split in splits), *tables)


def _in_extension(error: Exception) -> str:
    """Where and why an extension failed, which ends nothing but its own method; other errors are raised."""
    if (found := extensions.failure(error)) is None:
        raise error
    return found


def _score_split(
    regions: RegionsFolder,
    methods: Mapping[str, Method],
    tables: Keyed,
    stale: Mapping[str, str],
    failed: dict[str, str],
) -> None:
    """Scores a split by all entries that score it again, under new keys; those whose extension fails go to `failed`."""
    while left := {name: key for name, key in stale.items() if name not in failed}:
        try:
            return _score_all(regions, methods, tables, left)
        except _MethodError as error:
            failed[error.entry] = error.text
    return None


class _MethodError(Exception):
    def __init__(self, entry: str, text: str):
        super().__init__(text)
        self.entry, self.text = entry, text


def _score(entry: str, method: Method, part: Regions) -> np.ndarray:
    try:
        return method.score(part)
    except DataError:
        raise
    except Exception as error:
        raise _MethodError(entry, _in_extension(error)) from error


def _score_all(regions: RegionsFolder, methods: Mapping[str, Method], tables: Keyed, stale: Mapping[str, str]) -> None:
    """Reads the regions of a split once for all entries."""
    columns = sorted({column for name in stale for column in methods[name].columns})
    schema = Scores.empty().frame.to_arrow().schema
    with ExitStack() as stack:
        writers = {}
        for name, key in stale.items():
            path = stack.enter_context(tables.make(_item(name, regions.path.name), key))
            writers[name] = stack.enter_context(
                pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)
            )
        title = f"{regions.path.parent.name} {regions.path.name}"
        progress = stack.enter_context(tqdm(total=len(regions), desc=title, unit="region", disable=None))
        for batch in regions.batches(columns):
            # A score depends on its own row alone. All cores are busy to the end when each method is shared among them.
            parts = _parts(batch)
            each = [(name, methods[name], part) for name in stale for part in parts]
            try:
                scores = in_threads(lambda of: _score(*of), each)
            except DataError as error:
                raise error.within(regions.path) from None
            for number, name in enumerate(stale):
                score = np.concatenate(scores[number * len(parts) : (number + 1) * len(parts)])
                found = Scores(image_id=batch.image_id, region_id=batch.region_id, score=score)
                writers[name].write_table(found.frame.to_arrow().cast(schema), row_group_size=ROW_GROUP)
            progress.update(len(batch))


def _parts(batch: Regions) -> list[Regions]:
    """The rows in as many parts as there are cores, fewer where parts would have less than `PART` rows."""
    count = max(1, min(count_cores(), len(batch) // PART))
    ends = [len(batch) * k // count for k in range(count + 1)]
    return [batch[first:end] for first, end in pairwise(ends)]
