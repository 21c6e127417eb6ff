"""Exports of annotation tools, each in its true format: one cat in the image a.jpg."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from farther import datasets
from farther.errors import DataError
from farther.projects import recognise
from farther.projects.exports import refuse_export

CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta><task><id>7</id><name>pets</name><size>1</size><mode>annotation</mode>
    <labels><label><name>cat</name><color>#8000e0</color><type>rectangle</type><attributes></attributes></label></labels>
  </task></meta>
  <image id="0" name="a.jpg" width="100" height="80">
    <box label="cat" source="manual" occluded="0"
      xtl="10.00" ytl="20.00" xbr="40.00" ybr="60.00" z_order="0"></box>
  </image>
</annotations>
"""
LABEL_STUDIO = [
    {
        "id": 1,
        "annotations": [
            {
                "id": 4,
                "completed_by": 1,
                "result": [
                    {
                        "original_width": 100,
                        "original_height": 80,
                        "image_rotation": 0,
                        "value": {
                            "x": 10,
                            "y": 25,
                            "width": 30,
                            "height": 50,
                            "rotation": 0,
                            "rectanglelabels": ["cat"],
                        },
                        "id": "p9a",
                        "from_name": "label",
                        "to_name": "image",
                        "type": "rectanglelabels",
                        "origin": "manual",
                    }
                ],
                "was_cancelled": False,
                "ground_truth": False,
            }
        ],
        "file_upload": "0c1f-a.jpg",
        "drafts": [],
        "predictions": [],
        "data": {"image": "a.jpg"},
        "meta": {},
    }
]
LABELME = {
    "version": "5.5.0",
    "flags": {},
    "shapes": [
        {
            "label": "cat",
            "points": [[10, 20], [40, 60]],
            "group_id": None,
            "description": "",
            "shape_type": "rectangle",
            "flags": {},
        }
    ],
    "imagePath": "a.jpg",
    "imageData": None,
    "imageHeight": 80,
    "imageWidth": 100,
}
VIA = {
    "a.jpg823": {
        "filename": "a.jpg",
        "size": 823,
        "regions": [
            {
                "shape_attributes": {"name": "rect", "x": 10, "y": 20, "width": 30, "height": 40},
                "region_attributes": {"label": "cat"},
            }
        ],
        "file_attributes": {},
    }
}
VIA_CSV = """\
filename,file_size,file_attributes,region_count,region_id,\
region_shape_attributes,region_attributes
a.jpg,823,"{}",1,0,"{""name"":""rect"",""x"":10,""y"":20,""width"":30,""height"":40}","{""label"":""cat""}"
"""
SUPERVISELY_META = {
    "classes": [
        {
            "title": "cat",
            "shape": "rectangle",
            "color": "#8000E0",
            "geometry_config": {},
            "id": 3,
            "hotkey": "",
        }
    ],
    "tags": [],
    "projectType": "images",
}
SUPERVISELY = {
    "description": "",
    "tags": [],
    "size": {"height": 80, "width": 100},
    "objects": [
        {
            "id": 12,
            "classId": 3,
            "description": "",
            "geometryType": "rectangle",
            "labelerLogin": "me",
            "createdAt": "2026-01-02T03:04:05.000Z",
            "updatedAt": "2026-01-02T03:04:05.000Z",
            "tags": [],
            "classTitle": "cat",
            "points": {"exterior": [[10, 20], [40, 60]], "interior": []},
        }
    ],
}
LABELBOX = {
    "data_row": {
        "id": "cl1",
        "global_key": "a.jpg",
        "external_id": "a.jpg",
        "row_data": "https://images.example/a.jpg",
    },
    "media_attributes": {
        "height": 80,
        "width": 100,
        "mime_type": "image/jpeg",
        "exif_rotation": "1",
    },
    "projects": {
        "cl2": {
            "name": "pets",
            "labels": [
                {
                    "label_kind": "Default",
                    "version": "1.0.0",
                    "id": "cl3",
                    "annotations": {
                        "objects": [
                            {
                                "feature_id": "cl4",
                                "feature_schema_id": "cl5",
                                "name": "cat",
                                "value": "cat",
                                "annotation_kind": "ImageBoundingBox",
                                "classifications": [],
                                "bounding_box": {"top": 20, "left": 10, "height": 40, "width": 30},
                            }
                        ],
                        "classifications": [],
                        "relationships": [],
                    },
                }
            ],
        }
    },
}
SCALE = [
    {
        "task_id": "5774cc78b01249ab09f089dd",
        "created_at": "2026-01-02T03:04:05.000Z",
        "type": "imageannotation",
        "status": "completed",
        "params": {
            "attachment": "https://images.example/a.jpg",
            "attachment_type": "image",
            "geometries": {"box": {"objects_to_annotate": ["cat"]}},
            "metadata": {"width": 100, "height": 80},
        },
        "response": {
            "annotations": [
                {
                    "type": "box",
                    "label": "cat",
                    "left": 10,
                    "top": 20,
                    "width": 30,
                    "height": 40,
                    "uuid": "65ae",
                }
            ]
        },
    }
]
FIFTYONE = {
    "samples": [
        {
            "_id": {"$oid": "65a0000000000000000000aa"},
            "filepath": "data/a.jpg",
            "tags": [],
            "metadata": None,
            "_media_type": "image",
            "ground_truth": {
                "_cls": "Detections",
                "detections": [
                    {
                        "_id": {"$oid": "65a0000000000000000000ab"},
                        "_cls": "Detection",
                        "attributes": {},
                        "tags": [],
                        "label": "cat",
                        "bounding_box": [0.1, 0.25, 0.3, 0.5],
                    }
                ],
            },
        }
    ]
}
DATUMARO = {
    "dm_format_version": "1.0",
    "media_type": 2,
    "infos": {},
    "categories": {
        "label": {
            "labels": [{"name": "cat", "parent": "", "attributes": []}],
            "label_groups": [],
            "attributes": [],
        }
    },
    "items": [
        {
            "id": "a",
            "annotations": [
                {
                    "id": 0,
                    "type": "bbox",
                    "attributes": {},
                    "group": 0,
                    "label_id": 0,
                    "z_order": 0,
                    "bbox": [10.0, 20.0, 30.0, 40.0],
                }
            ],
            "attr": {},
            "image": {"path": "a.jpg", "size": [80, 100]},
        }
    ],
}
KITTI = "cat 0.00 0 -0.20 10.00 20.00 40.00 60.00 1.89 0.48 1.20 1.84 1.47 8.41 0.01\n"

