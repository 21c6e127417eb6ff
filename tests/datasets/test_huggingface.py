"""Folders as the library `datasets` writes them; its Parquet schema has the features as JSON."""

import io
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from farther import datasets
from farther.datasets.ingest import ingest
from farther.errors import DataError
from farther.tables import Images, Objects

SHARD = "data/train-00000-of-00001.parquet"
NAMES = ["cat", "guide dog"]
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def picture(width=40, height=20, colour="red", form="PNG"):
    file = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(file, form)
    return file.getvalue()


def labelled(names=NAMES):
    """The features of `Sequence({"bbox": …, "category": ClassLabel(names)})`."""
    inner = {
        "bbox": {
            "feature": {"dtype": "float32", "_type": "Value"},
            "length": 4,
            "_type": "Sequence",
        }
    }
    inner["category"] = {"names": names, "_type": "ClassLabel"}
    return {"image": {"_type": "Image"}, "objects": {"feature": inner, "_type": "Sequence"}}


def row(objects, **others):
    return {"image": {"bytes": picture(), "path": None}, "objects": objects} | others


LISTS = {"bbox": [[1.0, 2, 3, 4], [0, 0, 40, 20]], "category": [1, 0]}


def parquet(rows, features=None, schema=None):
    table = pa.Table.from_pylist(rows, schema)
    if features is not None:
        table = table.replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": features}})}
        )
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def stream(rows):
    table = pa.Table.from_pylist(rows)
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def read(root, subset="train", **params):
    return datasets.create("huggingface", root=root, **params).read(subset)


def named(annotations):
    return [annotations.categories[k] for k in annotations.objects.category]


def test_images_in_parquet_become_files_once_and_tables_point_at_them(lay, tmp_path):
    root = lay({SHARD: parquet([row(LISTS), row({"bbox": [], "category": []})], labelled())})
    reader = datasets.create("huggingface", root=root)
    summary = ingest(reader, "pets", tmp_path / "tables/pets")
    assert summary == {"train": {"images": 2, "objects": 2, "categories": 2, "warnings": 0}}
    images = Images.read(tmp_path / "tables/pets/train/images.parquet")
    assert images.image_id.tolist() == ["000000", "000001"]
    assert images.file.tolist() == ["train/000000.png", "train/000001.png"]
    assert (images.width.tolist(), images.height.tolist()) == ([40, 40], [20, 20])
    where = datasets.image_roots({"pets": {"root": str(root)}}, tmp_path / "tables")["pets"]
    assert (where / images.file[0]).read_bytes() == picture()
    objects = Objects.read(tmp_path / "tables/pets/train/objects.parquet")
    assert objects.box.tolist() == [[1, 2, 4, 6], [0, 0, 40, 20]]
    assert objects.category.tolist() == ["guide dog", "cat"]
    assert sorted(path.name for path in root.iterdir()) == ["data"]


def test_objects_may_be_a_list_of_records_with_ids_and_flags(lay):
    objects = [
        {
            "id": 7,
            "bbox": [1, 2, 3, 4],
            "category_id": 1,
            "iscrowd": True,
            "is_difficult": False,
            "area": 12,
        },
        {
            "id": 5,
            "bbox": [0, 0, 9, 9],
            "category_id": 0,
            "iscrowd": False,
            "is_difficult": True,
            "area": 81,
        },
    ]
    annotations = read(lay({SHARD: parquet([row(objects, image_id=3)])}), categories=NAMES)
    assert annotations.images.image_id.tolist() == ["3"]
    assert annotations.objects.object_id.tolist() == [7, 5]
    assert annotations.objects.is_crowd.tolist() == [True, False]
    assert annotations.objects.is_difficult.tolist() == [False, True]


def test_ids_that_start_anew_in_each_image_are_counted_instead_and_listed(lay):
    objects = [{"id": 0, "bbox": [1, 2, 3, 4], "category": "cat"}]
    annotations = read(lay({SHARD: parquet([row(objects), row(objects)])}))
    assert annotations.objects.object_id.tolist() == [0, 1]
    (warning,) = annotations.warnings
    assert (warning.kind, warning.found) == ("object ids not unique", "1 ids of 2 objects")


