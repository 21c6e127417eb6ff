"""Candidates from larger pools: which qualify, which come first, and how they enter a split."""

import csv
import os
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal
from tests.support.labelled import labelled, on_circle, write_embeddings, write_tables

from farther.curation import Benchmark, Categories, LabelledImages, benchmark, curate, explain
from farther.curation.candidates import CANDIDATES, write_candidates
from farther.curation.decisions import HEADER
from farther.curation.enrichment import (
    SearchResult,
    benchmark_images,
    describe,
    enrichment,
    find_candidates,
    images_by_subset,
    subsets_searched,
)
from farther.errors import ParameterError
from farther.tables.documents import read_json, write_json

ROOT = Path(__file__).parents[2]

RULES = """
id_classes:
  cat: {photos: [Cat]}
  table: {photos: [Table]}
protocols:
  paper:
    overlap: {photos: {table: [Plate]}}
    near: {photos: {cat: [Lynx, Otter]}}
"""

CATEGORIES = ("Cat", "Table", "Plate", "Lynx", "Otter", "Kite", "Moon")


class InMemory:
    """Tables without files: the categories of the objects of each image, by subset."""

    def __init__(self, **subsets: dict[str, list[str]]):
        self.subsets = {"train": {"t": ["cat"]}, **subsets}
        self.digests: dict[str, str] = {}

    def source(self, dataset: str, subset: str) -> LabelledImages:
        categories_by_image = self.subsets[subset]
        digests = [self.digests.get(name, name) for name in categories_by_image]
        return labelled(dataset, categories_by_image, digest=digests)

    def categories(self, dataset: str) -> Categories:
        return Categories(("cat", "table") if dataset == "id" else CATEGORIES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "decisions.csv").write_text(HEADER)
    return tmp_path


def bench_of(folder: Path, **splits: dict) -> Benchmark:
    """The benchmark of a near and a far split of photos, and of further splits."""
    photos = {"dataset": "photos", "subset": "val"}
    entry = {
        "id": "id",
        "rules": folder / "rules.yaml",
        "decisions": folder / "decisions.csv",
        "subsets": {"train": "train"},
        "splits": {
            "val_near": {**photos, "distance": "near"},
            "val_far": {**photos, "distance": "far"},
            **splits,
        },
    }
    return benchmark("b", entry)


def search(
    folder: Path, tables: InMemory, duplicates=None, splits: dict | None = None, **params
) -> SearchResult:
    """Candidates from the subset `pool`."""
    pools = [{"dataset": "photos", "subset": "pool"}]
    bench = bench_of(folder, **(splits or {}))
    known_images = benchmark_images(bench, tables)
    return find_candidates(
        enrichment("b", {"pools": pools, **params}), bench, tables, known_images, duplicates
    )


def decide(folder: Path, *lines: str) -> None:
    with (folder / "decisions.csv").open("a") as file:
        for number, line in enumerate(lines):
            file.write(f"2026-11-21T09:30:{number:02}Z,ann,photos,pool,{line}\n")


def candidate_rows(result: SearchResult) -> list[tuple[str, str, str]]:
    """Image, distance and category of each candidate."""
    return list(result.candidates.select("image_id", "distance", "category").iter_rows())


def test_only_images_without_id_class_or_overlap_and_with_a_wanted_category_qualify(folder):
    pool = {
        "cat": ["Lynx", "Cat"],
        "plate": ["Kite", "Plate"],
        "near": ["Lynx", "Kite"],
        "far": ["Kite"],
        "empty": [],
        "crowd": ["Lynx*"],
    }
    result = search(folder, InMemory(val={}, pool=pool))
    assert sorted(candidate_rows(result)) == [("far", "far", "Kite"), ("near", "near", "Lynx")]
    assert result.counts["pool"] == 6
    assert result.counts["qualified"] == 2


