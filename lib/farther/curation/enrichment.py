"""Search for candidates for a benchmark's OOD splits in larger pools of images.

Reviewers decide on the candidates before use.

FMIYC (Section 4.1, Appendix B) added images to its near and far splits: candidates without a
labelled ID category and with a labelled near or far one, each reviewed by people. It does not
specify their order; here categories with the fewest images in the splits come first.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, Protocol

import polars as pl
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from farther.curation.candidates import CANDIDATES as COLUMNS
from farther.curation.decisions import IMAGE, DecisionsFile, ReviewDecisions
from farther.curation.parameters import Benchmark, OodSplit, RuledImages
from farther.curation.rules import Rules, read_rules
from farther.curation.sources import LabelledImages, TablesFolder
from farther.curation.splits import RuledSource, fates_by_rules, id_split
from farther.errors import ParameterError, known_names
from farther.naming.registry import STRICT, Parameters, build
from farther.tables.files import digest
from farther.terms import OodDistance

#: Kinds of rules (None: no rule) of the categories that make an image a candidate for a distance.
KINDS: Mapping[OodDistance, tuple[str | None, ...]] = {
    "near": ("near",),
    "far": (None,),
    "farther": ("near", None),
}

#: Columns of a table of the categories that make an image a candidate.
_SEARCH_CATEGORIES = dict.fromkeys(("distance", "dataset", "subset", "category"), pl.String)


@dataclass(config=STRICT, kw_only=True)
class Enrichment(Parameters):
    """Candidates for a benchmark's OOD splits from larger pools, for reviewers to decide on.

    Args:
        pools: The images to search, as a benchmark's splits name theirs.
        distances: Distances to find candidates for; all of the benchmark's when empty.
        categories: Candidates show one of these; when empty, any category that makes an image near
            or far.
        per_class: Largest number of candidates per category that reviewers have not refused.
        most: Largest number of candidates per distance that reviewers have not refused.
        duplicate: Least cosine between the embeddings of an image and of an image of the
            benchmark's splits, of the ID dataset or of an earlier candidate at which the image
            counts as a duplicate and is left out.
    """

    pools: Annotated[list[RuledImages], Field(min_length=1)]
    distances: tuple[OodDistance, ...] = ()
    categories: tuple[str, ...] = ()
    per_class: PositiveInt = 50
    most: PositiveInt = 500
    duplicate: Annotated[float, Field(ge=-1, le=1)] = 0.98


class DuplicateIndex(Protocol):
    """Embeddings of images; see `farther.similarity.Lookalikes`."""

    def compare(self, dataset: str, subset: str, image_id: str) -> tuple[str, float, str] | None:
        """The most similar ID image, its cosine, and the known image it duplicates ("" for none).

        None for an image without an embedding.
        """

    def take(self, dataset: str, subset: str, image_id: str) -> None:
        """Adds the image to those that must not be duplicated."""


#: Number of images of a category (in lower case) in the splits of a distance, `before` a search and
#: `new` ones; splits that keep known objects do not count.
NEEDS = pl.Schema(
    {"distance": pl.String, "category": pl.String, "before": pl.Int64, "new": pl.Int64}
)


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Args:
        candidates: Frame of `farther.curation.candidates.CANDIDATES`: the candidates in the order
            of choice, then, sorted, other images that reviewers decided on.
        counts: Numbers of images. `pool`: all; `qualified`: by their labels; `present`: qualified
            images that the search left out because the benchmark has them; `copies`: those left out
            as duplicates or near-duplicates of an image there or of an earlier candidate;
            `decided`: on by reviewers; `accepted`: by reviewers; `candidates`: open or accepted.
        needs: Frame of `NEEDS`, one row per distance and category.
    """

    candidates: pl.DataFrame
    counts: dict[str, int]
    needs: pl.DataFrame


def enrichment(name: str, params: Mapping[str, Any]) -> Enrichment:
    """Checked parameters of the search for benchmark `name`.

    Raises:
        ParameterError: a parameter is unknown or has an invalid value.
    """
    return build(Enrichment, f"enrich {name!r}", dict(params))