@pytest.mark.parametrize(
    ("box_format", "box"),
    [("xywh", [4, 2, 8, 6]), ("xyxy", [4, 2, 12, 8]), ("cxcywh", [8, 5, 8, 6])],
)
def test_boxes_are_read_in_each_form(lay, box_format, box):
    root = lay({SHARD: parquet([row({"bbox": [box], "category": ["cat"]})])})
    assert read(root, box_format=box_format).objects.box.tolist() == [[4, 2, 12, 8]]


def test_boxes_may_be_fractions_of_the_image(lay, tmp_path):
    root = lay({SHARD: parquet([row({"bbox": [[0.25, 0.5, 0.5, 0.25]], "category": ["cat"]})])})
    ingest(datasets.create("huggingface", root=root, box_unit="image"), "pets", tmp_path / "out")
    assert Objects.read(tmp_path / "out/train/objects.parquet").box.tolist() == [[10, 10, 30, 15]]


def test_columns_may_be_called_otherwise(lay):
    rows = [{"photo": {"bytes": picture(), "path": None}, "box": [[1, 2, 3, 4]], "kind": ["cat"]}]
    annotations = read(
        lay({SHARD: parquet(rows)}), image="photo", objects="", bbox="box", category="kind"
    )
    assert named(annotations) == ["cat"]
    assert annotations.location(0) == (SHARD, "000000 [0]")


def test_class_labels_are_found_in_the_card_too(lay):
    card = (
        "---\n"
        "dataset_info:\n"
        "  features:\n"
        "  - name: objects\n"
        "    sequence:\n"
        "    - name: bbox\n"
        "      sequence: float32\n"
        "    - name: category\n"
        "      dtype:\n"
        "        class_label:\n"
        "          names:\n"
        "            '0': cat\n"
        "            '1': guide dog\n"
        "---\n"
        "# Pets\n"
    )
    annotations = read(lay({SHARD: parquet([row(LISTS)]), "README.md": card}))
    assert annotations.categories == NAMES
    assert named(annotations) == ["guide dog", "cat"]


def test_class_labels_are_those_of_the_configuration_that_is_read(lay):
    label = "{{class_label: {{names: {{'0': {1}, '1': {2}}}}}}}"
    info = "- config_name: {0}\n  features:\n  - name: category\n    dtype: " + label + "\n"
    pets = info.format("pets", "cat", "dog")
    zoo = info.format("zoo", "lion", "zebra")
    infos = f"dataset_info:\n{pets}{zoo}"
    configs = (
        "configs:\n"
        "- {config_name: pets, data_files: data/*}\n"
        "- {config_name: zoo, default: true, data_files: data/*}\n"
    )
    root = lay({SHARD: parquet([row(LISTS)]), "README.md": f"---\n{infos}{configs}---\n"})
    assert named(read(root)) == ["zebra", "lion"]
    assert named(read(root, config="pets")) == ["dog", "cat"]


def test_the_card_says_which_files_belong_to_which_split_of_which_configuration(lay):
    card = """---
configs:
- config_name: small
  data_files:
  - split: train
    path: small/part-*.parquet
  - split: val
    path: [small/v.parquet]
- config_name: large
  default: true
  data_files: all.parquet
---
"""
    content = parquet([row(LISTS)], labelled())
    files = {"small/part-0.parquet": content, "small/v.parquet": content, "all.parquet": content}
    root = lay({"README.md": card, **files})
    assert datasets.create("huggingface", root=root).subsets() == ["train"]
    assert datasets.create("huggingface", root=root, config="small").subsets() == ["train", "val"]
    assert read(root, "val", config="small").files == ["small/v.parquet"]
    with pytest.raises(
        DataError, match=r"README.md: field 'configs': no configuration 'tiny'; .* small, large"
    ):
        datasets.create("huggingface", root=root, config="tiny").subsets()


def test_shards_are_read_in_order_and_rows_are_counted_through(lay):
    shards = {
        f"data/test-0000{k}-of-00003.parquet": parquet([row(LISTS)], labelled()) for k in (2, 0, 1)
    }
    annotations = read(lay(shards), "test")
    assert annotations.images.image_id.tolist() == ["000000", "000001", "000002"]
    assert annotations.files == sorted(shards)
    assert annotations.location(3) == (sorted(shards)[1], "000001 objects[1]")


