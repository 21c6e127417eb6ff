"""Finds candidates for a benchmark's OOD splits in larger pools of images; reviewers decide on them before use.

FMIYC (Section 4.1, Appendix B) added images to its near and far splits: candidates without a labelled ID category and
with a labelled near or far one, each reviewed by people. It does not specify their order; here categories with the
fewest images in the splits come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Protocol

import polars as pl
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from farther.curation.candidates import CANDIDATES as COLUMNS
from farther.curation.decisions import IMAGE, Decisions, DecisionsFile
from farther.curation.parameters import Benchmark, Distance, OodSplit, RuledImages
from farther.curation.rules import Rules, read_rules
from farther.curation.sources import LabelledImages, TablesFolder
from farther.curation.splits import by_rules, id_split
from farther.errors import ParameterError
from farther.registry import STRICT, build
from farther.tables.files import digest

#: Default folder of the files of candidates.
CANDIDATES = Path("data/candidates")

#: Kinds of rules (None: no rule) of the categories that make an image a candidate for a distance.
KINDS: Mapping[Distance, tuple[str | None, ...]] = {"near": ("near",), "far": (None,), "farther": ("near", None)}


@dataclass(config=STRICT, kw_only=True)
class Enrichment:
    """Parameters of a search for candidates.

    Args:
        pools: The images to search, as a benchmark's splits name theirs.
        distances: Distances to find candidates for; all of the benchmark's when empty.
        categories: Candidates show one of these; when empty, any category that makes an image near or far.
        per_class: Largest number of candidates per category.
        most: Largest number of candidates per distance.
        duplicate: Least cosine between the embeddings of an image and of an image of the benchmark's splits, of the ID
            dataset or of an earlier candidate at which the image counts as a duplicate and is left out.
        file: The file of candidates; `data/candidates/<benchmark>.csv` when None.
    """

    pools: Annotated[list[RuledImages], Field(min_length=1)]
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


#: Number of images of a category (in lower case) in the splits of a distance, `before` a search and `new` ones.
#: Accepted candidates count as `before`; splits that keep known objects do not count.
NEEDS = pl.Schema({"distance": pl.String, "category": pl.String, "before": pl.Int64, "new": pl.Int64})


@plain(frozen=True)
class Found:
    """Result of a search.

    Args:
        candidates: Frame of `farther.curation.candidates.CANDIDATES`: images with decisions, sorted, then the new ones
            in the order of choice.
        counts: Numbers of images: in the `pool`; `qualified` by their labels; of these left out, as far as the search
            got, because they are `present` in the benchmark, or as `copies` (near-duplicates included) of an image
            there or of an earlier candidate; `decided` on before; `new` candidates.
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
    checked = build(Enrichment, f"enrich {name!r}", dict(params))
    return replace(checked, file=checked.file or CANDIDATES / f"{name}.csv")


def present(benchmark: Benchmark, tables: TablesFolder) -> dict[str, LabelledImages]:
    """The images of a benchmark, except those from a file of candidates.

    Raises:
        ParameterError: a dataset, subset or vocabulary is unknown.
        DataError: a table or a file is damaged.
    """
    splits = {name: split for name, split in benchmark.splits.items() if split.candidates is None}
    whole, decisions = replace(benchmark, most={}, splits=splits), _decisions(benchmark)
    rules = read_rules(benchmark)
    found = {name: id_split(whole, name, tables, rules) for name in benchmark.subsets}
    for ruled in by_rules(whole, tables, rules).values():
        fates, _ = ruled.decided(decisions)
        for name, split in ruled.splits.items():
            found[name] = ruled.source.select(fates.fate == split.distance)
    return found