def benchmark_images(benchmark: Benchmark, tables: TablesFolder) -> dict[str, LabelledImages]:
    """The images of each split of a benchmark, except those from a file of candidates.

    Raises:
        ParameterError: a dataset, subset or vocabulary is unknown.
        DataError: a table or a file is damaged.
    """
    splits = {name: split for name, split in benchmark.splits.items() if split.candidates is None}
    unlimited = replace(benchmark, most={}, splits=splits)
    decisions = _decisions(benchmark)
    rules = read_rules(benchmark)
    images_by_split = {name: id_split(unlimited, name, tables, rules) for name in benchmark.subsets}
    for ruled in fates_by_rules(unlimited, tables, rules).values():
        fates, _ = ruled.decided(decisions)
        for name, split in ruled.splits.items():
            images_by_split[name] = ruled.source.select(fates.fate == split.distance)
    return images_by_split


def find_candidates(
    params: Enrichment,
    benchmark: Benchmark,
    tables: TablesFolder,
    splits: Mapping[str, LabelledImages],
    duplicates: DuplicateIndex | None = None,
) -> SearchResult:
    """Chooses candidates one at a time, each from the category with the fewest images so far.

    An image qualifies when the benchmark's rules give it a wanted distance: no ID class and no
    overlap is labelled. Images of a category are ordered by the digests of their names, which is
    arbitrary but reproducible.

    Accepting a candidate does not change the choice. An image that reviewers refuse, or assign to
    another distance, gives its place to another. All images with decisions are listed, so that the
    decisions remain valid.

    Args:
        params: What to search, and for what.
        benchmark: The benchmark.
        tables: The ingested tables of its datasets and of the pools.
        splits: Its images, as `benchmark_images` gives them.
        duplicates: Embeddings to find near-duplicates by; None to find equal files only.

    Raises:
        ParameterError: a dataset, subset, vocabulary or category is unknown, the distances cannot
            be combined, or the benchmark already draws from a pool.
        DataError: a table or a file is damaged.
    """
    distances = _distances(params, benchmark)
    rules = read_rules(benchmark)
    pools = _as_splits(params, benchmark, distances[0])
    search_categories = _search_categories(params, distances, pools, tables, rules)
    decisions = _decisions(benchmark)
    known = _KnownImages(splits, duplicates)
    images_by_category = _images_by_category(benchmark, splits)

    searched = []
    for ruled in fates_by_rules(replace(benchmark, splits=pools), tables, rules).values():
        pool = _Pool.of(ruled, decisions, search_categories)
        searched.append(pool)
        known.take(pool.refused)
        images_by_category.update(pool.reassigned.select("name", "distance").iter_rows())

    candidates = []
    needs = []
    qualified = pl.concat([pool.qualified for pool in searched])
    for distance in distances:
        images = qualified.filter(distance=distance)
        before = {}
        for name in images["name"].unique().sort():
            before[name] = images_by_category[name, distance]
        counts = Counter(before)
        candidates += _choose(params, images, counts, known)
        for name, count in before.items():
            new = counts[name] - count
            needs.append({"distance": distance, "category": name, "before": count, "new": new})

    chosen = pl.DataFrame(candidates, schema=COLUMNS)
    decided = pl.concat([pool.decided for pool in searched])
    decided_only = decided.join(chosen, on=IMAGE, how="anti").sort(IMAGE)
    not_chosen = {
        "category": pl.lit(""),
        "shown": pl.lit(0, pl.Int64),
        "neighbour": pl.lit(""),
        "similarity": pl.lit(None, pl.Float64),
    }
    listed = pl.concat([chosen, decided_only.select(*IMAGE, "distance", **not_chosen)])
    result_counts = {
        "pool": sum(pool.size for pool in searched),
        "qualified": qualified.select(IMAGE).n_unique(),
        "present": known.present,
        "copies": known.copies,
        "decided": decided.height,
        "accepted": decided.filter("accepted").height,
        "candidates": chosen.height,
    }
    return SearchResult(listed, result_counts, pl.DataFrame(needs, schema=NEEDS))


