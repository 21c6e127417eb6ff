"""A benchmark from tables to metrics: by the library, and by the stages of the pipeline."""

import csv
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.support.labelled import labelled, on_circle, write_embeddings, write_tables

from farther.errors import DataError, ParameterError
from farther.similarity import (
    SimilarityFiles,
    SplitSource,
    StratifyParams,
    WordNetParams,
    stratify_benchmark,
)
from farther.similarity.categories import CategorySimilarity
from farther.similarity.embeddings import NameEmbeddings
from farther.similarity.stratify import ImageSimilarity
from farther.tables import Images, Objects
from farther.tables.documents import read_json, write_json

ROOT = Path(__file__).parents[2]
ID = [SplitSource("train", "voc", "train", "ID"), SplitSource("test", "voc", "test", "ID")]
OOD = [
    SplitSource("coco_near", "coco", "val", "near"),
    SplitSource("coco_far", "coco", "val", "far"),
]

#: Split → degrees of its images' embeddings on the circle, and the category that each shows.
WORLD = {
    "train": ([0, 10, 90], ["dog", "dog", "sofa"]),
    "test": ([5, 95], ["dog", "sofa"]),
    "coco_near": ([20, 110], ["fox", "bed"]),
    "coco_far": ([200, 250, 250.1], ["light", "light", "gizmo"]),
}


@pytest.fixture
def files(tmp_path):
    """Splits and embeddings of the world above."""
    rows = {"train": [], "test": [], "val": []}
    for name, (degrees, categories) in WORLD.items():
        dataset, subset = ("voc", name) if name in rows else ("coco", "val")
        ids = [f"{name}-{n}" for n in range(len(degrees))]
        shown = {name: [category] for name, category in zip(ids, categories, strict=True)}
        write_tables(tmp_path / "splits" / name, labelled(dataset, shown))
        rows[subset] += list(zip(ids, degrees, strict=True))
    for subset, pairs in rows.items():
        folder = tmp_path / "embeddings" / ("coco" if subset == "val" else "voc") / subset
        write_embeddings(folder, [i for i, _ in pairs], on_circle([d for _, d in pairs]))
    for dataset, names in (
        ("voc", {"dog": 0, "sofa": 90}),
        ("coco", {"fox": 40, "bed": 60, "light": 0, "gizmo": 180}),
    ):
        table = NameEmbeddings(name=list(names), embedding=on_circle(list(names.values())))
        table.write(tmp_path / "embeddings" / dataset / "names.parquet")
    return SimilarityFiles(tmp_path / "splits", tmp_path / "embeddings")


def test_near_splits_are_more_similar_than_far_ones_and_id_images_most(files):
    found = stratify_benchmark(files, ID, OOD, StratifyParams(duplicate=0.9999))
    means = found.summary()
    assert means["ID"] == pytest.approx(np.cos(np.deg2rad(5)), abs=1e-6)
    assert means["near"] == pytest.approx(
        (np.cos(np.deg2rad(10)) + np.cos(np.deg2rad(20))) / 2, abs=1e-6
    )
    assert means["ID"] > means["near"] > means["far"]
    assert means["elsewhere"] == 0
    assert means["near_duplicates"] == 1


def test_each_category_names_its_nearest_class_by_name_by_images_and_by_wordnet(
    files, write_wordnet, tmp_path
):
    wordnet = WordNetParams(folder=write_wordnet(tmp_path / "dict"), threshold="T50")
    table = stratify_benchmark(files, ID, OOD, wordnet=wordnet).categories
    rows = {name: k for k, name in enumerate(table.category)}
    assert table.name_class.tolist() == ["dog", "sofa", "dog", "sofa"]
    assert table.name_similarity[rows["fox"]] == pytest.approx(np.cos(np.deg2rad(40)), abs=1e-6)
    assert table.images[rows["light"]] == 2
    assert (table.image_class[rows["fox"]], table.image_class[rows["bed"]]) == ("dog", "sofa")
    assert table.image_similarity[rows["fox"]] == pytest.approx(np.cos(np.deg2rad(15)), abs=1e-6)
    assert table.wordnet_class.tolist()[:2] == ["dog", "sofa"]
    assert table.wordnet_distance.tolist() == ["ID", "ID", "near", ""]
    assert table.wordnet_similarity[rows["gizmo"]] == -1


def test_what_is_written_can_be_read_and_is_the_same_twice(files, tmp_path):
    folders = [tmp_path / name for name in ("similarity", "counts/voc.json", "plots/voc.csv")]
    found = stratify_benchmark(files, ID, OOD)
    found.write(*folders)
    before = {file: file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file()}
    stratify_benchmark(files, ID, OOD).write(*folders)
    assert {
        file: file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file()
    } == before
    assert len(ImageSimilarity.read(folders[0] / "images.parquet")) == 7
    assert CategorySimilarity.read(folders[0] / "categories.parquet").category.tolist() == [
        "fox",
        "bed",
        "light",
        "gizmo",
    ]
    assert read_json(folders[1])["coco_far"]["images"] == 3
    with folders[2].open() as file:
        fractions = [
            float(row["fraction"]) for row in csv.DictReader(file) if row["split"] == "coco_near"
        ]
    assert sum(fractions) == pytest.approx(1, abs=1e-5)
    margins = ImageSimilarity.read(folders[0] / "borderline.parquet").margin
    assert margins.tolist() == sorted(margins)