def test_the_category_that_the_fewest_images_show_comes_first(folder):
    val = {f"v{n}": ["Kite"] for n in range(3)} | {"m": ["Moon"]}
    pool = {f"k{n}": ["Kite"] for n in range(4)} | {f"m{n}": ["Moon"] for n in range(4)}
    result = search(folder, InMemory(val=val, pool=pool), distances=["far"])
    assert list(result.candidates.select("category", "shown").iter_rows()) == [
        ("Moon", 1),
        ("Moon", 2),
        ("Kite", 3),
        ("Moon", 3),
        ("Kite", 4),
        ("Moon", 4),
        ("Kite", 5),
        ("Kite", 6),
    ]


def test_only_categories_with_new_candidates_are_described_the_rarest_first(folder):
    val = {f"v{n}": ["Kite"] for n in range(1200)}
    pool = {"k": ["Kite"], "m1": ["Moon"], "m2": ["Moon"], "l": ["Lynx"], "o": ["Otter"]}
    tables = InMemory(val=val, pool=pool)
    tables.digests = {"o": "v1"}  # the benchmark has this file
    assert describe(search(folder, tables)).splitlines() == [
        "5 images in the pools, 5 qualify; excluded: 0 already in the benchmark, 1 duplicates",
        "4 candidates; reviewers decided on 0 images and accepted 0",
        "  far     moon                             0 + 2",
        "  far     kite                         1,200 + 1",
        "  near    lynx                             0 + 1",
    ]


def test_images_that_show_two_categories_count_for_both(folder):
    pool = {"both": ["Kite", "Moon"], "kite": ["Kite"]}
    result = search(folder, InMemory(val={"v": ["Moon"]}, pool=pool), distances=["far"], most=1)
    assert result.candidates["category"][0] == "Kite"
    needs = {need["category"]: need for need in result.needs.to_dicts()}
    assert (needs["kite"]["before"], needs["kite"]["new"]) == (0, 1)
    shows_moon = result.candidates["image_id"][0] == "both"
    assert (needs["moon"]["before"], needs["moon"]["new"]) == (1, int(shows_moon))


def test_caps_hold_for_each_category_and_for_each_distance(folder):
    pool = {f"{name} {n}": [name] for name in ("Kite", "Moon", "Lynx") for n in range(20)}
    result = search(folder, InMemory(val={}, pool=pool), per_class=4)
    assert sorted(result.candidates["category"]) == ["Kite"] * 4 + ["Lynx"] * 4 + ["Moon"] * 4
    few = search(folder, InMemory(val={}, pool=pool), most=3)
    assert few.candidates["distance"].to_list() == ["near"] * 3 + ["far"] * 3
    only = search(folder, InMemory(val={}, pool=pool), categories=["Moon"])
    assert set(only.candidates["category"]) == {"Moon"}


def test_the_order_of_the_pool_does_not_change_the_choice(folder):
    pool = {f"{name} {n}": [name] for name in ("Kite", "Moon") for n in range(20)}
    turned = dict(reversed(pool.items()))
    result = search(folder, InMemory(val={}, pool=pool), most=10)
    of_turned = search(folder, InMemory(val={}, pool=turned), most=10)
    assert_frame_equal(result.candidates, of_turned.candidates)
    with_kite = search(folder, InMemory(val={"v": ["Kite"]}, pool=pool), most=10)
    assert candidate_rows(result) != candidate_rows(with_kite)


def test_equal_files_are_chosen_once_and_never_when_the_benchmark_has_them(folder):
    tables = InMemory(
        val={"v": ["Kite"]}, pool={"a": ["Kite"], "b": ["Kite"], "c": ["Kite"], "d": ["Kite"]}
    )
    tables.digests = {"v": "1", "a": "1", "b": "2", "c": "2", "t": "3", "d": "3"}
    result = search(folder, tables)
    assert len(result.candidates) == 1
    assert result.candidates["image_id"][0] in ("b", "c")
    assert result.counts["copies"] == 3


