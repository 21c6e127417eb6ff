"""Finds candidates for a benchmark's OOD splits in larger pools of images; people review them before they enter.

FMIYC (Section 4.1, Appendix B) added images to its near and far splits: candidates without any labelled ID category and
with a labelled near or far one, each then looked at by people. Which candidates come first it does not say; here it is
those that show the categories of which the splits have the fewest images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass as plain
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from farther.curation.candidates import Candidate
from farther.curation.decisions import Decisions, DecisionsFile, ImageKey
from farther.curation.parameters import Benchmark, Distance, Split
from farther.curation.rules import Rules
from farther.curation.sources import Source, Tables
from farther.curation.splits import RuledSource, by_rules, id_split
from farther.errors import ParameterError
from farther.registry import STRICT, build
from farther.tables.files import digest

#: Where the candidates for a benchmark are kept when its parameters do not say.
CANDIDATES = Path("data/candidates")

#: Kinds of rules, None for no rule, on the categories that make an image a candidate of a distance.
KINDS: Mapping[Distance, tuple[str | None, ...]] = {"near": ("near",), "far": (None,), "farther": ("near", None)}


@dataclass(config=STRICT, kw_only=True)
class Pool:
    """Images to choose from.

    Args:
        dataset, subset: Which.
        vocabulary: Which names of the rules file the dataset uses; the dataset's own name by default.
    """

    dataset: str
    subset: str
    vocabulary: str | None = None


@dataclass(config=STRICT, kw_only=True)
class Enrichment:
    """What candidates are sought for a benchmark.

    Args:
        pools: Where.
        distances: For splits of which distances; those that the benchmark has when empty.
        categories: Only images that show one of these; when empty, any category that makes an image near or far.
        per_class: At most so many candidates are chosen for a category.
        most: At most so many candidates are chosen for a distance.
        duplicate: An image is left out when its embedding's cosine to that of an image of the benchmark's splits, of
            the ID dataset or of an earlier candidate is at least this.
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
    """What images look like; see `farther.similarity.Lookalikes`."""

    def look(self, dataset: str, subset: str, image_id: str) -> tuple[str, float, str] | None:
        """The most similar ID image, its cosine, and which known image it repeats ("" for none).

        None for an image that has no embedding.
        """

    def take(self, dataset: str, subset: str, image_id: str) -> None:
        """From now on the image is one of those that are not to be repeated."""


class Need(NamedTuple):
    """What a search did for a category.

    Args:
        distance: Of the splits.
        category: The category, in lower case.
        before: Images that show it in the splits of that distance, with the candidates that people let in; splits that
            keep known objects do not count.
        new: New candidates that show it.
    """

    distance: str
    category: str
    before: int
    new: int


@plain(frozen=True)
class Found:
    """What came of a search.

    Args:
        candidates: Images that people decided on already, sorted, then the new ones in the order of choice.
        counts: How many images: in the `pool`; of them `qualified` by what is labelled; of these left out, as far as
            the search got, because they are `present` in the benchmark, or as `copies` (near-duplicates included) of an
            image there or of an earlier candidate; `decided` on before; `new` candidates.
        needs: One row a category.
    """

    candidates: list[Candidate]
    counts: dict[str, int]
    needs: list[Need]


def enrichment(name: str, params: Mapping[str, Any]) -> Enrichment:
    """The search for the benchmark called `name`, its parameters checked.

    Raises:
        ParameterError: a parameter is unknown or has a wrong value.
    """
    what = f"enrich {name!r}"
    pools = params.get("pools")
    if isinstance(pools, Sequence) and all(isinstance(pool, Mapping) for pool in pools):
        params = {**params, "pools": [build(Pool, f"{what}: pools[{n}]", dict(pool)) for n, pool in enumerate(pools)]}
    made = build(Enrichment, what, dict(params))
    return replace(made, file=made.file or CANDIDATES / f"{name}.csv")


def present(made: Benchmark, tables: Tables) -> dict[str, Source]:
    """The images that a benchmark has, but for those that come from a file of candidates.

    Returns:
        The OOD splits by name; and the subsets of the ID dataset in full, by the names of the ID splits.

    Raises:
        ParameterError: a dataset, subset or vocabulary is unknown.
        DataError: a table or a file is damaged.
    """
    splits = {name: split for name, split in made.splits.items() if split.candidates is None}
    whole, decisions = replace(made, most={}, splits=splits), _decisions(made)
    found = {name: id_split(whole, name, tables) for name in made.subsets}
    for ruled in by_rules(whole, tables, Rules(made.rules, made.protocol)).values():
        fates, _ = ruled.decided(decisions)
        for name, split in ruled.splits.items():
            found[name] = ruled.source.select(fates.fate == split.distance)
    return found


