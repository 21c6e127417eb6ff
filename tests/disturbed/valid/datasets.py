"""Files of small datasets, in the formats that farther reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.disturbed.valid.files import jpeg, write


def coco(name: str = "a.jpg") -> dict[str, Any]:
    boxes = [[1, 2, 10, 11], [3.5, 4, 8, 9.25], [0, 0, 5, 5]]
    rows = [
        {
            "id": n,
            "image_id": 1 + n % 2,
            "category_id": 3 + n % 2,
            "bbox": box,
            "area": 9.0,
            "iscrowd": n % 2,
        }
        for n, box in enumerate(boxes)
    ]
    images = [
        {"id": 1, "file_name": name, "width": 40, "height": 30, "license": 1},
        {"id": 2, "file_name": name.replace("a.", "b."), "height": 30},
    ]
    classes = [
        {"id": n, "name": name, "supercategory": "Mammalia"} for n, name in ((3, "cat"), (4, "dog"))
    ]
    licenses = [{"id": 1, "name": "CC", "url": "u"}]
    return {
        "info": {},
        "licenses": licenses,
        "images": images,
        "annotations": rows,
        "categories": classes,
    }


def in_coco(file: str, folder: str, name: str = "a.jpg") -> dict[str, Any]:
    return {
        file: coco(name),
        f"{folder}/{name}": (40, 30),
        f"{folder}/{name.replace('a.', 'b.')}": (40, 30),
    }


VOC = """<annotation><folder>x</folder><filename>a.jpg</filename><size><width>40</width><height>30</height><depth>3</depth></size>
<object><name>cat</name><pose>Left</pose><truncated>0</truncated><difficult>1</difficult><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>11</xmax><ymax>12.5</ymax></bndbox>
<part><name>head</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox></part></object>
<object><name>dog</name><bndbox><xmin>5</xmin><ymin>6</ymin><xmax>20</xmax><ymax>21</ymax></bndbox></object></annotation>"""


HF = [
    {"image": {"bytes": jpeg(), "path": f"{n}.jpg"}, "image_id": n, "width": 40, "height": 30,
     "objects": {"id": [2 * n, 2 * n + 1], "bbox": [[1.0, 2, 10, 11], [3, 4, 8, 9]], "category": [0, 1], "iscrowd": [0, 1]}}
    for n in range(6)
]  # fmt: skip
FEATURES = {
    "objects": {
        "feature": {"category": {"names": ["cat", "dog"], "_type": "ClassLabel"}},
        "_type": "Sequence",
    }
}
README = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*
dataset_info:
  features:
  - name: objects
    sequence:
    - name: category
      dtype:
        class_label:
          names:
            '0': cat
            '1': dog
---
# A dataset
"""


def huggingface_arrow() -> None:
    table = pa.Table.from_pylist(HF)
    Path("train").mkdir()
    with pa.ipc.new_stream("train/data-00000-of-00002.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    dictionary = table.append_column("tag", pa.array(["a", "b"] * 3).dictionary_encode())
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(
        "train/data-00001-of-00002.arrow", dictionary.schema, options=options
    ) as file:
        rows = [{**row, "image_id": 10 + row["image_id"]} for row in HF]
        file.write_table(pa.Table.from_pylist(rows).append_column("tag", dictionary["tag"]))
    write({"train/dataset_info.json": {"features": FEATURES}})


def svhn() -> None:
    import h5py

    Path("train").mkdir()
    with h5py.File("train/digitStruct.mat", "w") as file:
        group = file.create_group("digitStruct")
        for key in ("name", "bbox"):
            group.create_dataset(key, (2, 1), h5py.ref_dtype)
        for k in range(2):
            file[f"#refs#/n{k}"] = np.frombuffer(f"{k}.png".encode(), np.uint8).astype("u2")[
                :, None
            ]
            group["name"][k, 0] = file[f"#refs#/n{k}"].ref
            box = file.create_group(f"#refs#/b{k}")
            for part in ("left", "top", "width", "height", "label"):
                box[part] = np.array([[5.0]])
            group["bbox"][k, 0] = box.ref
    write({"train/0.png": (32, 32), "train/1.png": (32, 32)})


def svhn_cropped() -> None:
    from scipy.io import savemat

    numbers = np.array([[1], [2], [10], [1]], np.uint8)
    savemat("train_32x32.mat", {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": numbers})


def idx(values: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, values.ndim))
        + np.array(values.shape, ">u4").tobytes()
        + values.astype(np.uint8).tobytes()
    )