class SameFirstLetter:
    """A `DuplicateIndex`: images whose names have the same first letter are duplicates."""

    def __init__(self, *known: str):
        self.known = list(known)

    def compare(self, dataset: str, subset: str, image_id: str):
        if image_id == "unreadable":
            return None
        repeats = [name for name in self.known if name[0] == image_id[0]]
        return "t", 0.5, repeats[0] if repeats else ""

    def take(self, dataset: str, subset: str, image_id: str):
        self.known.append(image_id)


def test_near_duplicates_of_known_images_and_of_candidates_are_left_out(folder):
    pool = {name: ["Kite"] for name in ("a1", "a2", "b1", "c1", "c2", "unreadable")}
    result = search(folder, InMemory(val={}, pool=pool), SameFirstLetter("b0"))
    first_letters = [image_id[0] for image_id in result.candidates["image_id"].sort()]
    assert first_letters == ["a", "c", "u"]
    assert result.counts["copies"] == 3
    unreadable = result.candidates.filter(image_id="unreadable")
    assert unreadable["similarity"].to_list() == [None]
    assert set(result.candidates["neighbour"]) == {"t", ""}


def test_images_with_decisions_stay_listed_in_whatever_split_they_are(folder):
    decide(folder, "in,keep,,", "out,remove,cat,", "in2,near,,", "in2,undo,,")
    pool = {"in": ["Kite"], "out": ["Kite"], "in2": ["Lynx"], "new": ["Kite"], "moon": ["Moon"]}
    result = search(
        folder, InMemory(val={"m": ["Moon"]}, pool=pool), splits=more(folder), distances=["far"]
    )
    assert candidate_rows(result)[-2:] == [("in2", "near", ""), ("out", "far", "")]
    assert sorted(candidate_rows(result)[:-2]) == [
        ("in", "far", "Kite"),
        ("moon", "far", "Moon"),
        ("new", "far", "Kite"),
    ]
    assert result.counts["decided"] == 3
    assert result.counts["accepted"] == 1
    assert "3 candidates; reviewers decided on 3 images and accepted 1" in describe(result)


TWENTY = {f"{name} {n}": [name] for name in ("Kite", "Moon") for n in range(10)}


def test_accepting_a_candidate_changes_nothing_in_the_list(folder):
    tables = InMemory(val={"v": ["Kite"]}, pool=TWENTY)
    before = search(folder, tables, splits=more(folder), distances=["far"], most=6)
    decide(folder, *(f"{name},keep,," for name in before.candidates["image_id"][1:4]))
    after = search(folder, tables, splits=more(folder), distances=["far"], most=6)
    assert_frame_equal(after.candidates, before.candidates)


def test_a_refused_candidate_gives_its_place_to_another_image_and_stays_listed(folder):
    tables = InMemory(val={"v": ["Kite"]}, pool=TWENTY)
    before = search(folder, tables, splits=more(folder), distances=["far"], most=6)
    refused, moved = before.candidates["image_id"][1:3]
    decide(folder, f"{refused},remove,cat,", f"{moved},near,,")
    after = search(folder, tables, splits=more(folder), distances=["far"], most=6)
    assert after.candidates.height == 8
    assert after.candidates["image_id"][-2:].to_list() == sorted([refused, moved])
    kept = set(before.candidates["image_id"]) - {refused, moved}
    assert kept < set(after.candidates["image_id"][:6])


def test_an_image_that_reviewers_moved_makes_its_category_less_rare_where_it_went(folder):
    decide(folder, "a,near,,")
    tables = InMemory(
        val={}, pool={"a": ["Kite", "Lynx"], "b": ["Lynx"], "c": ["Otter"], "d": ["Kite"]}
    )
    # By the rules, `a` is near already, so this decision agrees with them.
    agreed = search(folder, tables, splits=more(folder), distances=["near"])
    assert dict(agreed.candidates.select("image_id", "shown").iter_rows())["c"] == 0
    decide(folder, "d,near,,")
    result = search(folder, tables, splits=more(folder), distances=["near"])
    needs = {need["category"]: need["before"] for need in result.needs.to_dicts()}
    assert needs == {"lynx": 0, "otter": 0}
    decide(folder, "c,far,,")
    result = search(folder, tables, splits=more(folder), distances=["near", "far"])
    assert ("c", "near", "") in candidate_rows(result)