def find(
    params: Enrichment, made: Benchmark, tables: Tables, splits: Mapping[str, Source], looks: Looks | None = None
) -> Found:
    """Chooses candidates: always the next image of the category that the fewest images show so far.

    An image qualifies when the benchmark's rules give it a wanted distance: no ID class and no overlap is labelled. Of
    a category, images come in the order of their names' digests: as good as any, and always the same. Images that
    people decided on stay listed, whatever became of them, so that their decisions keep something to stand on.

    Args:
        params: What is sought.
        made: The benchmark.
        tables: Its datasets and the pools.
        splits: What the benchmark has (see `present`).
        looks: Embeddings; without them only equal files are known to repeat each other.

    Raises:
        ParameterError: a dataset, subset, vocabulary or category is unknown, the distances do not go together, or the
            benchmark draws from a pool already.
        DataError: a table or a file is damaged.
    """
    _refuse_drawn_from(params, made)
    distances = params.distances or tuple(dict.fromkeys(split.distance for split in made.splits.values()))
    if len(set(distances)) > 1 and "farther" in distances:
        raise ParameterError(f"distances {', '.join(distances)}: 'farther' takes near and far images, so it goes alone")
    rules, decisions = Rules(made.rules, made.protocol), _decisions(made)
    searches = [_Search(params, distance, splits, made) for distance in distances]
    seen = _Seen(splits, looks)
    decided: list[Candidate] = []
    pools = _as_splits(params, distances)
    wanted = _wanted(params, distances, pools, tables, rules)
    counts = dict.fromkeys(("pool", "qualified", "present", "copies", "decided", "new"), 0)
    for (dataset, subset), ruled in by_rules(replace(made, splits=pools), tables, rules).items():
        counts["pool"] += len(ruled.source.images)
        decided += _decided(ruled, decisions, searches, seen)
        for search in searches:
            search.add(ruled, decisions.images(), wanted[search.distance, f"{dataset} {subset}"])
    chosen = [candidate for search in searches for candidate in search.run(seen)]
    counts |= {"qualified": sum(len(search.qualified) for search in searches), "present": seen.present}
    counts |= {"copies": seen.copies, "decided": len(decided), "new": len(chosen)}
    needs = [need for search in searches for need in search.needs()]
    return Found([*sorted(decided), *chosen], counts, needs)


def images_by_subset(made: Benchmark, splits: Mapping[str, Source]) -> dict[tuple[str, str], set[str]]:
    """Dataset and subset → the images of OOD splits that were drawn from it."""
    found: dict[tuple[str, str], set[str]] = {}
    for name, split in made.splits.items():
        if name in splits:
            found.setdefault((split.dataset, split.subset), set()).update(splits[name].images.image_id)
    return found


def describe(found: Found) -> str:
    """Says in words what came of a search, with a line for each category that got a candidate."""
    counts = found.counts
    lines = [
        f"{counts['pool']:,} images in the pools, {counts['qualified']:,} qualify; left out of those looked at: "
        f"{counts['present']:,} that the benchmark has, {counts['copies']:,} that repeat an image",
        f"{counts['new']:,} new candidates, {counts['decided']:,} that people decided on before",
    ]
    rows = sorted((need for need in found.needs if need.new), key=lambda need: (need.distance, need.before))
    return "\n".join(lines + [f"  {d:8}{category:28}{before:6,} + {new:,}" for d, category, before, new in rows])


class _Seen:
    """Images that no candidate may be, or look like.

    Args:
        splits: What the benchmark has.
        looks: Embeddings.

    Attributes:
        present, copies: How many images were refused because they are there, or because they repeat one.
    """

    def __init__(self, splits: Mapping[str, Source], looks: Looks | None):
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
        """The ID image most like an image, and their cosine ("" and None without embeddings); None to refuse it."""
        if (key.dataset, key.image_id) in self._names:
            self.present += 1
            return None
        looked = None if self._looks is None else self._looks.look(*key)
        name, cosine, repeats = looked or ("", None, "")
        if repeats or file_digest in self._digests:
            self.copies += 1
            return None
        return name, cosine