VIA_PROJECT = {
    "_via_settings": {},
    "_via_img_metadata": VIA,
    "_via_attributes": {},
    "_via_data_format_version": "2.0.10",
}
CVAT_VIDEO = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta><task><size>1</size><mode>interpolation</mode></task></meta>
  <track id="0" label="cat" source="manual">
    <box frame="0" keyframe="1" outside="0" occluded="0"
      xtl="10.0" ytl="20.0" xbr="40.0" ybr="60.0" z_order="0"></box>
  </track>
</annotations>
"""

#: Files of each export (None is an image), which of them tells what it is, and its name.
EXPORTS = {
    "cvat": ({"images/a.jpg": None, "annotations.xml": CVAT}, "annotations.xml", "CVAT for images"),
    "label-studio": (
        {"a.jpg": None, "project-1.json": LABEL_STUDIO},
        "project-1.json",
        "Label Studio",
    ),
    "labelme": ({"a.jpg": None, "a.json": LABELME}, "a.json", "LabelMe"),
    "via": ({"a.jpg": None, "export.json": VIA}, "export.json", "VGG Image Annotator"),
    "via (project)": (
        {"a.jpg": None, "pets.json": VIA_PROJECT},
        "pets.json",
        "VGG Image Annotator (project)",
    ),
    "via-csv": ({"a.jpg": None, "export.csv": VIA_CSV}, "export.csv", "VGG Image Annotator"),
    "supervisely": (
        {"meta.json": SUPERVISELY_META, "ds0/ann/a.jpg.json": SUPERVISELY, "ds0/img/a.jpg": None},
        "ds0/ann/a.jpg.json",
        "Supervisely",
    ),
    "labelbox": (
        {"a.jpg": None, "export.ndjson": json.dumps(LABELBOX) + "\n"},
        "export.ndjson",
        "Labelbox",
    ),
    "scale-ai": ({"a.jpg": None, "tasks.json": SCALE}, "tasks.json", "Scale"),
    "fiftyone": (
        {"data/a.jpg": None, "samples.json": FIFTYONE, "metadata.json": {}},
        "samples.json",
        "FiftyOne",
    ),
    "datumaro": (
        {"images/default/a.jpg": None, "annotations/default.json": DATUMARO},
        "annotations/default.json",
        "Datumaro",
    ),
    "kitti": (
        {"training/image_2/a.jpg": None, "training/label_2/a.txt": KITTI},
        "training/label_2/a.txt",
        "KITTI",
    ),
}
#: What a converter makes of each.
COCO = {
    "images": [{"id": 1, "width": 100, "height": 80, "file_name": "a.jpg"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10.0, 20.0, 30.0, 40.0]}],
    "categories": [{"id": 1, "name": "cat"}],
}


def write(root, files) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            Image.new("RGB", (100, 80)).save(path)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.parametrize("form", EXPORTS)
def test_an_export_that_is_not_read_comes_with_the_command_that_converts_it(tmp_path, form):
    files, telling, name = EXPORTS[form]
    root = tmp_path / "my pets"
    write(root, files)
    with pytest.raises(DataError) as error:
        recognise(root)
    assert error.value.file == str(root / telling)
    assert error.value.problem.startswith(
        f"an export of {name}, which is not read: convert it to COCO, "
        "in an environment of its own, with `"
    )
    command = re.search("`(.+)`", error.value.problem)[1]
    assert "pip install" in command
    words = shlex.split(command)
    written = [word for word in words if word.startswith(str(root)) and not Path(word).exists()]
    read = [word for word in words if word.startswith(str(root)) and Path(word).exists()]
    assert read, "the command reads files that are there"
    assert len(set(written)) == (2 if form == "via (project)" else 1), "and writes below the folder"
    if "panlabel" in command:
        assert words[words.index("--from") + 1] == form.partition(" ")[0]
    # What the command writes is taken from then on.
    write(root, {"instances.json": COCO})
    found = recognise(root)
    assert (found.entry["format"], found.subsets, found.categories) == ("coco", ["all"], ["cat"])
    made = datasets.create(**found.entry).read("all")
    assert (root / made.images.file[0]).is_file()
    np.testing.assert_array_equal(made.objects.box, [[10, 20, 40, 60]])


def test_tracks_of_a_video_are_exported_anew(tmp_path):
    write(tmp_path, {"annotations.xml": CVAT_VIDEO, "a.jpg": None})
    with pytest.raises(
        DataError, match=r"CVAT for video, .* export the task from CVAT as COCO 1\.0"
    ):
        recognise(tmp_path)


def test_images_with_metadata_of_hugging_face_are_read(tmp_path):
    line = {"file_name": "a.jpg", "objects": {"bbox": [[10, 20, 30, 40]], "categories": ["cat"]}}
    write(tmp_path, {"train/metadata.jsonl": json.dumps(line) + "\n", "train/a.jpg": None})
    found = recognise(tmp_path)
    assert (found.entry["format"], found.subsets, found.categories) == (
        "huggingface",
        ["train"],
        ["cat"],
    )
    np.testing.assert_array_equal(
        datasets.create(**found.entry).read("train").objects.box, [[10, 20, 40, 60]]
    )


def test_numbers_of_classes_in_metadata_need_names(tmp_path):
    line = {"file_name": "a.jpg", "objects": {"bbox": [[10, 20, 30, 40]], "categories": [0]}}
    write(tmp_path, {"metadata.jsonl": json.dumps(line) + "\n", "a.jpg": None})
    with pytest.raises(
        DataError, match=r"no class has the number 0; .* `dataset_info` in README\.md"
    ):
        recognise(tmp_path)
    names = "- name: categories\n      dtype: {class_label: {names: {'0': cat}}}"
    write(
        tmp_path,
        {
            "README.md": "---\ndataset_info:\n  features:\n  - name: objects\n    sequence:\n"
            f"    {names}\n---\n"
        },
    )
    assert recognise(tmp_path).categories == ["cat"]


def test_xml_that_is_read_comes_before_an_export_beside_it(tmp_path):
    xml = """<annotation><filename>a.jpg</filename><object><name>dog</name>
    <bndbox><xmin>11</xmin><ymin>21</ymin><xmax>40</xmax><ymax>60</ymax></bndbox></object></annotation>"""
    write(tmp_path, {"a.jpg": None, "a.xml": xml, "a.json": LABELME})
    assert recognise(tmp_path).categories == ["dog"]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.xml", "a.csv", "label_2/a.txt"])
@pytest.mark.parametrize("content", ["", '{"shapes": [', "<annotations><image", "[[[[", "\udcff"])
def test_files_that_are_no_export_are_left_to_the_other_formats(tmp_path, name, content):
    write(tmp_path, {"a.jpg": None, "label_2/b.jpg": None})
    (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    refuse_export(tmp_path)