def test_a_search_of_a_large_pool_reads_it_in_one_pass(folder):
    pool = {f"{number}": ["Kite", "Moon"] for number in range(3000)}
    result = search(
        folder, InMemory(val={}, pool=pool), distances=["far"], most=1000, per_class=400
    )
    assert result.counts["candidates"] == 800


def test_the_subsets_of_pools_are_known_before_the_stage_runs():
    entries = {
        "b": {
            "pools": [
                {"dataset": "photos", "subset": "pool"},
                {"dataset": "photos", "subset": "other"},
            ]
        }
    }
    assert subsets_searched(entries) == {"photos": {"pool", "other"}}


def test_a_pool_that_the_benchmark_draws_from_and_unknown_categories_are_refused(folder):
    tables = InMemory(val={}, pool={"a": ["Kite"]})
    with pytest.raises(
        ParameterError, match="split 'val_far' already draws from all of photos val"
    ):
        search(folder, tables, pools=[{"dataset": "photos", "subset": "val"}])
    with pytest.raises(
        ParameterError, match=r"category 'Plate' makes no image .* Known: Kite, Lynx, Moon, Otter"
    ):
        search(folder, tables, categories=["Plate"])
    with pytest.raises(
        ParameterError, match="'farther' includes near and far images, so it cannot be combined"
    ):
        search(folder, tables, distances=["near", "farther"])
    with pytest.raises(ParameterError, match="unknown parameter 'pool'"):
        enrichment("b", {"pool": []})


def test_a_benchmark_without_near_and_far_takes_both_kinds_as_farther(folder):
    far = {"dataset": "photos", "subset": "val", "distance": "farther"}
    bench = benchmark(
        "b", {"id": "id", "rules": folder / "rules.yaml", "splits": {"x": far}, "subsets": {}}
    )
    tables = InMemory(val={"v": ["Lynx"]}, pool={"a": ["Lynx"], "b": ["Kite"], "c": ["Cat"]})
    params = enrichment("b", {"pools": [{"dataset": "photos", "subset": "pool"}]})
    result = find_candidates(params, bench, tables, benchmark_images(bench, tables))
    assert candidate_rows(result) == [("b", "farther", "Kite"), ("a", "farther", "Lynx")]


def test_pasted_objects_make_no_category_less_rare(folder):
    pasted = {"dataset": "photos", "subset": "pasted", "distance": "far", "known": "keep"}
    tables = InMemory(
        val={"v": ["Moon"]}, pasted={"p": ["Kite", "Kite"], "q": ["Kite"]}, pool={"a": ["Kite"]}
    )
    result = search(folder, tables, splits={"pasted": pasted})
    assert result.candidates["shown"][0] == 0


def test_images_are_named_by_the_subset_that_they_come_from(folder):
    bench, tables = bench_of(folder), InMemory(val={"v": ["Lynx"], "w": ["Kite"], "x": ["Cat"]})
    assert images_by_subset(bench, benchmark_images(bench, tables)) == {
        ("photos", "val"): {"v", "w"}
    }


# ------------------------------------------------------------------------------------------
# candidates in a split


def more(folder: Path, **params) -> dict:
    shared = {"dataset": "photos", "subset": "pool", "candidates": folder / "c.csv", **params}
    return {f"more_{d}": {**shared, "distance": d} for d in ("near", "far")}


def frame(*rows: tuple) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=CANDIDATES, orient="row")