class _Search:
    """The search for candidates of one distance.

    Args:
        params: What is sought.
        distance: The distance.
        splits: What the benchmark has.
        made: The benchmark.

    Attributes:
        qualified: Image → digest of its file, and the wanted categories that it shows: in lower case → as written.
    """

    def __init__(self, params: Enrichment, distance: Distance, splits: Mapping[str, Source], made: Benchmark):
        self.distance = distance
        self._params = params
        self.qualified: dict[ImageKey, tuple[str, dict[str, str]]] = {}
        self._shown = Counter[str]()
        for name, split in made.splits.items():
            # Objects that were pasted in make no category less rare.
            if name in splits and split.distance == distance and split.known == "remove":
                for names in _shown(splits[name]).values():
                    self.count(names)
        self._new = Counter[str]()

    def count(self, names: set[str]) -> None:
        """Counts an image of the splits that shows these categories."""
        self._shown.update({name.casefold() for name in names})

    def add(self, ruled: RuledSource, decided: Container[ImageKey], wanted: Container[str]) -> None:
        """Takes in what qualifies of a pool."""
        shown, fates = _shown(ruled.source, wanted), ruled.fates
        for row in np.flatnonzero(fates.fate == self.distance).tolist():
            key = ImageKey(fates.dataset[row], fates.subset[row], fates.image_id[row])
            if row in shown and key not in decided:
                names = {name.casefold(): name for name in sorted(shown[row])}
                self.qualified[key] = ruled.source.images.digest[row], names

    def run(self, seen: _Seen) -> list[Candidate]:
        """Chooses, until nothing is left or there are enough."""
        queues = self._queues()
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
        """One row a category that an image of the pools shows."""
        names = {name for _, by_name in self.qualified.values() for name in by_name}
        return [Need(self.distance, name, self._shown[name], self._new[name]) for name in sorted(names)]

    def _queues(self) -> dict[str, list[ImageKey]]:
        """The images of each category, the one to be chosen first at the end."""
        queues: dict[str, list[ImageKey]] = {}
        for key in sorted(self.qualified, key=lambda key: digest(*key), reverse=True):
            for name in self.qualified[key][1]:
                queues.setdefault(name, []).append(key)
        return queues


def _decided(ruled: RuledSource, decisions: Decisions, searches: Sequence[_Search], seen: _Seen) -> list[Candidate]:
    """The rows for images of a pool that people decided on; those that they let in count as images of the splits."""
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


def _refuse_drawn_from(params: Enrichment, made: Benchmark) -> None:
    """Refuses a pool all of whose images the benchmark sorts already."""
    drawn = {(split.dataset, split.subset): name for name, split in made.splits.items() if split.candidates is None}
    for pool in params.pools:
        if (pool.dataset, pool.subset) in drawn:
            split = drawn[pool.dataset, pool.subset]
            problem = f"split {split!r} draws from all of {pool.dataset} {pool.subset} already: choose another pool"
            raise ParameterError(problem)


def _as_splits(params: Enrichment, distances: Sequence[Distance]) -> dict[str, Split]:
    """The pools as splits that rules can be applied to."""
    return {
        f"{pool.dataset} {pool.subset}": Split(
            dataset=pool.dataset, subset=pool.subset, vocabulary=pool.vocabulary, distance=distances[0]
        )
        for pool in params.pools
    }


def _wanted(
    params: Enrichment, distances: Sequence[Distance], pools: Mapping[str, Split], tables: Tables, rules: Rules
) -> dict[tuple[Distance, str], set[str]]:
    """The categories that make an image a candidate, by distance and pool.

    Raises:
        ParameterError: a category is asked for that no pool has, or that makes no image near or far.
    """
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
            there = ", ".join(sorted(known)) or "none"
            raise ParameterError(f"category {name!r} makes no image of the pools a candidate. Known: {there}")
    return {key: names & set(params.categories or names) for key, names in found.items()}


def _shown(source: Source, wanted: Container[str] | None = None) -> dict[int, set[str]]:
    """Row of each image → the categories of single objects that it shows, of those that are wanted."""
    objects = source.objects
    encoded = pa.array(objects.category, pa.string()).dictionary_encode()
    words, code = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    asked = np.array([wanted is None or word in wanted for word in words], dtype=bool)
    rows = np.flatnonzero(~objects.is_crowd & asked[code])
    shown: dict[int, set[str]] = {}
    for pair in np.unique(source.image_row[rows].astype(np.int64) * max(len(words), 1) + code[rows]).tolist():
        row, number = divmod(pair, len(words))
        shown.setdefault(row, set()).add(words[number])
    return shown


def _decisions(made: Benchmark) -> Decisions:
    return Decisions() if made.decisions is None else DecisionsFile(made.decisions).read()