def test_datasets_that_two_models_embedded_are_refused(files):
    write_embeddings(files.embeddings / "coco" / "val", ["x"], on_circle([0]), model="another")
    with pytest.raises(DataError, match="'voc' and 'coco' were embedded by different models"):
        stratify_benchmark(files, ID, OOD)


def test_subsets_of_a_dataset_that_two_models_embedded_are_refused(files):
    first, last = ID[0], ID[-1]
    assert (first.dataset, first.subset) != (last.dataset, last.subset)
    folder = files.embeddings / last.dataset / last.subset
    write_embeddings(folder, ["x"], on_circle([0]), model="another")
    problem = rf"subsets '{first.subset}' and '{last.subset}' of '{last.dataset}' were embedded by"
    with pytest.raises(DataError, match=problem):
        stratify_benchmark(files, ID, OOD)


def test_names_that_another_model_embedded_are_refused(files):
    NameEmbeddings(name=["fox"], embedding=np.eye(1, 3)).write(
        files.embeddings / "coco" / "names.parquet"
    )
    with pytest.raises(
        DataError, match="embeddings: embeddings of 3 and of 2 dimensions are from two models"
    ):
        stratify_benchmark(files, ID, OOD)


def test_an_image_without_an_embedding_is_named(files):
    folder = files.embeddings / "coco" / "val"
    write_embeddings(folder, ["coco_near-0"], on_circle([0]))
    with pytest.raises(DataError, match=r"'coco_near-1' of split 'coco_near' has no embedding"):
        stratify_benchmark(files, ID, OOD)


def test_an_image_that_could_not_be_read_is_left_out(files):
    folder = files.embeddings / "coco" / "val"
    ids = ["coco_near-0", "coco_far-0", "coco_far-1", "coco_far-2"]
    write_embeddings(folder, ids, on_circle([20, 200, 250, 251]))
    header = read_json(folder / "embeddings.json")
    write_json(
        folder / "embeddings.json",
        {**header, "failures": [{"image_id": "coco_near-1", "reason": "damaged"}]},
    )
    images = stratify_benchmark(files, ID, OOD).images
    assert "coco_near-1" not in images.image_id
    assert "coco_near-0" in images.image_id


def test_a_reference_without_images_is_named_by_its_file(files):
    file = files.splits / "train" / "images.parquet"
    Images.read(file)[:0].write(file)
    with pytest.raises(
        DataError,
        match=r"train/images\.parquet: the reference split has no image with an embedding",
    ):
        stratify_benchmark(files, ID, OOD)


def test_an_unknown_reference_lists_the_id_splits(files):
    with pytest.raises(ParameterError, match=r"no ID split 'training'\. Known: train, test"):
        stratify_benchmark(files, ID, OOD, StratifyParams(reference="training"))


def test_the_stages_embed_a_dataset_and_stratify_a_benchmark(
    clip_folder, paint, tmp_path, monkeypatch
):
    tables, splits = tmp_path / "artifacts" / "tables", tmp_path / "artifacts" / "splits" / "voc"
    for dataset, subset, name, count in (
        ("voc", "train", "train", 6),
        ("coco", "val2017", "coco_near", 4),
    ):
        images = paint(tmp_path / dataset, count, dataset)
        n = len(images)
        shown = Objects(
            image_id=images.image_id,
            object_id=np.arange(n),
            box=np.zeros((n, 4)),
            category=["dog"] * n,
        )
        for folder in (tables / dataset / subset, splits / name):
            images.write(folder / "images.parquet")
            shown.write(folder / "objects.parquet")
        write_json(tables / dataset / "categories.json", {"categories": ["dog"], "parents": {}})
    near = {"dataset": "coco", "subset": "val2017", "distance": "near"}
    params = {
        "datasets": {
            name: {"format": name, "root": str(tmp_path / name)} for name in ("voc", "coco")
        },
        "embed": {
            "encoder": {"model": f"local-dir:{clip_folder}", "device": "cpu"},
            "images": {"workers": 0},
        },
        "stratify": {"duplicate": 0.999, "wordnet": None},
        "benchmarks": {
            "voc": {
                "id": "voc",
                "rules": str(ROOT / "data/benchmarks/voc.yaml"),
                "subsets": {"train": "train"},
                "splits": {"coco_near": near},
            }
        },
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "stages")
    for stage, *items in (["embed"], ["stratify"]):
        monkeypatch.setattr(sys, "argv", [f"{stage}.py", *items])
        runpy.run_path(str(ROOT / "stages" / f"{stage}.py"), run_name="__main__")
    figures = read_json(tmp_path / "artifacts" / "counts" / "similarity" / "voc.json")["coco_near"]
    # the four squares of coco are those of voc, byte by byte
    assert figures["similarity"] == pytest.approx(1, abs=1e-3)
    assert (
        read_json(tmp_path / "artifacts" / "similarity" / "voc" / "summary.json")["near_duplicates"]
        >= 4
    )