def write(folder: Path, *names: str) -> None:
    write_candidates(
        folder / "c.csv",
        frame(*(("photos", "pool", name, "near", "Lynx", 0, "", None) for name in names)),
    )


POOL = {
    "a": ["Lynx"],
    "b": ["Lynx"],
    "c": ["Kite"],
    "d": ["Kite"],
    "e": ["Cat"],
    "unlisted": ["Lynx"],
}


def names_in(curation) -> dict[str, list[str]]:
    return {
        name: curation.splits[name].images.image_id.tolist() for name in ("more_near", "more_far")
    }


def test_a_candidate_enters_only_after_people_let_it_in(folder):
    write(folder, "a", "b", "c", "d", "e")
    tables = InMemory(val={}, pool=POOL)
    assert names_in(curate(bench_of(folder, **more(folder)), tables)) == {
        "more_near": [],
        "more_far": [],
    }
    decide(folder, "a,keep,,", "c,near,,", "d,remove,cat,", "e,far,,")
    curation = curate(bench_of(folder, **more(folder)), tables)
    assert names_in(curation) == {"more_near": ["a", "c"], "more_far": ["e"]}
    rule = dict(zip(curation.fates.image_id, curation.fates.rule, strict=True))
    assert rule["b"] == "candidate: not reviewed yet"
    sentence = (
        "photos pool b: removed; candidate: not reviewed yet "
        "(by the rules: near; near: Lynx → cat (object 1, Lynx))"
    )
    assert explain(curation.fates, "b") == sentence
    assert "unlisted" not in rule


def test_all_candidates_enter_where_that_is_asked_for(folder):
    write(folder, "a", "c", "e")
    curation = curate(bench_of(folder, **more(folder, admit="all")), InMemory(val={}, pool=POOL))
    assert names_in(curation) == {"more_near": ["a"], "more_far": ["c"]}


def test_a_split_may_ask_for_review_without_candidates(folder):
    decide(folder, "b,keep,,")
    splits = {
        name: {**split, "candidates": None, "admit": "reviewed"}
        for name, split in more(folder).items()
    }
    assert names_in(curate(bench_of(folder, **splits), InMemory(val={}, pool=POOL))) == {
        "more_near": ["b"],
        "more_far": [],
    }


def test_splits_of_one_source_cannot_differ_in_what_they_admit(folder):
    write(folder, "a")
    splits = more(folder)
    splits["more_far"]["admit"] = "all"
    with pytest.raises(
        ParameterError, match="splits more_near, more_far share their images, so 'needs_review'"
    ):
        curate(bench_of(folder, **splits), InMemory(val={}, pool=POOL))


def test_known_objects_stay_where_a_split_keeps_them_but_overlaps_go(folder):
    splits = {
        f"mixed_{d}": {"dataset": "photos", "subset": "pool", "distance": d, "known": "keep"}
        for d in ("near", "far")
    }
    pool = {"a": ["Cat", "Lynx"], "b": ["Cat", "Kite"], "c": ["Plate", "Kite"]}
    curation = curate(bench_of(folder, **splits), InMemory(val={}, pool=pool))
    assert curation.splits["mixed_near"].images.image_id.tolist() == ["a"]
    assert curation.splits["mixed_near"].objects.category.tolist() == [
        "cat",
        "Lynx",
    ]  # an ID class has its name
    assert curation.splits["mixed_far"].images.image_id.tolist() == ["b"]


def test_images_with_only_known_objects_are_left_out_where_both_must_share_an_image(
    folder,
):
    splits = {
        f"mixed_{d}": {
            "dataset": "photos",
            "subset": "pool",
            "distance": d,
            "known": "with unknown",
        }
        for d in ("near", "far")
    }
    pool = {"a": ["Cat", "Lynx"], "b": ["Cat", "Table"], "c": ["Kite"], "d": ["Kite", "Cat"]}
    curation = curate(bench_of(folder, **splits), InMemory(val={}, pool=pool))
    assert curation.splits["mixed_near"].images.image_id.tolist() == ["a"]
    assert curation.splits["mixed_far"].images.image_id.tolist() == ["c", "d"]


