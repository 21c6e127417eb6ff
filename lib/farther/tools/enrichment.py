"""Finds candidates for a benchmark's OOD splits in larger pools of images; reviewers decide on them before use.

FMIYC (Section 4.1, Appendix B) added images to its near and far splits: candidates without a labelled ID category and
with a labelled near or far one, each reviewed by people. It does not specify their order; here categories with the
fewest images in the splits come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass as plain
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
import polars as pl
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from farther.curation.candidates import Candidate
from farther.curation.decisions import Decisions, DecisionsFile, ImageKey
from farther.curation.parameters import Benchmark, Distance, OodSplit
from farther.curation.rules import Rules
from farther.curation.sources import LabelledImages, Tables
from farther.curation.splits import RuledSource, by_rules, id_split
from farther.errors import ParameterError
from farther.registry import STRICT, build
from farther.tables.files import digest

#: Default folder of the files of candidates.
CANDIDATES = Path("data/candidates")

#: Kinds of rules (None: no rule) of the categories that make an image a candidate for a distance.
KINDS: Mapping[Distance, tuple[str | None, ...]] = {"near": ("near",), "far": (None,), "farther": ("near", None)}


@dataclass(config=STRICT, kw_only=True)
class Pool:
    """A subset of a dataset to search.

    Args:
        dataset, subset: The images.
        vocabulary: The rules file's name for the dataset's vocabulary; by default the name of the dataset.
    """

    dataset: str
    subset: str
    vocabulary: str | None = None


@dataclass(config=STRICT, kw_only=True)
class Enrichment:
    """Parameters of a search for candidates.

    Args:
        pools: The images to search.
        distances: Distances to find candidates for; all of the benchmark's when empty.
        categories: Candidates show one of these; when empty, any category that makes an image near or far.
        per_class: Largest number of candidates per category.
        most: Largest number of candidates per distance.
        duplicate: Least cosine between the embeddings of an image and of an image of the benchmark's splits, of the ID
            dataset or of an earlier candidate at which the image counts as a duplicate and is left out.
        file: The file of candidates; `data/candidates/<benchmark>.csv` when None.
    """

    pools: Annotated[list[Pool], Field(min_length=1)]
    distances: tuple[Distance, ...] = ()
    categories: tuple[str, ...] = ()
    per_class: PositiveInt = 50
    most: PositiveInt = 500
    duplicate: Annotated[float, Field(ge=-1, le=1)] = 0.98
    file: Path | None = None


class Looks(Protocol):
    """Embeddings of images; see `farther.similarity.Lookalikes`."""

    def compare(self, dataset: str, subset: str, image_id: str) -> tuple[str, float, str] | None:
        """The most similar ID image, its cosine, and the known image it duplicates ("" for none).

        None for an image without an embedding.
        """

    def take(self, dataset: str, subset: str, image_id: str) -> None:
        """Adds the image to those that must not be duplicated."""


class Need(NamedTuple):
    """Number of images of a category (in lower case) in the splits of a distance, `before` a search and `new` ones.

    Accepted candidates count as `before`; splits that keep known objects do not count.
    """

    distance: str
    category: str
    before: int
    new: int


@plain(frozen=True)
class Found:
    """Result of a search.

    Args:
        candidates: Images with decisions, sorted, then the new ones in the order of choice.
        counts: Numbers of images: in the `pool`; `qualified` by their labels; of these left out, as far as the search
            got, because they are `present` in the benchmark, or as `copies` (near-duplicates included) of an image
            there or of an earlier candidate; `decided` on before; `new` candidates.
        needs: One row per distance and category.
    """

    candidates: list[Candidate]
    counts: dict[str, int]
    needs: list[Need]


def enrichment(name: str, params: Mapping[str, Any]) -> Enrichment:
    """Checked parameters of the search for benchmark `name`.

    Raises:
        ParameterError: a parameter is unknown or has an invalid value.
    """
    what = f"enrich {name!r}"
    pools = params.get("pools")
    if isinstance(pools, Sequence) and all(isinstance(pool, Mapping) for pool in pools):
        params = {**params, "pools": [build(Pool, f"{what}: pools[{n}]", dict(pool)) for n, pool in enumerate(pools)]}
    found = build(Enrichment, what, dict(params))
    return replace(found, file=found.file or CANDIDATES / f"{name}.csv")


def present(benchmark: Benchmark, tables: Tables) -> dict[str, LabelledImages]:
    """The images of a benchmark, except those from a file of candidates.

    Returns:
        OOD splits by name, and complete subsets of the ID dataset by the names of the ID splits.

    Raises:
        ParameterError: a dataset, subset or vocabulary is unknown.
        DataError: a table or a file is damaged.
    """
    splits = {name: split for name, split in benchmark.splits.items() if split.candidates is None}
    whole, decisions = replace(benchmark, most={}, splits=splits), _decisions(benchmark)
    found = {name: id_split(whole, name, tables) for name in benchmark.subsets}
    for ruled in by_rules(whole, tables, Rules(benchmark.rules, benchmark.protocol)).values():
        fates, _ = ruled.decided(decisions)
        for name, split in ruled.splits.items():
            found[name] = ruled.source.select(fates.fate == split.distance)
    return found


def find(
    params: Enrichment,
    benchmark: Benchmark,
    tables: Tables,
    splits: Mapping[str, LabelledImages],
    looks: Looks | None = None,
) -> Found:
    """Chooses candidates one at a time, each from the category with the fewest images so far.

    An image qualifies when the benchmark's rules give it a wanted distance: no ID class and no overlap is labelled.
    Images of a category are ordered by the digests of their names, which is arbitrary but reproducible. Images with
    decisions stay listed whatever their fate, so that the decisions remain valid.

    Args:
        tables: The benchmark's datasets and the pools.
        splits: Images of the benchmark (see `present`).
        looks: Embeddings; without them only equal files count as duplicates.

    Raises:
        ParameterError: a dataset, subset, vocabulary or category is unknown, the distances cannot be combined, or the
            benchmark already draws from a pool.
        DataError: a table or a file is damaged.
    """
    distances = params.distances or tuple(dict.fromkeys(split.distance for split in benchmark.splits.values()))
    if len(set(distances)) > 1 and "farther" in distances:
        problem = "'farther' includes near and far images, so it cannot be combined"
        raise ParameterError(f"distances {', '.join(distances)}: {problem}")
    rules, decisions = Rules(benchmark.rules, benchmark.protocol), _decisions(benchmark)
    searches = [_Search(params, distance, splits, benchmark) for distance in distances]
    seen = _Seen(splits, looks)
    decided: list[Candidate] = []
    pools = _as_splits(params, benchmark, distances[0])
    wanted = _wanted(params, distances, pools, tables, rules)
    counts = dict.fromkeys(("pool", "qualified", "present", "copies", "decided", "new"), 0)
    for (dataset, subset), ruled in by_rules(replace(benchmark, splits=pools), tables, rules).items():
        counts["pool"] += len(ruled.source.images)
        decided += _decided(ruled, decisions, searches, seen)
        for search in searches:
            search.add(ruled, decisions.images(), wanted[search.distance, f"{dataset} {subset}"])
    chosen = [candidate for search in searches for candidate in search.run(seen)]
    counts |= {"qualified": sum(len(search.qualified) for search in searches), "present": seen.present}
    counts |= {"copies": seen.copies, "decided": len(decided), "new": len(chosen)}
    needs = [need for search in searches for need in search.needs()]
    return Found([*sorted(decided), *chosen], counts, needs)


def images_by_subset(benchmark: Benchmark, splits: Mapping[str, LabelledImages]) -> dict[tuple[str, str], set[str]]:
    """Dataset and subset → the images of OOD splits drawn from it."""
    found: dict[tuple[str, str], set[str]] = {}
    for name, split in benchmark.splits.items():
        if name in splits:
            found.setdefault((split.dataset, split.subset), set()).update(splits[name].images.image_id)
    return found


def describe(found: Found) -> str:
    """Text about the result of a search, with one line per category with new candidates."""
    counts = found.counts
    lines = [
        f"{counts['pool']:,} images in the pools, {counts['qualified']:,} qualify; left out: "
        f"{counts['present']:,} that are in the benchmark, {counts['copies']:,} duplicates",
        f"{counts['new']:,} new candidates, {counts['decided']:,} with earlier decisions",
    ]
    rows = sorted((need for need in found.needs if need.new), key=lambda need: (need.distance, need.before))
    return "\n".join(lines + [f"  {d:8}{category:28}{before:6,} + {new:,}" for d, category, before, new in rows])


class _Seen:
    """Images that no candidate may duplicate, with counts of those refused as `present` or as `copies`."""

    def __init__(self, splits: Mapping[str, LabelledImages], looks: Looks | None):
        self._names = {pair for s in splits.values() for pair in zip(s.images.dataset, s.images.image_id, strict=True)}
        self._digests = {one for source in splits.values() for one in source.images.digest}
        self._looks = looks
        self.present = self.copies = 0

    def take(self, key: ImageKey, file_digest: str) -> None:
        """Adds an image."""
        self._digests.add(file_digest)
        if self._looks is not None:
            self._looks.take(*key)

    def neighbour(self, key: ImageKey, file_digest: str) -> tuple[str, float | None] | None:
        """Most similar ID image and its cosine ("" and None without embeddings); None to refuse the image."""
        if (key.dataset, key.image_id) in self._names:
            self.present += 1
            return None
        looked = None if self._looks is None else self._looks.compare(*key)
        name, cosine, repeats = looked or ("", None, "")
        if repeats or file_digest in self._digests:
            self.copies += 1
            return None
        return name, cosine


class _Search:
    """The search for candidates of one distance.

    Attributes:
        qualified: Image → digest of its file, and its wanted categories: in lower case → as written.
    """

    def __init__(
        self, params: Enrichment, distance: Distance, splits: Mapping[str, LabelledImages], benchmark: Benchmark
    ):
        self.distance = distance
        self._params = params
        self.qualified: dict[ImageKey, tuple[str, dict[str, str]]] = {}
        self._shown = Counter[str]()
        for name, split in benchmark.splits.items():
            # Pasted objects do not count as images of their categories.
            if name in splits and split.distance == distance and split.known == "remove":
                for names in _shown(splits[name]).values():
                    self.count(names)
        self._new = Counter[str]()

    def count(self, names: set[str]) -> None:
        """Counts an image of the splits with these categories."""
        self._shown.update({name.casefold() for name in names})

    def add(self, ruled: RuledSource, decided: Container[ImageKey], wanted: Container[str]) -> None:
        """Adds the qualifying images of a pool."""
        shown, fates = _shown(ruled.source, wanted), ruled.fates
        for row in np.flatnonzero(fates.fate == self.distance).tolist():
            key = ImageKey(fates.dataset[row], fates.subset[row], fates.image_id[row])
            if row in shown and key not in decided:
                names = {name.casefold(): name for name in sorted(shown[row])}
                self.qualified[key] = ruled.source.images.digest[row], names

    def run(self, seen: _Seen) -> list[Candidate]:
        """Chooses candidates until there are enough or none is left."""
        queues: dict[str, list[ImageKey]] = {}  # the first image to choose is last
        for key in sorted(self.qualified, key=lambda key: digest(*key), reverse=True):
            for name in self.qualified[key][1]:
                queues.setdefault(name, []).append(key)
        chosen, chosen_for, looked_at = list[Candidate](), Counter[str](), set[ImageKey]()
        while len(chosen) < self._params.most:
            open_for = [name for name in queues if queues[name] and chosen_for[name] < self._params.per_class]
            if not open_for:
                break
            category = min(open_for, key=lambda name: (self._shown[name] + self._new[name], name))
            key = queues[category].pop()
            if key in looked_at:
                continue
            looked_at.add(key)
            file_digest, names = self.qualified[key]
            neighbour = seen.neighbour(key, file_digest)
            if neighbour is not None:
                shown = self._shown[category] + self._new[category]
                chosen.append(Candidate(*key, self.distance, names[category], shown, *neighbour))
                chosen_for[category] += 1
                self._new.update(names.keys())
                seen.take(key, file_digest)
        return chosen

    def needs(self) -> list[Need]:
        """One row per category of the qualified images."""
        names = {name for _, by_name in self.qualified.values() for name in by_name}
        return [Need(self.distance, name, self._shown[name], self._new[name]) for name in sorted(names)]


def _decided(ruled: RuledSource, decisions: Decisions, searches: Sequence[_Search], seen: _Seen) -> list[Candidate]:
    """Rows for images of a pool with decisions; accepted ones count as images of the splits."""
    touched = decisions.images()
    settled, _ = ruled.decided(decisions)
    shown, rows = _shown(ruled.source) if touched else {}, []
    for row, image_id in enumerate(settled.image_id):
        key = ImageKey(settled.dataset[row], settled.subset[row], image_id)
        if key in touched:
            rows.append(Candidate(*key, ruled.fates.fate[row], "", 0))
            seen.take(key, ruled.source.images.digest[row])
            for search in searches:
                if settled.decided_by[row] and settled.fate[row] == search.distance:
                    search.count(shown.get(row, set()))
    return rows


def _as_splits(params: Enrichment, benchmark: Benchmark, distance: Distance) -> dict[str, OodSplit]:
    """The pools as splits to apply rules to; ParameterError if a split already draws from a pool."""
    drawn = {(one.dataset, one.subset): name for name, one in benchmark.splits.items() if one.candidates is None}
    splits = {}
    for pool in params.pools:
        name, source = f"{pool.dataset} {pool.subset}", (pool.dataset, pool.subset)
        if source in drawn:
            raise ParameterError(f"split {drawn[source]!r} already draws from all of {name}: choose another pool")
        splits[name] = OodSplit(dataset=pool.dataset, subset=pool.subset, vocabulary=pool.vocabulary, distance=distance)
    return splits


def _wanted(
    params: Enrichment, distances: Sequence[Distance], pools: Mapping[str, OodSplit], tables: Tables, rules: Rules
) -> dict[tuple[Distance, str], set[str]]:
    """Categories that make an image a candidate, by distance and pool."""
    found: dict[tuple[Distance, str], set[str]] = {}
    for pool, split in pools.items():
        categories = tables.categories(split.dataset)
        deciding = rules.by_category(split.vocabulary or split.dataset, categories)
        kinds = {name: rule.kind if (rule := deciding.get(name)) else None for name in categories.names}
        for distance in distances:
            found[distance, pool] = {name for name, kind in kinds.items() if kind in KINDS[distance]}
    known = {name for names in found.values() for name in names}
    for name in params.categories:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ParameterError(f"category {name!r} makes no image of the pools a candidate. Known: {names}")
    return {key: names & set(params.categories or names) for key, names in found.items()}


def _shown(source: LabelledImages, wanted: Container[str] | None = None) -> dict[int, set[str]]:
    """Row of each image → the categories of its single objects, among those wanted."""
    frame = pl.DataFrame({"row": source.image_row, "category": source.objects.category.tolist()})
    single = frame.filter(pl.Series(~source.objects.is_crowd)).unique()
    shown: dict[int, set[str]] = {}
    for row, category in single.iter_rows():
        if wanted is None or category in wanted:
            shown.setdefault(row, set()).add(category)
    return shown


def _decisions(benchmark: Benchmark) -> Decisions:
    return Decisions() if benchmark.decisions is None else DecisionsFile(benchmark.decisions).read()
