"""Publishing curated splits: the files, and the tables that are read back from them."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import DatasetCard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from farther import datasets
from farther.curation import TablesFolder, benchmark, curate
from farther.curation.sources import LabelledImages
from farther.datasets.ingest import ingest
from farther.datasets.orientation import KINDS
from farther.errors import DataError, ParameterError
from farther.publication import Publication, Words, collect, publish, read_words
from farther.publication.contents import xywh
from farther.tables import Images, Objects
from farther.tables.documents import write_json
from farther.tables.files import digest
from farther.tables.stored import ingest_warnings

ROOT = Path(__file__).parents[2]
SPLITS = ("pool_near", "pool_far", "open_far")

RULES = """
id_classes: {cat: {pets: [cat], pool: [cat], open: [Cat]}}
protocols: {paper: {overlap: {}, near: {pool: {cat: [zebra]}}}}
"""

PARAMS = {
    "datasets": {
        "pets": {"format": "coco", "root": "pets"},
        "pool": {"format": "coco", "root": "pool", "orientation": "displayed"},
        "open": {"format": "openimages", "root": "open"},
    },
    "benchmarks": {
        "pets": {
            "id": "pets",
            "rules": "rules.yaml",
            "subsets": {"val": "val2017"},
            "splits": {
                "pool_near": {"dataset": "pool", "subset": "val2017", "distance": "near"},
                "pool_far": {"dataset": "pool", "subset": "val2017", "distance": "far"},
                "open_far": {"dataset": "open", "subset": "validation", "distance": "far"},
            },
        }
    },
}

CATEGORIES = [{"id": 3, "name": "cat"}, {"id": 7, "name": "a|<b>"}, {"id": 9, "name": "zebra"}]

#: Image, category, box, further fields. Object ids are not in the order of the images.
OBJECTS = [
    (12, 7, [0, 0, 64, 48], {"is_difficult": 1}),
    (4, 9, [10.1, 2.2, 20.3, 10.4], {}),
    (12, 7, [1.5, 2, 3, 4], {"iscrowd": 1}),
    (4, 7, [1, 1, 2, 2], {}),
    (9, 3, [5, 5, 20, 20], {}),
]


def picture(path: Path, shade: int) -> None:
    """A picture that is displayed as 64 × 48; that of shade 90 is stored on its side."""
    path.parent.mkdir(parents=True, exist_ok=True)
    exif, size = Image.Exif(), (48, 64) if shade == 90 else (64, 48)
    exif[0x0112] = 6 if shade == 90 else 1
    Image.new("RGB", size, (shade, 80, 160)).save(path, exif=exif)


def lay_coco(root: Path, images: list[int], objects: list) -> None:
    """A COCO folder; every image has licence 2, and image 4 a page it was taken from."""
    for number in images:
        picture(root / f"val2017/{number:012d}.jpg", 10 * number)
    content = {
        "licenses": [{"id": 2, "name": "CC BY 2.0", "url": "https://example.org/by"}],
        "categories": CATEGORIES,
        "images": [
            {"id": number, "file_name": f"{number:012d}.jpg", "license": 2} for number in images
        ],
        "annotations": [
            {"id": 50 - k, "image_id": image, "category_id": category, "bbox": box, **more}
            for k, (image, category, box, more) in enumerate(objects)
        ],
    }
    content["images"][0]["flickr_url"] = "https://example.org/photo"
    write_json(root / "annotations/instances_val2017.json", content)


def lay_openimages(root: Path) -> None:
    """One image of a group of goats, and the list that says who took it."""
    picture(root / "validation/00aa.jpg", 200)
    (root / "class-descriptions-boxable.csv").write_text("/m/1,Animal\n/m/2,Goat\n")
    boxes = "ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf\n00aa,/m/2,0.1,0.9,0.2,0.7,1\n"
    (root / "validation-annotations-bbox.csv").write_text(boxes)
    tree = {
        "LabelName": "/m/0",
        "Subcategory": [{"LabelName": "/m/1", "Subcategory": [{"LabelName": "/m/2"}]}],
    }
    write_json(root / "bbox_labels_600_hierarchy.json", tree)
    credits = "ImageID,OriginalLandingURL,License,Author\n00aa,https://example.org/1,https://example.org/by,Ann\n"
    (root / "validation-images-with-rotation.csv").write_text(credits)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose benchmark was curated; to be read only."""
    root = tmp_path_factory.mktemp("project")
    lay_coco(root / "pets", [1], [(1, 3, [5, 5, 20, 20], {})])
    lay_coco(root / "pool", [4, 9, 12], OBJECTS)
    lay_openimages(root / "open")
    (root / "rules.yaml").write_text(RULES)
    (root / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    for name, params in PARAMS["datasets"].items():
        reader = datasets.create(**{**params, "root": root / params["root"]})
        ingest(reader, name, root / "artifacts/tables" / name)
    curate(parameters(root), TablesFolder(root / "artifacts/tables")).write(
        root / "artifacts/splits/pets"
    )
    return root


def parameters(root: Path):
    return benchmark("pets", {**PARAMS["benchmarks"]["pets"], "rules": root / "rules.yaml"})


def gathered(root: Path, splits=(), words=None) -> Publication:
    sections = {
        name: {**one, "root": root / one["root"]} for name, one in PARAMS["datasets"].items()
    }
    return collect("pets", parameters(root), sections, root / "artifacts", splits, words, root)


def shards(folder: Path, split: str) -> list[Path]:
    return sorted((folder / split).glob("*.parquet"))


def rows(folder: Path, split: str) -> list[dict]:
    return [
        row for path in shards(folder, split) for row in pq.ParquetFile(path).read().to_pylist()
    ]


def changed(publication: Publication, **columns) -> Publication:
    """A publication whose first split has other values in the first row of its images."""
    split = publication.splits[0]
    first = {name: [value, *getattr(split.images, name)[1:]] for name, value in columns.items()}
    images = split.images.with_columns(**first)
    return replace(
        publication, splits=(replace(split, source=LabelledImages(images, split.objects)),)
    )


# What comes back


@pytest.mark.parametrize(
    ("format", "reader"),
    [
        ("coco", {"format": "coco", "subset_names": SPLITS}),
        ("parquet", {"format": "fmiyc"}),
        ("huggingface", {"format": "fmiyc"}),
        *(("huggingface", {"format": "huggingface", "config": split}) for split in SPLITS),
    ],
)
def test_what_was_published_reads_back_as_the_same_tables(project, tmp_path, format, reader):
    publication = gathered(project)
    out = publish(publication, tmp_path / "out", format)
    found = datasets.create(root=out, **reader)
    ingest(found, "again", tmp_path / "tables")
    assert set(ingest_warnings(tmp_path / "tables")["counts"]) <= {KINDS["displayed"]}
    for split in publication.splits:
        if reader.get("config", split.name) != split.name:
            continue
        folder = tmp_path / "tables" / ("test" if "config" in reader else split.name)
        images, objects = (
            Images.read(folder / "images.parquet"),
            Objects.read(folder / "objects.parquet"),
        )
        for name in ("image_id", "width", "height", "digest"):
            assert getattr(images, name).tolist() == getattr(split.images, name).tolist(), name
        place = f"{split.name}/" if format == "coco" else ""
        assert images.file.tolist() == [f"{place}{file}" for file in split.images.file]
        wanted, objects = (one[np.argsort(one.object_id)] for one in (split.objects, objects))
        for name in wanted.columns():
            assert getattr(objects, name).tolist() == getattr(wanted, name).tolist(), name


def test_credits_that_were_published_as_coco_are_read_again(project, tmp_path):
    out = publish(gathered(project), tmp_path / "out", "coco")
    again = datasets.create("coco", root=out)
    (image_id, credit), *_ = again.credits("open_far")
    assert (image_id, credit.author, credit.source_url) == ("00aa", "Ann", "https://example.org/1")
    assert credit.license == credit.license_url == "https://example.org/by"


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(arrays.arrays(np.float32, (5, 4), elements=st.floats(0, 16384, width=32)))
def test_any_box_gives_its_edges_back_from_corner_and_size(values):
    edges = np.concatenate(
        [np.minimum(values[:, :2], values[:, 2:]), np.maximum(values[:, :2], values[:, 2:])], axis=1
    )
    boxes = xywh(edges)
    low, high = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    assert np.array_equal(np.concatenate([low, high], axis=1).astype(np.float32), edges)


# What is in the files


def test_coco_json_is_what_pycocotools_reads(project, tmp_path):
    from pycocotools.coco import COCO

    out = publish(gathered(project), tmp_path / "out", "coco")
    near = COCO(out / "annotations/instances_pool_near.json")
    assert near.getImgIds() == [4]
    (zebra,) = near.loadAnns(near.getAnnIds(imgIds=[4], catIds=near.getCatIds(catNms=["zebra"])))
    assert zebra == {
        "id": 49,
        "image_id": 4,
        "category_id": 3,
        "bbox": [10.1, 2.2, 20.3, 10.4],
        "area": 211.12,
        "iscrowd": 0,
    }
    far = COCO(out / "annotations/instances_pool_far.json")
    flags = {
        one["id"]: (one["iscrowd"], one.get("is_difficult", 0))
        for one in far.loadAnns(far.getAnnIds())
    }
    assert flags == {50: (0, 1), 48: (1, 0)}
    goats = COCO(out / "annotations/instances_open_far.json")
    assert goats.getImgIds() == ["00aa"]
    assert goats.loadCats(goats.getCatIds(catNms=["Goat"]))[0]["supercategory"] == "Animal"


def test_an_object_0_counts_in_pycocotools_and_comes_back_as_object_0(project, tmp_path):
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    out = publish(gathered(project, ["open_far"]), tmp_path / "out", "coco")
    assert gathered(project).splits[2].objects.object_id.tolist() == [0]
    truth = COCO(out / "annotations/instances_open_far.json")
    (goat,) = truth.loadAnns(truth.getAnnIds())
    truth.dataset["annotations"][0]["iscrowd"] = 0
    truth.createIndex()
    found = truth.loadRes(
        [{"image_id": "00aa", "category_id": 2, "bbox": goat["bbox"], "score": 0.9}]
    )
    evaluation = COCOeval(truth, found, "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    assert evaluation.stats[0] == pytest.approx(1)
    reader = datasets.create("coco", root=out, subset_names=("open_far",))
    assert reader.read("open_far").objects.object_id.tolist() == [0]


def test_parquet_has_the_published_columns(project, tmp_path):
    out = publish(gathered(project), tmp_path / "out", "parquet")
    (row,) = rows(out, "pool_near")
    assert list(row)[:5] == ["image", "file_name", "image_id", "height", "width"]
    assert list(row)[5:9] == ["dataset_origin", "distance_category", "objects", "categories"]
    assert (row["file_name"], row["image_id"]) == ("val2017/000000000004.jpg", "000000000004")
    assert (row["height"], row["width"], row["dataset_origin"], row["distance_category"]) == (
        48,
        64,
        "pool",
        "near",
    )
    flags = {"iscrowd": False, "is_difficult": False}
    assert row["objects"] == [
        {"id": 49, "area": 211.12, "bbox": [10.1, 2.2, 20.3, 10.4], "category_id": 2, **flags},
        {"id": 47, "area": 4.0, "bbox": [1.0, 1.0, 2.0, 2.0], "category_id": 1, **flags},
    ]
    assert row["categories"] == [
        {"id": 1, "name": "a|<b>", "supercategory": ""},
        {"id": 2, "name": "zebra", "supercategory": ""},
    ]
    assert (row["license"], row["source_url"], row["author"]) == (
        "CC BY 2.0",
        "https://example.org/photo",
        "",
    )


def test_columns_of_credits_are_there_only_where_a_source_gives_any(project, tmp_path):
    publication = gathered(project)
    silent = replace(
        publication, splits=tuple(replace(split, credits={}) for split in publication.splits)
    )
    out = publish(silent, tmp_path / "out", "parquet")
    assert len(rows(out, "pool_near")[0]) == 9


def test_a_large_split_comes_in_several_files_and_small_row_groups(project, tmp_path):
    publication = gathered(project)
    split = publication.splits[1]
    many = split.images[np.zeros(150, int)].with_columns(image_id=[f"{k:012d}" for k in range(150)])
    large = replace(split, source=LabelledImages(many, Objects.empty()))
    size = split.image_path(0).stat().st_size
    out = publish(
        replace(publication, splits=(large,)), tmp_path / "out", "parquet", shard_bytes=100 * size
    )
    files = shards(out, "pool_far")
    assert [path.name for path in files] == [
        "test-00000-of-00002.parquet",
        "test-00001-of-00002.parquet",
    ]
    groups = [pq.ParquetFile(path).metadata for path in files]
    assert [[one.row_group(k).num_rows for k in range(one.num_row_groups)] for one in groups] == [
        [64, 36],
        [50],
    ]
    assert [row["image_id"] for row in rows(out, "pool_far")] == many.image_id.tolist()


@pytest.mark.parametrize("format", ["coco", "parquet", "huggingface"])
def test_the_same_input_gives_the_same_bytes(project, tmp_path, format):
    folders = [publish(gathered(project), tmp_path / name, format) for name in ("a", "b")]
    a, b = (
        {path.relative_to(f): digest(path) for path in f.rglob("*") if path.is_file()}
        for f in folders
    )
    assert a == b


def test_a_split_of_the_id_dataset_is_published_when_it_is_named(project, tmp_path):
    out = publish(gathered(project, ["val"]), tmp_path / "out", "parquet")
    assert [path.name for path in shards(out, "val")] == ["validation-00000-of-00001.parquet"]
    assert rows(out, "val")[0]["distance_category"] == "ID"


# Dataset card and Croissant


@pytest.fixture(scope="module")
def hub(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the hub with people's words; to be read only."""
    words = Words(
        title="Not cats", license="cc-by-4.0", creators=("Ann",), answers={"funding": "A grant."}
    )
    return publish(
        gathered(project, words=words), tmp_path_factory.mktemp("hub") / "out", "huggingface"
    )


def test_the_card_names_each_configuration_and_its_files_and_their_schema_names_the_classes(hub):
    card = DatasetCard.load(hub / "README.md")
    front = card.data.to_dict()
    assert (front["pretty_name"], front["license"]) == ("Not cats", "cc-by-4.0")
    assert front["size_categories"] == ["n<1K"]
    assert card.text.lstrip().startswith("# Not cats")
    assert [config["config_name"] for config in front["configs"]] == list(SPLITS)
    for config in front["configs"]:
        (files,) = config["data_files"]
        assert sorted(hub.glob(files["path"])) == shards(hub, config["config_name"])
    features = json.loads(pq.read_schema(shards(hub, "open_far")[0]).metadata[b"huggingface"])[
        "info"
    ]["features"]
    assert features["objects"][0]["category_id"] == {
        "names": ["Animal", "Goat"],
        "_type": "ClassLabel",
    }
    assert features["objects"][0]["bbox"] == [{"dtype": "float64", "_type": "Value"}]


def test_the_card_has_counts_and_marks_open_questions(hub):
    text = (hub / "README.md").read_text()
    assert "| `pool_far` | pool (val2017) | far | 1 | 2 | 1 |" in text
    assert "| pool (val2017) | removed | an ID class is labelled | 1 |" in text
    assert "Of 4 images there, 1 was removed." in text
    assert "2 objects are marked as groups (`iscrowd`) and 1 as difficult" in text
    assert "**Who paid for it?**\n\nA grant." in text
    assert "*Not answered yet (`contact`).*" in text
    assert not re.search(r"\{\w+\}", text)
    assert (
        "| a&#124;&lt;b&gt; | 2 | 1 |" in text
    )  # names from datasets neither end a cell nor become markup


def test_the_card_says_which_licences_are_known_and_which_are_not(project, hub, tmp_path):
    known = (hub / "README.md").read_text()
    assert "CC BY 2.0 (2 images), https://example.org/by (1 image)." in known
    assert "is not known" not in known
    publication = gathered(project)
    near, far, goats = publication.splits
    partly = replace(publication, splits=(near, far, replace(goats, credits={})))
    text = (publish(partly, tmp_path / "out", "huggingface") / "README.md").read_text()
    assert "The licence of 1 image is not known" in text


def test_similarity_is_told_where_it_was_measured(project, hub, tmp_path):
    assert "Similarity" not in (hub / "README.md").read_text()
    root = tmp_path / "project"
    shutil.copytree(project, root)
    figures = {
        "images": 1,
        "similarity": 0.75,
        "median": 0.7,
        "low": 0.5,
        "high": 0.9,
        "elsewhere": 0,
    }
    write_json(root / "artifacts/counts/similarity/pets.json", {"pool_near": figures})
    text = (publish(gathered(root), tmp_path / "out", "huggingface") / "README.md").read_text()
    assert "| `pool_near` | 0.750 | 0.700 | 0.500 | 0.900 |" in text


def test_croissant_names_every_file_with_its_size_and_content(hub):
    content = json.loads((hub / "croissant.json").read_text())
    assert content["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    listed = [part for part in content["distribution"] if part["@type"] == "cr:FileObject"]
    assert {part["contentUrl"] for part in listed} == {
        path.relative_to(hub).as_posix() for path in hub.rglob("*.parquet")
    }
    for part in listed:
        held = (hub / part["contentUrl"]).read_bytes()
        assert part["sha256"] == hashlib.sha256(held).hexdigest()
        assert part["contentSize"] == f"{len(held)} B"


def test_mlcroissant_accepts_the_description_and_reads_the_records(hub, caplog):
    import mlcroissant

    dataset = mlcroissant.Dataset(jsonld=hub / "croissant.json")
    assert dataset.metadata.issues.errors == set()
    assert "not standard" not in caplog.text
    for split in SPLITS:
        (row,) = dataset.records(split)
        assert list(row) == [
            f"{split}/{column}" for column in pq.read_schema(shards(hub, split)[0]).names
        ]
        assert (row[f"{split}/image"].size, row[f"{split}/width"]) == ((64, 48), 64)
    names = [one["open_far-categories/name"] for one in dataset.records("open_far-categories")]
    assert names == ["Animal", "Goat"]


# People's words


def test_words_come_from_a_file(tmp_path):
    file = tmp_path / "words.yaml"
    file.write_text(
        "title: Mine\npublished: 2026-11-21\ncreators: [Ann, Ben]\nanswers: {host: Ann's group.}\n"
    )
    words = read_words(file)
    assert (words.title, words.creators, words.answers["host"]) == (
        "Mine",
        ("Ann", "Ben"),
        "Ann's group.",
    )
    assert words.published is not None
    assert words.published.isoformat() == "2026-11-21"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("answers: {who: me}", "unknown question 'who'. Known: purpose, creators"),
        ("licence: cc0", "unknown parameter 'licence'. Known: title"),
        ("[a, b]", "expected a mapping from title, summary, … to text, found"),
        ("a: [", "not YAML"),
        (None, "does not exist"),
    ],
)
def test_wrong_words_are_refused_in_plain_words(tmp_path, text, message):
    file = tmp_path / "words.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_words(file)
    assert str(file) in str(caught.value)


# What is refused


def test_an_earlier_publication_is_replaced_as_a_whole(project, tmp_path):
    out = publish(gathered(project), tmp_path / "out", "huggingface")
    publish(gathered(project, ["open_far"]), out, "parquet")
    assert sorted(path.name for path in out.iterdir()) == ["open_far", "publication.json"]


def test_a_folder_with_anything_of_others_is_left_alone(project, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(ParameterError, match="`publish` did not write it; choose another folder"):
        publish(gathered(project), out, "coco")
    (out / "thesis.txt").unlink()
    publish(gathered(project), out, "coco")
    (out / ".git").mkdir()
    with pytest.raises(ParameterError, match=r"\.git was not written by `publish`"):
        publish(gathered(project), out, "coco")
    assert (out / "annotations").is_dir()
    with pytest.raises(ParameterError, match="is not a folder"):
        publish(gathered(project), project / "rules.yaml", "coco")


def test_a_card_that_was_written_on_is_not_lost(project, tmp_path):
    out = publish(gathered(project), tmp_path / "out", "huggingface")
    with (out / "README.md").open("a") as file:
        file.write("My words.")
    with pytest.raises(ParameterError, match=r"README\.md was changed since"):
        publish(gathered(project), out, "huggingface")
    assert (out / "README.md").read_text().endswith("My words.")


@pytest.mark.parametrize(
    ("columns", "place", "message"),
    [
        ({"digest": "another"}, "field 'digest'", "has changed since it was ingested"),
        ({"file": "val2017/none.jpg"}, "field 'file'", "cannot be read"),
    ],
)
@pytest.mark.parametrize("format", ["coco", "parquet"])
def test_an_image_that_is_not_the_one_that_was_curated_ends_it_and_nothing_is_left(
    project, tmp_path, format, columns, place, message
):
    publication = changed(gathered(project), **columns)
    with pytest.raises(DataError, match=message) as caught:
        publish(publication, tmp_path / "out", format)
    assert f"pool_near/images.parquet: row 0: {place}" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_object_of_a_category_that_its_dataset_lacks_is_refused(project):
    split = gathered(project).splits[0]
    objects = split.objects.with_columns(category=["zebra", "unicorn"])
    with pytest.raises(DataError, match="row 1: field 'category': 'unicorn' is not a category"):
        replace(split, source=LabelledImages(split.images, objects))


def test_an_unknown_or_an_empty_split_is_refused(project, tmp_path):
    with pytest.raises(
        ParameterError, match=r"unknown split of benchmark 'pets' 'moon'\. Known: .*open_far"
    ):
        gathered(project, ["moon"])
    root = tmp_path / "project"
    shutil.copytree(project, root)
    Images.empty().write(root / "artifacts/splits/pets/open_far/images.parquet")
    with pytest.raises(ParameterError, match=r"split 'open_far' has no images"):
        gathered(root)


def test_the_stage_publishes_and_refuses_in_one_line(project, tmp_path, commands):
    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [commands / "farther", "benchmark", "publish", "pets", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib")}
        return subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, check=False
        )

    done = run(str(tmp_path / "out"), "--format", "parquet", "--split", "open_far")
    assert done.stdout.splitlines()[0] == "open_far: 1 images, 1 objects", done.stderr
    assert len(rows(tmp_path / "out", "open_far")) == 1
    refused = run(str(project / "pool"), "--format", "coco")
    assert refused.returncode == 2
    assert refused.stderr.startswith("farther benchmark publish: ")
    assert len(refused.stderr.splitlines()) == 1