# -------------------------------------------------------------------------------------------------
# stage `enrich`


def ingested(tables: Path, dataset: str, subset: str, shown: dict[str, list[str]]) -> None:
    write_tables(tables / dataset / subset, labelled(dataset, shown))
    write_json(
        tables / dataset / "categories.json", {"categories": list(CATEGORIES), "parents": {}}
    )


def run(folder: Path, *command: str | Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_candidates_are_listed_reviewed_and_let_in_by_two_stages(folder, commands):
    tables = folder / "artifacts" / "tables"
    ingested(tables, "id", "train", {"t": ["Cat"]})
    ingested(tables, "photos", "val", {"v": ["Kite"]})
    ingested(tables, "photos", "pool", POOL)
    splits = {"val_far": {"dataset": "photos", "subset": "val", "distance": "far"}}
    written = {
        "id": "id",
        "rules": "rules.yaml",
        "subsets": {"train": "train"},
        "decisions": "decisions.csv",
    }
    enrich = {"pools": [{"dataset": "photos", "subset": "pool"}], "distances": ["near"], "most": 2}
    params = {"benchmarks": {"b": {**written, "splits": splits}}, "enrich": {"b": enrich}}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    said = run(folder, commands / "python", ROOT / "stages" / "enrich.py", "b")
    assert (
        "No embeddings of id train, photos val, photos pool: only identical files are excluded"
        in said
    )
    assert "2 candidates" in said
    first = (folder / "data/candidates/pools/b.csv").read_text()
    assert len(list(csv.DictReader(first.splitlines()))) == 2
    splits["more"] = {
        **splits["val_far"],
        "subset": "pool",
        "distance": "near",
        "candidates": "data/candidates/pools/b.csv",
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    run(folder, commands / "python", ROOT / "stages" / "enrich.py", "b")
    assert (folder / "data/candidates/pools/b.csv").read_text() == first
    name = next(csv.DictReader(first.splitlines()))["image_id"]
    decide(folder, f"{name},keep,,")
    run(folder, commands / "python", ROOT / "stages" / "curate.py")
    counts = read_json(folder / "artifacts/counts/curate/b.json")
    assert counts["more.images"] == 1
    assert counts["photos: candidate: not reviewed yet"] == 1


def test_the_stage_leaves_out_what_embeddings_show_to_be_the_same_picture(folder, commands):
    tables = folder / "artifacts" / "tables"
    for dataset, subset, degrees in (
        ("id", "train", {"t": 0.0}),
        ("photos", "val", {"v": 45.0}),
        ("photos", "pool", {"a": 10.0, "b": 10.1, "c": 45.1}),
    ):
        ingested(tables, dataset, subset, {name: ["Lynx"] for name in degrees})
        vectors = on_circle(list(degrees.values()))
        write_embeddings(
            folder / "artifacts" / "embeddings" / dataset / subset, list(degrees), vectors
        )
    splits = {"val_near": {"dataset": "photos", "subset": "val", "distance": "near"}}
    written = {"id": "id", "rules": "rules.yaml", "subsets": {"train": "train"}, "splits": splits}
    enrich = {"pools": [{"dataset": "photos", "subset": "pool"}], "duplicate": 0.9999}
    (folder / "params.yaml").write_text(
        yaml.safe_dump({"benchmarks": {"b": written}, "enrich": {"b": enrich}})
    )
    assert "2 duplicates" in run(folder, commands / "python", ROOT / "stages" / "enrich.py", "b")
    (row,) = csv.DictReader((folder / "data/candidates/pools/b.csv").read_text().splitlines())
    assert row["image_id"] in ("a", "b")
    assert (row["neighbour"], float(row["similarity"])) == (
        "t",
        pytest.approx(np.cos(np.deg2rad(10)), abs=1e-3),
    )