def find(
    params: Enrichment,
    benchmark: Benchmark,
    tables: TablesFolder,
    splits: Mapping[str, LabelledImages],
    looks: Looks | None = None,
) -> Found:
    """Chooses candidates one at a time, each from the category with the fewest images so far.

    An image qualifies when the benchmark's rules give it a wanted distance: no ID class and no overlap is labelled.
    Images of a category are ordered by the digests of their names, which is arbitrary but reproducible. Images with
    decisions stay listed whatever their fate, so that the decisions remain valid.

    Raises:
        ParameterError: a dataset, subset, vocabulary or category is unknown, the distances cannot be combined, or the
            benchmark already draws from a pool.
        DataError: a table or a file is damaged.
    """
    distances = params.distances or tuple(dict.fromkeys(split.distance for split in benchmark.splits.values()))
    if len(set(distances)) > 1 and "farther" in distances:
        problem = "'farther' includes near and far images, so it cannot be combined"
        raise ParameterError(f"distances {', '.join(distances)}: {problem}")
    rules, decisions = read_rules(benchmark), _decisions(benchmark)
    pools = _as_splits(params, benchmark, distances[0])
    wanted = _wanted(params, distances, pools, tables, rules)
    counts = dict.fromkeys(("pool", "qualified", "present", "copies", "decided", "new"), 0)
    known = _KnownImages(splits, looks)
    # Pasted objects do not count as images of their categories.
    counted = {name: split for name, split in benchmark.splits.items() if name in splits and split.known == "remove"}
    before = [_shown(splits[name]).select("name", distance=pl.lit(one.distance)) for name, one in counted.items()]
    qualified, decided = [], []
    for ruled in by_rules(replace(benchmark, splits=pools), tables, rules).values():
        images = ruled.fates.frame.select(*IMAGE, distance="fate", digest=ruled.source.images.frame["digest"])
        shown = _shown(ruled.source)
        counts["pool"] += images.height
        touched = images.join(decisions.images(), on=IMAGE, how="semi", maintain_order="left")
        decided.append(touched)
        known.take(touched)
        # Images that reviewers accepted count as images of the splits.
        accepted = ruled.decided(decisions)[0].frame.filter(pl.col("decided_by") != "")
        before.append(accepted.join(shown, on="image_id").select("name", distance="fate"))
        open_images = images.join(decisions.images(), on=IMAGE, how="anti", maintain_order="left")
        fitting = open_images.join(shown, on="image_id", maintain_order="left")
        qualified.append(fitting.join(wanted, on=["distance", "dataset", "subset", "category"], how="semi"))
    shown_before = Counter(pl.concat(before).iter_rows()) if before else Counter()
    chosen, needs = [], []
    for distance in distances:
        images = pl.concat(qualified).filter(distance=distance)
        counts["qualified"] += images.select(IMAGE).n_unique()
        have = {name: shown_before[name, distance] for name in images["name"].unique().sort()}
        shows = Counter(have)
        chosen += _choose(params, images, shows, known)
        needs += [
            {"distance": distance, "category": name, "before": count, "new": shows[name] - count}
            for name, count in have.items()
        ]
    nothing: dict[str, Any] = {"category": pl.lit(""), "shown": 0, "neighbour": pl.lit(""), "similarity": None}
    earlier = pl.concat(decided).sort(IMAGE).select(*IMAGE, "distance", **nothing)
    counts |= {"present": known.present, "copies": known.copies, "decided": earlier.height, "new": len(chosen)}
    rows = [*earlier.iter_rows(named=True), *chosen]
    return Found(pl.DataFrame(rows, schema=COLUMNS), counts, pl.DataFrame(needs, schema=NEEDS))


def images_by_subset(benchmark: Benchmark, splits: Mapping[str, LabelledImages]) -> dict[tuple[str, str], set[str]]:
    """Dataset and subset → the images of OOD splits drawn from it."""
    found: dict[tuple[str, str], set[str]] = {}
    for name, split in benchmark.splits.items():
        if name in splits:
            found.setdefault(split.origin, set()).update(splits[name].images.image_id)
    return found


def describe(found: Found) -> str:
    """Text about the result of a search, with one line per category with new candidates."""
    counts = found.counts
    lines = [
        f"{counts['pool']:,} images in the pools, {counts['qualified']:,} qualify; excluded: "
        f"{counts['present']:,} already in the benchmark, {counts['copies']:,} duplicates",
        f"{counts['new']:,} new candidates, {counts['decided']:,} with earlier decisions",
    ]
    rows = found.needs.filter(pl.col("new") > 0).sort("distance", "before", maintain_order=True).iter_rows()
    return "\n".join(lines + [f"  {d:8}{category:28}{before:6,} + {new:,}" for d, category, before, new in rows])


class _KnownImages:
    """Images that no candidate may duplicate, with counts of those refused as `present` or as `copies`."""

    def __init__(self, splits: Mapping[str, LabelledImages], looks: Looks | None):
        self._names = {pair for s in splits.values() for pair in zip(s.images.dataset, s.images.image_id, strict=True)}
        self._digests = {one for source in splits.values() for one in source.images.digest}
        self._looks = looks
        self.present = self.copies = 0

    def take(self, images: pl.DataFrame) -> None:
        """Adds images: the columns of `IMAGE`, and `digest`."""
        self._digests.update(images["digest"])
        if self._looks is not None:
            for key in images.select(IMAGE).iter_rows():
                self._looks.take(*key)

    def neighbour(self, image: Mapping[str, Any]) -> dict[str, Any] | None:
        """Most similar ID image and its cosine ("" and None without embeddings); None to refuse the image."""
        if (image["dataset"], image["image_id"]) in self._names:
            self.present += 1
            return None
        looked = None if self._looks is None else self._looks.compare(*(image[name] for name in IMAGE))
        name, cosine, repeats = looked or ("", None, "")
        if repeats or image["digest"] in self._digests:
            self.copies += 1
            return None
        return {"neighbour": name, "similarity": cosine}


