"""A benchmark of three OOD splits, made from a COCO and an OpenImages dataset."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from farther import datasets
from farther.curation import TablesFolder, benchmark, curate
from farther.datasets.ingest import ingest
from farther.publication import Publication, Words, collect, publish
from farther.tables.documents import write_json

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


def write_image(path: Path, shade: int) -> None:
    """A picture that is displayed as 64 × 48; that of shade 90 is stored on its side."""
    path.parent.mkdir(parents=True, exist_ok=True)
    exif, size = Image.Exif(), (48, 64) if shade == 90 else (64, 48)
    exif[0x0112] = 6 if shade == 90 else 1
    Image.new("RGB", size, (shade, 80, 160)).save(path, exif=exif)


def write_coco_dataset(root: Path, images: list[int], objects: list) -> None:
    """A COCO folder; every image has licence 2, and image 4 a page it was taken from."""
    for number in images:
        write_image(root / f"val2017/{number:012d}.jpg", 10 * number)
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


def write_openimages_dataset(root: Path) -> None:
    """One image of a group of goats, and the list that says who took it."""
    write_image(root / "validation/00aa.jpg", 200)
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


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose benchmark was curated; to be read only."""
    root = tmp_path_factory.mktemp("project")
    write_project(root)
    return root


def write_project(root: Path) -> None:
    """A project with three datasets whose benchmark was curated."""
    write_coco_dataset(root / "pets", [1], [(1, 3, [5, 5, 20, 20], {})])
    write_coco_dataset(root / "pool", [4, 9, 12], OBJECTS)
    write_openimages_dataset(root / "open")
    (root / "rules.yaml").write_text(RULES)
    (root / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    for name, params in PARAMS["datasets"].items():
        reader = datasets.create(**{**params, "root": root / params["root"]})
        ingest(reader, name, root / "artifacts/tables" / name)
    curate(parameters(root), TablesFolder(root / "artifacts/tables")).write(
        root / "artifacts/splits/pets"
    )


def parameters(root: Path):
    return benchmark("pets", {**PARAMS["benchmarks"]["pets"], "rules": root / "rules.yaml"})


def collect_publication(root: Path, splits=(), words=None) -> Publication:
    sections = {
        name: {**one, "root": root / one["root"]} for name, one in PARAMS["datasets"].items()
    }
    return collect("pets", parameters(root), sections, root / "artifacts", splits, words, root)


def shard_files(folder: Path, split: str) -> list[Path]:
    return sorted((folder / split).glob("*.parquet"))


def read_rows(folder: Path, split: str) -> list[dict]:
    return [
        row
        for path in shard_files(folder, split)
        for row in pq.ParquetFile(path).read().to_pylist()
    ]


@pytest.fixture(scope="session")
def hub(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the hub with people's words; to be read only."""
    words = Words(
        title="Not cats", license="cc-by-4.0", creators=("Ann",), answers={"funding": "A grant."}
    )
    return publish(
        collect_publication(project, words=words),
        tmp_path_factory.mktemp("hub") / "out",
        "huggingface",
    )
