"""FindMeIfYouCan's columns as they are published, written here from their list."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from farther import datasets
from farther.datasets.ingest import ingest
from farther.errors import DataError
from farther.tables import Images, Objects

SHARD = "coco_far_voc/test-00000-of-00001.parquet"


def row(image_id="000000000139", categories=None, objects=None):
    file = io.BytesIO()
    Image.new("RGB", (64, 48)).save(file, "JPEG")
    return {
        "image": {"bytes": file.getvalue(), "path": f"{image_id}.jpg"},
        "file_name": f"{image_id}.jpg",
        "image_id": image_id,
        "height": 48,
        "width": 64,
        "dataset_origin": "COCO",
        "distance_category": "far",
        "objects": objects
        or {"id": [1768, 42], "bbox": [[10.5, 8, 30, 40], [1, 2, 2, 3]], "category_id": [25, 90]},
        "categories": categories
        or {"names": ["giraffe", "toothbrush"], "supercategories": ["animal", "indoor"]},
    }


def parquet(*rows):
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), file)
    return file.getvalue()


def read(root, subset="coco_far_voc", **params):
    return datasets.create("fmiyc", root=root, **params).read(subset)


def named(annotations):
    return [annotations.categories[k] for k in annotations.objects.category]


def test_each_configuration_is_a_subset_and_its_images_keep_their_names(lay, tmp_path):
    root = lay(
        {
            SHARD: parquet(row()),
            "oi_near_voc/test-00000-of-00001.parquet": parquet(row("0001eeaf4aed83f9")),
        }
    )
    reader = datasets.create("fmiyc", root=root)
    summary = ingest(reader, "fmiyc", tmp_path / "out")
    assert list(summary) == ["coco_far_voc", "oi_near_voc"]
    assert summary["coco_far_voc"] == {"images": 1, "objects": 2, "categories": 2, "warnings": 0}
    images = Images.read(tmp_path / "out/coco_far_voc/images.parquet")
    assert (images.image_id.tolist(), images.file.tolist()) == (
        ["000000000139"],
        ["000000000139.jpg"],
    )
    objects = Objects.read(tmp_path / "out/coco_far_voc/objects.parquet")
    assert objects.object_id.tolist() == [1768, 42]
    assert objects.box.tolist() == [[10.5, 8, 40.5, 48], [1, 2, 3, 5]]
    assert objects.category.tolist() == ["giraffe", "toothbrush"]


def test_configurations_of_the_card_are_subsets(lay):
    card = "---\nconfigs:\n- config_name: oi_far_voc\n  data_files: {test: 'files/b-*'}\n---\n"
    root = lay({"README.md": card, "files/b-0.parquet": parquet(row())})
    assert datasets.create("fmiyc", root=root).subsets() == ["oi_far_voc"]


@pytest.mark.parametrize(
    "categories",
    [
        {
            "id": [90, 1, 25],
            "name": ["toothbrush", "person", "giraffe"],
            "supercategory": ["x", "y", "z"],
        },
        [
            {"id": 25, "name": "giraffe", "supercategory": "animal"},
            {"id": 90, "name": "toothbrush"},
        ],
        {"names": ["giraffe", "toothbrush"]},
    ],
    ids=["ids and names", "records", "a name an object"],
)
def test_names_belong_to_their_ids_or_else_to_the_objects(lay, categories):
    assert named(read(lay({SHARD: parquet(row(categories=categories))}))) == [
        "giraffe",
        "toothbrush",
    ]


def test_names_can_be_given_by_number(lay):
    objects = [{"id": 1, "bbox": [1, 2, 3, 4], "category_id": 1}]
    root = lay({SHARD: parquet(row(objects=objects, categories={"names": ["a", "b", "c"]}))})
    assert named(read(root, categories=["cat", "dog"])) == ["dog"]


@pytest.mark.parametrize(
    ("categories", "problem"),
    [
        (
            {"names": ["giraffe"]},
            "row 0: field 'categories': expected names with ids, or a name for each of 2 objects",
        ),
        (
            {"id": [25], "name": ["giraffe"]},
            r"row 0 objects\[1\]: field 'category_id': no category has the id 90",
        ),
        (
            {"id": [25, 90, 25], "name": ["giraffe", "toothbrush", "horse"]},
            "25 is called 'horse' and 'giraffe'",
        ),
        (
            {"id": [25, 90], "name": ["giraffe", "giraffe"]},
            "the classes 25 and 90 are both called 'giraffe'",
        ),
        (
            {"id": [25, 90], "name": ["giraffe", None]},
            "row 0: field 'categories': the class 90 is called None",
        ),
    ],
)
def test_a_class_without_one_name_is_an_error_that_names_row_and_field(lay, categories, problem):
    with pytest.raises(DataError, match=problem):
        read(lay({SHARD: parquet(row(categories=categories))}))