def _choose(
    params: Enrichment, qualified: pl.DataFrame, shows: Counter[str], known: _KnownImages
) -> list[dict[str, Any]]:
    """Candidates of one distance, chosen one at a time until there are enough or none is left.

    Args:
        params: Largest numbers of them.
        qualified: One row per image and category that it shows: `IMAGE`, `distance`, `digest`, `category`, `name` (in
            lower case).
        shows: Number of images by category, in lower case; candidates are added.
        known: Images that no candidate may duplicate; candidates are added.
    """
    images = qualified.sort("name").group_by(*IMAGE, "distance", "digest", maintain_order=True).agg("name", "category")
    queues: dict[str, list[dict[str, Any]]] = {name: [] for name in shows}  # the first to choose is last
    for image in sorted(images.to_dicts(), key=lambda one: digest(*(one[name] for name in IMAGE)), reverse=True):
        for name in image["name"]:
            queues[name].append(image)
    chosen, chosen_for, looked_at = list[dict[str, Any]](), Counter[str](), set[int]()
    while len(chosen) < params.most:
        waiting = [name for name in queues if queues[name] and chosen_for[name] < params.per_class]
        if not waiting:
            break
        name = min(waiting, key=lambda name: (shows[name], name))
        image = queues[name].pop()
        if id(image) in looked_at:
            continue
        looked_at.add(id(image))
        neighbour = known.neighbour(image)
        if neighbour is not None:
            category = image["category"][image["name"].index(name)]
            row = {"distance": image["distance"], "category": category, "shown": shows[name], **neighbour}
            chosen.append({column: image[column] for column in IMAGE} | row)
            chosen_for[name] += 1
            shows.update(image["name"])
            known.take(pl.DataFrame([{column: image[column] for column in (*IMAGE, "digest")}]))
    return chosen


def _as_splits(params: Enrichment, benchmark: Benchmark, distance: Distance) -> dict[str, OodSplit]:
    """The pools as splits to apply rules to; ParameterError if a split already draws from a pool."""
    drawn = {one.origin: name for name, one in benchmark.splits.items() if one.candidates is None}
    splits = {}
    for pool in params.pools:
        name = " ".join(pool.origin)
        if pool.origin in drawn:
            problem = f"split {drawn[pool.origin]!r} already draws from all of {name}: choose another pool"
            raise ParameterError(problem)
        splits[name] = OodSplit(dataset=pool.dataset, subset=pool.subset, vocabulary=pool.vocabulary, distance=distance)
    return splits


def _wanted(
    params: Enrichment, distances: Sequence[Distance], pools: Mapping[str, OodSplit], tables: TablesFolder, rules: Rules
) -> pl.DataFrame:
    """Categories that make an image a candidate: distance, dataset, subset, category."""
    rows = []
    for split in pools.values():
        categories = tables.categories(split.dataset)
        deciding = rules.by_category(split.names, categories)
        for name in categories.names:
            kind = rule.kind if (rule := deciding.get(name)) else None
            source = {"dataset": split.dataset, "subset": split.subset, "category": name}
            rows += [{"distance": distance, **source} for distance in distances if kind in KINDS[distance]]
    wanted = pl.DataFrame(rows, schema=dict.fromkeys(("distance", "dataset", "subset", "category"), pl.String))
    known = set(wanted["category"])
    for name in params.categories:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ParameterError(f"category {name!r} makes no image of the pools a candidate. Known: {names}")
    return wanted.filter(pl.col("category").is_in(params.categories)) if params.categories else wanted


def _shown(source: LabelledImages) -> pl.DataFrame:
    """Categories of each image's single objects: `image_id`, `name` (in lower case) and `category`, each name once."""
    single = source.objects.frame.filter(~pl.col("is_crowd"))
    named = single.select("image_id", "category", name=pl.col("category").str.to_lowercase())
    return named.group_by("image_id", "name", maintain_order=True).agg(pl.col("category").max())


def _decisions(benchmark: Benchmark) -> Decisions:
    return Decisions() if benchmark.decisions is None else DecisionsFile(benchmark.decisions).read()