def test_what_save_to_disk_wrote_is_read(lay):
    files = {
        "dataset_dict.json": {"splits": ["train"]},
        "train/state.json": {},
        "train/cache-1f.arrow": b"",
        "train/data-00000-of-00001.arrow": stream([row(LISTS)]),
        "train/dataset_info.json": {"features": labelled()},
    }
    root = lay(files)
    assert datasets.create("huggingface", root=root).subsets() == ["train"]
    assert named(read(root)) == ["guide dog", "cat"]


def test_a_folder_of_images_with_json_lines_is_read_where_it_lies(lay, tmp_path):
    line = {"file_name": "x/a.png", "objects": {"bbox": [[1, 2, 3, 4]], "categories": ["cat"]}}
    root = lay({"test/metadata.jsonl": json.dumps(line) + "\n\n", "test/x/a.png": (40, 20)})
    summary = ingest(datasets.create("huggingface", root=root), "pets", tmp_path / "tables/pets")
    assert summary["test"]["objects"] == 1
    assert Images.read(tmp_path / "tables/pets/test/images.parquet").file.tolist() == [
        "test/x/a.png"
    ]
    assert datasets.image_roots({"pets": {"root": str(root)}}, tmp_path / "tables") == {
        "pets": root
    }


def test_a_split_of_which_files_are_missing_is_refused_until_those_to_read_are_named(lay):
    content = parquet([row(LISTS)], labelled())
    root = lay({f"data/train-0000{number}-of-00003.parquet": content for number in (0, 2)})
    with pytest.raises(
        DataError, match=r"2 of 3 files of the split 'train' are there; fetch the others, or name"
    ):
        read(root)
    assert len(read(root, files={"train": ["data/train-*"]}).images) == 2


def test_a_split_of_the_card_that_is_not_there_is_listed(lay, tmp_path):
    card = (
        "---\nconfigs:\n- config_name: default\n  data_files:\n"
        "  - {split: train, path: data/train-*}\n  - {split: test, path: data/test-*}\n---\n"
    )
    root = lay({SHARD: parquet([row(LISTS)], labelled()), "README.md": card})
    reader = datasets.create("huggingface", root=root)
    assert reader.absent_subsets() == {"test": "data/test-*"}
    assert ingest(reader, "pets", tmp_path / "pets")["train"]["warnings"] == 1


def test_files_of_one_split_in_two_folders_are_an_error_until_one_is_chosen(lay):
    content = parquet([row(LISTS)], labelled())
    root = lay(
        {"a/train-00000-of-00001.parquet": content, "b/train-00000-of-00001.parquet": content}
    )
    with pytest.raises(
        DataError, match="files of 'train' lie in a and in b; parameter 'config' chooses a folder"
    ):
        datasets.create("huggingface", root=root).subsets()
    assert read(root, config="b").files == ["b/train-00000-of-00001.parquet"]


@pytest.mark.parametrize(
    ("objects", "place", "problem"),
    [
        (
            {"bbox": [[1.0, 2, 3, 4]], "category": [0, 1]},
            "row 0: field 'objects'",
            "found 1 × bbox, 2 × category",
        ),
        (
            {"bbox": [[1.0, 2, 3]], "category": [0]},
            "row 0 objects[0]: field 'bbox'",
            "expected 4 numbers",
        ),
        (
            {"bbox": [[1.0, 2, 3, float("nan")]], "category": [0]},
            "field 'bbox'",
            "expected a finite number, found [1.0",
        ),
        (
            {"bbox": [[1.0, 2, -3, 4]], "category": [0]},
            "row 000000 objects[0]: field 'bbox'",
            "size is negative",
        ),
        (
            {"bbox": [[1.0, 2, 3, 4]], "category": [2]},
            "field 'category'",
            "no class has the number 2; known: 0 to 1",
        ),
        (
            {"bbox": [[1.0, 2, 3, 4]], "category": [0.5]},
            "field 'category'",
            "expected an integer, found 0.5",
        ),
        ({"boxes": [[1.0, 2, 3, 4]], "category": [0]}, "field 'bbox'", "the field is missing"),
        (
            [{"bbox": [1, 2, 3, 4], "category": 0, "iscrowd": 2}],
            "field 'iscrowd'",
            "expected 0 or 1, found 2",
        ),
    ],
)
def test_a_wrong_object_is_an_error_that_names_file_row_and_field(lay, objects, place, problem):
    root = lay({SHARD: parquet([row(objects)], labelled())})
    with pytest.raises(DataError, match=re.escape(problem)) as error:
        read(root)
    assert f"{root / SHARD}: " in str(error.value)
    assert place in str(error.value)