def subsets_searched(entries: Mapping[str, Any]) -> dict[str, set[str]]:
    """Subsets of each dataset that the searches of the section `enrich` read: their pools.

    Raises:
        ParameterError: as for `enrichment`.
    """
    subsets: dict[str, set[str]] = {}
    for name, params in entries.items():
        for pool in enrichment(name, params or {}).pools:
            subsets.setdefault(pool.dataset, set()).add(pool.subset)
    return subsets


def images_by_subset(
    benchmark: Benchmark, splits: Mapping[str, LabelledImages]
) -> dict[tuple[str, str], set[str]]:
    """Dataset and subset → the images of OOD splits drawn from it."""
    images: dict[tuple[str, str], set[str]] = {}
    for name, split in benchmark.splits.items():
        if name in splits:
            images.setdefault(split.origin, set()).update(splits[name].images.image_id)
    return images


def describe(result: SearchResult) -> str:
    """Text about the result of a search, with one line per category that has candidates."""
    counts = result.counts
    lines = [
        f"{counts['pool']:,} images in the pools, {counts['qualified']:,} qualify; excluded: "
        f"{counts['present']:,} already in the benchmark, {counts['copies']:,} duplicates",
        f"{counts['candidates']:,} candidates; reviewers decided on {counts['decided']:,} images "
        f"and accepted {counts['accepted']:,}",
    ]
    with_candidates = result.needs.filter(pl.col("new") > 0)
    for row in with_candidates.sort("distance", "before", maintain_order=True).to_dicts():
        numbers = f"{row['before']:6,} + {row['new']:,}"
        lines.append(f"  {row['distance']:8}{row['category']:28}{numbers}")
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class _Pool:
    """The images of one pool.

    Args:
        size: Number of its images.
        decided: Images with a reviewer's decision: `IMAGE`, `distance` by the rules, `accepted`:
            most reviewers agree with the rules.
        refused: Decided images that are no longer candidates: `IMAGE` and `digest`.
        reassigned: Refused images that reviewers gave another distance: one row per image and
            category that it shows: `name` of the category, `distance`.
        qualified: One row per open or accepted image and category that makes it a candidate:
            `IMAGE`, `distance`, `digest`, `category`, and `name`: the category in lower case.
    """

    size: int
    decided: pl.DataFrame
    refused: pl.DataFrame
    reassigned: pl.DataFrame
    qualified: pl.DataFrame

    @classmethod
    def of(
        cls, ruled: RuledSource, decisions: ReviewDecisions, search_categories: pl.DataFrame
    ) -> _Pool:
        """The images of a source, sorted by what rules and reviewers say of them."""
        images = ruled.fates.frame.select(
            *IMAGE, distance="fate", digest=ruled.source.images.frame["digest"]
        )
        fates, _ = ruled.decided(decisions)
        by_reviewers = fates.frame.filter(pl.col("decided_by") != "")
        by_reviewers = by_reviewers.select(*IMAGE, decision="fate")

        touched = images.join(decisions.images(), on=IMAGE, how="semi", maintain_order="left")
        touched = touched.join(by_reviewers, on=IMAGE, how="left", maintain_order="left")
        agrees = pl.col("decision") == pl.col("distance")
        differing = touched.filter(~agrees.fill_null(value=True))
        image_categories = _image_categories(ruled.source)
        reassigned = differing.filter(pl.col("decision") != "removed")

        open_images = images.join(differing, on=IMAGE, how="anti", maintain_order="left")
        named = open_images.join(image_categories, on="image_id", maintain_order="left")
        return cls(
            size=images.height,
            decided=touched.select(*IMAGE, "distance", accepted=agrees.fill_null(value=False)),
            refused=differing.select(*IMAGE, "digest"),
            reassigned=reassigned.join(image_categories, on="image_id").select(
                "name", distance="decision"
            ),
            qualified=named.join(
                search_categories, on=list(_SEARCH_CATEGORIES), how="semi", maintain_order="left"
            ),
        )


