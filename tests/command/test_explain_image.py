"""`farther explain image` finds one image among several datasets, whatever the user calls it."""

import json

import numpy as np
import polars as pl
import pytest
import yaml

from farther.command import main
from farther.curation.fates import Fates
from farther.similarity import ImageSimilarity
from farther.tables import (
    Header,
    Images,
    ObjectOutcomes,
    Objects,
    RegionOutcomes,
    Regions,
    RegionsWriter,
)
from farther.tables.documents import write_json
from farther.tables.parquet import write_parquet

#: Benchmark `b` draws from two datasets that number their images alike.
SPLITS = {
    "coco_far": {"dataset": "coco", "subset": "val2017", "distance": "far"},
    "photos_far": {"dataset": "photos", "subset": "all", "distance": "far"},
}
SIMILARITY = {"coco_far": 0.25, "photos_far": 0.75}


def images_of(dataset, ids, file):
    return Images(
        image_id=ids,
        dataset=[dataset] * len(ids),
        file=[file.format(image_id) for image_id in ids],
        width=[40] * len(ids),
        height=[30] * len(ids),
        digest=["0" * 32] * len(ids),
    )


def columns_of_similarity(split, dataset):
    return {
        "image_id": ["001"],
        "dataset": [dataset],
        "split": [split],
        "distance": ["far"],
        "similarity": np.float32([SIMILARITY[split]]),
        "neighbour": ["t1"],
        "id_class": ["cat"],
        "class_similarity": np.float32([0.5]),
        "suggested": [""],
        "margin": np.float32([0]),
    }


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A curated project: image 001 is in `coco` and in `photos`, OOD splits of one benchmark."""
    monkeypatch.chdir(tmp_path)
    params = {
        "datasets": {
            name: {"format": "coco", "root": f"{name}-root"} for name in ("voc", "coco", "photos")
        },
        "detectors": {"net": {"adapter": "yolo", "benchmark": "b", "weights": "w"}},
        "benchmarks": {"b": {"id": "voc", "rules": "rules.yaml", "splits": SPLITS}},
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    artifacts = tmp_path / "artifacts"
    tables = {
        ("coco", "val2017"): images_of("coco", ["001", "002", "020"], "val2017/{}.jpg"),
        ("coco", "train2017"): images_of("coco", ["020"], "train2017/{}.jpg"),
        ("photos", "all"): images_of("photos", ["001", "020"], "all/{}.png"),
    }
    for (dataset, subset), images in tables.items():
        folder = artifacts / "tables" / dataset / subset
        folder.mkdir(parents=True)
        images.write(folder / "images.parquet")
        Objects.empty().write(folder / "objects.parquet")
    curated = artifacts / "splits/b"
    for split, params in SPLITS.items():
        (curated / split).mkdir(parents=True)
        tables[params["dataset"], params["subset"]][:1].write(curated / split / "images.parquet")
    Fates(
        image_id=["001", "001"],
        dataset=["coco", "photos"],
        subset=["val2017", "all"],
        fate=["far", "far"],
        rule=["rule of coco", "rule of photos"],
        category=["", ""],
        object_id=[-1, -1],
    ).write(curated / "fates.parquet")
    rows = [columns_of_similarity(split, params["dataset"]) for split, params in SPLITS.items()]
    table = ImageSimilarity.concatenate([ImageSimilarity(**columns) for columns in rows])
    (artifacts / "similarity/b").mkdir(parents=True)
    table.write(artifacts / "similarity/b/images.parquet")
    return tmp_path


def explained(capsys, *arguments):
    capsys.readouterr()
    assert main(["explain", "image", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_images_of_one_id_in_two_datasets_each_have_their_own_similarity(here, capsys):
    places = {place["dataset"]: place for place in explained(capsys, "001")["benchmarks"]["b"]}
    assert {name: place["similarity"]["similarity"] for name, place in places.items()} == {
        "coco": 0.25,
        "photos": 0.75,
    }
    assert {name: place["why"] for name, place in places.items()} == {
        "coco": "rule of coco",
        "photos": "rule of photos",
    }


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("002", [("coco", "002")]),
        ("001.png", [("photos", "001")]),
        ("val2017/001.jpg", [("coco", "001")]),
        ("coco-root/val2017/002.jpg", [("coco", "002")]),
        ("./photos-root/all/001.png", [("photos", "001")]),
        ("020.jpg", [("coco", "020"), ("coco", "020")]),
        ("train2017/020.jpg", [("coco", "020")]),
    ],
)
def test_an_image_is_found_by_its_id_its_file_name_or_its_path(here, capsys, named, found):
    assert [
        (source["dataset"], source["image_id"]) for source in explained(capsys, named)["sources"]
    ] == found


def test_an_image_is_found_by_an_absolute_path(here, capsys):
    path = here / "photos-root/all/001.png"
    assert [source["file"] for source in explained(capsys, str(path))["sources"]] == [
        "photos-root/all/001.png"
    ]


def test_the_end_of_another_file_name_is_not_a_file_name(here, capsys):
    assert main(["explain", "image", "01.jpg"]) == 2  # 001.jpg ends so


def test_each_suggestion_is_another_name(here, capsys):
    assert main(["explain", "image", "0200"]) == 2
    error = capsys.readouterr().err
    assert error.count("'020'") == 1  # three tables have it
    assert main(["explain", "image", "20.jpg"]) == 2
    assert capsys.readouterr().err.count("'020.jpg'") == 1


@pytest.fixture
def evaluated(here):
    """Run `net` with method `knn` found one object of the image and missed the other."""
    folder = here / "artifacts/outcomes/net/knn"
    folder.mkdir(parents=True)
    objects = {"image_id": ["001", "001"], "object_id": [4, 7], "category": ["fox", "bear"]}
    ObjectOutcomes(**objects, outcome=["found", "missed"], region_id=[12, -1]).write(
        folder / "coco_far.objects.parquet"
    )
    rows = {"image_id": ["001", "002"], "region_id": [12, 13], "outcome": ["found", "known"]}
    RegionOutcomes(**rows, object_id=[4, -1], iou=[0.75, 0.0]).write(folder / "coco_far.parquet")


def test_outcomes_are_those_that_evaluate_wrote(evaluated, capsys):
    assert main(["explain", "image", "val2017/001.jpg", "--run", "net", "--method", "knn"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  object 4, fox: found, detection 12" in lines
    assert "  object 7, bear: missed" in lines
    assert [line for line in lines if "detection 1" in line and "IoU" in line] == [
        "  detection 12: found, object 4 at IoU 0.75"
    ]
    assert not any("detection 13" in line for line in lines)  # of another image


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--run", "net"], "give --method, too"),
        (["--run", "nt", "--method", "knn"], "Did you mean 'net'?"),
        (["--run", "net", "--method", "vim"], "no outcomes of '001' for net with vim"),
    ],
)
def test_outcomes_that_there_are_not_are_an_error(evaluated, capsys, options, problem):
    assert main(["explain", "image", "001", *options]) == 2
    assert problem in capsys.readouterr().err


def test_the_only_run_need_not_be_named(evaluated, capsys):
    asked = ["explain", "image", "001", "--method", "knn", "--json"]
    assert main([*asked, "--run", "net"]) == 0
    named = capsys.readouterr().out
    assert main(asked) == 0
    assert capsys.readouterr().out == named


def test_runs_that_could_not_use_an_image_are_named_with_the_reason(here, capsys):
    header = Header(classes=("cat",))
    writer = RegionsWriter(here / "artifacts/regions/net/coco_far", header)
    writer.write_shard(
        0, Regions.empty(header), 2, [{"image_id": "001", "reason": "image file is truncated"}]
    )
    writer.close(1)
    assert main(["explain", "image", "001"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("net could not use it: image file is truncated") == 1


def test_an_image_that_ingest_dropped_is_explained(here, capsys):
    warning = {
        "kind": "image unreadable",
        "subset": "all",
        "file": "all/077.jpg",
        "found": "unknown image format",
    }
    write_json(
        here / "artifacts/tables/photos/warnings.json", {"counts": {}, "warnings": [warning]}
    )
    for name in ("077", "077.jpg", "all/077.jpg"):
        assert main(["explain", "image", name]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        expected = "image unreadable: unknown image format. `ingest` dropped it with its objects"
        assert shown == f"photos all all/077.jpg {expected}"


def test_a_fate_that_there_is_not_is_named(here, capsys):
    file = here / "artifacts/splits/b/fates.parquet"
    write_parquet(pl.read_parquet(file).with_columns(fate=pl.lit("nearest")), file)
    capsys.readouterr()
    assert main(["explain", "image", "001"]) == 2
    expected = "unknown fate 'nearest'; known: near, far, farther, removed"
    assert f"fates.parquet: row 0: field 'fate': {expected}" in capsys.readouterr().err