A = row(LISTS, image_id="a")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            [A, A],
            "row 1: field 'image_id': image 'a' occurs twice, first with the file train/a.png",
        ),
        (
            [row(LISTS, file_name="../a.png")],
            "row 0: field 'file_name': file name '../a.png' leaves its folder",
        ),
        (
            [row(LISTS, image_id="../../a")],
            "row 0: field 'image_id': file name 'train/../../a.png' leaves",
        ),
        (
            [{"objects": LISTS}],
            "row 0: field 'image': expected the bytes or the path of an image, found None",
        ),
        (
            [{"image": {"path": "/etc/passwd"}, "objects": LISTS}],
            "field 'image': file name '/etc/passwd' leaves",
        ),
        (
            [row(LISTS, width=-4)],
            "row 0: field 'width': expected a positive number of pixels, found -4",
        ),
        (
            [{"image": {"bytes": b"x"}}],
            "row 0: field 'objects': the column is missing; there are image",
        ),
    ],
)
def test_a_wrong_row_is_an_error_that_names_file_row_and_field(lay, rows, problem):
    with pytest.raises(DataError, match=re.escape(problem)):
        read(lay({SHARD: parquet(rows, labelled())}), subset="train")


def test_numbers_that_nothing_names_are_an_error_that_says_how_to_name_them(lay):
    with pytest.raises(
        DataError, match="no class has the number 1; known: none: parameter 'categories'"
    ):
        read(lay({SHARD: parquet([row(LISTS)])}))


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({SHARD: b"PAR1"}, "not a readable Parquet file"),
        ({SHARD: parquet([row(LISTS)], labelled())[:-20]}, "not a readable Parquet file"),
        ({"data/train-00000-of-00001.arrow": b"\xff\xff\xff\xff0000"}, "not a readable Arrow file"),
        ({"train/metadata.jsonl": '{"file_name": '}, "row 1: not JSON"),
        ({"train/metadata.jsonl": "[]"}, "row 1: expected an object, found []"),
        ({"train/metadata.jsonl": "é".encode("latin-1")}, "not UTF-8 at byte 0"),
        (
            {SHARD: parquet([row(LISTS)]), "README.md": "---\nconfigs: [\n---\n"},
            "README.md: not YAML",
        ),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(lay, files, problem):
    root = lay(files)
    with pytest.raises(DataError, match=re.escape(problem)) as error:
        read(root)
    assert any(str(error.value).startswith(str(root / name)) for name in files)


def test_two_images_of_one_name_are_an_error(lay, tmp_path):
    blue = {
        "image": {"bytes": picture(colour="blue"), "path": None},
        "objects": LISTS,
        "file_name": "a.png",
    }
    shards = {
        SHARD: parquet([row(LISTS, file_name="a.png")], labelled()),
        SHARD.replace("train", "val"): parquet([blue], labelled()),
    }
    with pytest.raises(DataError, match=r"val-00000.*two images are called 'a.png'"):
        ingest(datasets.create("huggingface", root=lay(shards)), "pets", tmp_path / "out")


def test_a_split_that_was_not_downloaded_is_left_out_unless_it_is_asked_for(lay):
    card = (
        "---\n"
        "configs:\n"
        "- config_name: default\n"
        "  data_files: {train: data/train-*, test: data/test-*}\n"
        "---\n"
    )
    root = lay({SHARD: parquet([row(LISTS)], labelled()), "README.md": card})
    assert datasets.create("huggingface", root=root).subsets() == ["train"]
    with pytest.raises(DataError, match="no files of the split 'test'; there are: train"):
        read(root, "test")
    with pytest.raises(DataError, match=r"no file of 'test' matches data/test-\*; see 'files'"):
        datasets.create("huggingface", root=root, files={"test": ["data/test-*"]}).subsets()


def test_patterns_do_not_lead_out_of_the_root(lay):
    root = lay({SHARD: parquet([row(LISTS)], labelled())})
    with pytest.raises(DataError, match=r"file name '../\*' leaves its folder"):
        datasets.create("huggingface", root=root, files={"train": ["../*"]}).subsets()