class _KnownImages:
    """Images that no candidate may duplicate.

    Attributes:
        present: Number of images refused so far because the benchmark has them.
        copies: Number of those refused as duplicates.
    """

    def __init__(self, splits: Mapping[str, LabelledImages], duplicates: DuplicateIndex | None):
        self._names: set[tuple[str, str]] = set()
        self._digests: set[str] = set()
        for split in splits.values():
            self._names.update(zip(split.images.dataset, split.images.image_id, strict=True))
            self._digests.update(split.images.digest)
        self._duplicates = duplicates
        self.present = 0
        self.copies = 0

    def take(self, images: pl.DataFrame) -> None:
        """Adds images: the columns of `IMAGE`, and `digest`."""
        self._digests.update(images["digest"])
        if self._duplicates is None:
            return
        for dataset, subset, image_id in images.select(IMAGE).iter_rows():
            self._duplicates.take(dataset, subset, image_id)

    def neighbour(self, image: _Image) -> dict[str, Any] | None:
        """Most similar ID image and its cosine ("" and None without embeddings).

        Returns:
            None to refuse the image.
        """
        if (image.dataset, image.image_id) in self._names:
            self.present += 1
            return None
        if image.digest in self._digests:
            self.copies += 1
            return None
        compared = None
        if self._duplicates is not None:
            compared = self._duplicates.compare(image.dataset, image.subset, image.image_id)
        if compared is None:
            return {"neighbour": "", "similarity": None}
        name, cosine, duplicated = compared
        if duplicated:
            self.copies += 1
            return None
        return {"neighbour": name, "similarity": cosine}


@dataclasses.dataclass(slots=True)
class _Image:
    """An image that qualifies.

    Args:
        dataset, subset, image_id, distance, digest: The image.
        name: The categories that make it a candidate, in lower case.
        category: The same as the dataset writes them.
        is_considered: Whether it was chosen or refused.
    """

    dataset: str
    subset: str
    image_id: str
    distance: str
    digest: str
    name: list[str]
    category: list[str]
    is_considered: bool = field(default=False)

    @property
    def key(self) -> dict[str, str]:
        """Its columns of `IMAGE`."""
        return {"dataset": self.dataset, "subset": self.subset, "image_id": self.image_id}


def _choose(
    params: Enrichment, qualified: pl.DataFrame, counts: Counter[str], known: _KnownImages
) -> list[dict[str, Any]]:
    """Candidates of one distance, chosen one at a time until there are enough or none is left.

    Args:
        params: Largest numbers of them.
        qualified: See `_Pool`.
        counts: Number of images by category, in lower case; candidates are added.
        known: Images that no candidate may duplicate; candidates are added.
    """
    queues = _queues(qualified)
    candidates: list[dict[str, Any]] = []
    candidates_by_category = Counter[str]()
    while len(candidates) < params.most:
        waiting = []
        for name, queue in queues.items():
            if queue and candidates_by_category[name] < params.per_class:
                waiting.append(name)
        if not waiting:
            break
        rarest = min((counts[name], name) for name in waiting)[1]
        image = queues[rarest].popleft()
        if image.is_considered:
            continue
        image.is_considered = True
        neighbour = known.neighbour(image)
        if neighbour is None:
            continue
        category = image.category[image.name.index(rarest)]
        choice = {"distance": image.distance, "category": category, "shown": counts[rarest]}
        candidates.append({**image.key, **choice, **neighbour})
        candidates_by_category[rarest] += 1
        counts.update(image.name)
        known.take(pl.DataFrame([{**image.key, "digest": image.digest}]))
    return candidates


def _queues(qualified: pl.DataFrame) -> dict[str, deque[_Image]]:
    """The images of each category, in the order of the digests of their names.

    Args:
        qualified: See `_Pool`.
    """
    by_image = qualified.sort("name").group_by(*IMAGE, "distance", "digest", maintain_order=True)
    images = [_Image(**row) for row in by_image.agg("name", "category").iter_rows(named=True)]
    images.sort(key=_digest)
    queues: dict[str, deque[_Image]] = {}
    for name in qualified["name"].unique().sort():
        queues[name] = deque()
    for image in images:
        for name in image.name:
            queues[name].append(image)
    return queues


def _digest(image: _Image) -> str:
    return digest(*image.key.values())


def _distances(params: Enrichment, benchmark: Benchmark) -> tuple[OodDistance, ...]:
    """The distances to find candidates for; ParameterError if they cannot be combined."""
    distances = params.distances
    if not distances:
        all_distances = [split.distance for split in benchmark.splits.values()]
        distances = tuple(dict.fromkeys(all_distances))
    if len(set(distances)) > 1 and "farther" in distances:
        problem = "'farther' includes near and far images, so it cannot be combined"
        raise ParameterError(f"distances {', '.join(distances)}: {problem}")
    return distances


def _images_by_category(
    benchmark: Benchmark, splits: Mapping[str, LabelledImages]
) -> Counter[tuple[str, OodDistance]]:
    """Number of images of the benchmark's splits by category (in lower case) and distance."""
    counts = Counter[tuple[str, OodDistance]]()
    for name, split in benchmark.splits.items():
        # Pasted objects do not count as images of their categories.
        if name in splits and split.known == "remove":
            for category in _image_categories(splits[name])["name"]:
                counts[category, split.distance] += 1
    return counts


def _as_splits(
    params: Enrichment, benchmark: Benchmark, distance: OodDistance
) -> dict[str, OodSplit]:
    """The pools as splits to apply rules to; ParameterError if a split already draws from one."""
    split_by_origin = {}
    for name, split in benchmark.splits.items():
        if split.candidates is None:
            split_by_origin[split.origin] = name
    splits = {}
    for pool in params.pools:
        name = " ".join(pool.origin)
        if pool.origin in split_by_origin:
            drawing = split_by_origin[pool.origin]
            problem = f"split {drawing!r} already draws from all of {name}: choose another pool"
            raise ParameterError(problem)
        splits[name] = OodSplit(
            dataset=pool.dataset,
            subset=pool.subset,
            vocabulary=pool.vocabulary,
            distance=distance,
        )
    return splits


def _search_categories(
    params: Enrichment,
    distances: Sequence[OodDistance],
    pools: Mapping[str, OodSplit],
    tables: TablesFolder,
    rules: Rules,
) -> pl.DataFrame:
    """Categories that make an image a candidate: distance, dataset, subset, category."""
    rows: list[dict[str, str]] = []
    for split in pools.values():
        categories = tables.categories(split.dataset)
        rule_by_category = rules.by_category(split.names, categories)
        for category in categories.names:
            kind = None
            if category in rule_by_category:
                kind = rule_by_category[category].kind
            pool = {"dataset": split.dataset, "subset": split.subset, "category": category}
            matching = [distance for distance in distances if kind in KINDS[distance]]
            rows.extend({"distance": distance, **pool} for distance in matching)
    search_categories = pl.DataFrame(rows, schema=_SEARCH_CATEGORIES)
    if not params.categories:
        return search_categories
    known = set(search_categories["category"])
    for name in params.categories:
        if name not in known:
            problem = f"category {name!r} makes no image of the pools a candidate"
            raise ParameterError(f"{problem}. {known_names(sorted(known))}")
    return search_categories.filter(pl.col("category").is_in(params.categories))


def _image_categories(source: LabelledImages) -> pl.DataFrame:
    """Categories of each image's single objects, each name once.

    Returns:
        `image_id`, `name` (in lower case) and `category`.
    """
    single = source.objects.frame.filter(~pl.col("is_crowd"))
    named = single.select("image_id", "category", name=pl.col("category").str.to_lowercase())
    by_name = named.group_by("image_id", "name", maintain_order=True)
    return by_name.agg(pl.col("category").max())


def _decisions(benchmark: Benchmark) -> ReviewDecisions:
    if benchmark.decisions is None:
        return ReviewDecisions()
    return DecisionsFile(benchmark.decisions).read()
