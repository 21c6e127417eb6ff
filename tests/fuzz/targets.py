"""What is fuzzed: a small valid folder of each kind, and the code that reads it as farther's stages and commands do."""

from __future__ import annotations

import gzip
import io
import json
import runpy
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(1, str(ROOT))

from tests.stages.in_process import OF_RUN  # noqa: E402


@dataclass(frozen=True)
class Target:
    """Something that reads files.

    Args:
        build: Writes a valid folder.
        read: Reads it, in the folder as the current one.
        mutable: Patterns of the files that are damaged.
        share: Cases per case of an ordinary target.
        links: Whether the files of a case may be links to the valid ones; NLTK reads none that are.
        compared: Whether what it writes is compared with that of the valid folder, by `meaning`.
    """

    build: Callable[[], None]
    read: Callable[[], object]
    mutable: tuple[str, ...] = ("**/*",)
    share: float = 1.0
    links: bool = True
    compared: bool = False


TARGETS: dict[str, Target] = {}


def write(files: dict[str, Any]) -> None:
    """Writes text and bytes as they are, (width, height) as an image, anything else as JSON."""
    for name, content in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, tuple):
            Image.new("RGB", content, (200, 30, 60)).save(path)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(
                content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
            )


# ------------------------------------------------------------------------------------------------------
# dataset formats


def dataset(
    name: str, files: dict[str, Any] | Callable[[], None], share: float = 1.0, **params: Any
) -> None:
    """A target that ingests a dataset; its parameters are a file too."""
    kind = params.pop("format", name)

    def build() -> None:
        write(files) if isinstance(files, dict) else files()
        write({"reader.json": {"format": kind, **params}})

    def read() -> None:
        from farther import datasets
        from farther.datasets.ingest import ingest
        from farther.tables.documents import read_json

        described = read_json("reader.json")
        found = described if isinstance(described, dict) else {}
        given = {
            "format": kind,
            "max_warnings": 1.0,
            **{str(k): v for k, v in found.items()},
            "root": Path.cwd(),
        }
        reader = datasets.create(**given)
        for subset in reader.subsets():
            list(reader.credits(subset))
        ingest(reader, "fuzzed", ".out")

    TARGETS[name] = Target(build, read, share=share, compared=True)


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


def jpeg(width: int = 40, height: int = 30) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (width, height), (9, 8, 7)).save(made, "JPEG")
    return made.getvalue()


def parquet(rows: list[dict[str, Any]], **options: Any) -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), made, **options)
    return made.getvalue()


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


def _arrow() -> None:
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


def _svhn() -> None:
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


def _svhn_cropped() -> None:
    from scipy.io import savemat

    numbers = np.array([[1], [2], [10], [1]], np.uint8)
    savemat("train_32x32.mat", {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": numbers})


def _idx(values: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, values.ndim))
        + np.array(values.shape, ">u4").tobytes()
        + values.astype(np.uint8).tobytes()
    )


dataset("voc", {
    "VOC2012/ImageSets/Main/train.txt": "a\nb 1\n", "VOC2012/Annotations/a.xml": VOC, "VOC2012/Annotations/b.xml": VOC,
    "VOC2012/JPEGImages/a.jpg": (40, 30), "VOC2012/JPEGImages/b.jpg": (40, 30),
}, 1.5)  # fmt: skip
LAYOUT = {"train": ["annots", "images"]}
dataset(
    "voc_layout", {"annots/a.xml": VOC, "images/a.png": (40, 30)}, 1.8, format="voc", layout=LAYOUT
)
dataset("coco", in_coco("annotations/instances_val2017.json", "val2017"), 1.5)
dataset("objects365", in_coco("zhiyuan_objv2_val.json", "val", "patch8/a.jpg"), 0.7)
dataset("inaturalist", in_coco("val_2017_bboxes.json", "."), 0.7)
dataset("vos", in_coco("val_coco_format.json", "JPEGImages"), 0.5)
LABELS = [{"category": "car", "box2d": {"x1": 1, "y1": 2, "x2": 20, "y2": 21}, "id": "1", "attributes": {"crowd": False}, "poly2d": None},
          {"category": "rider", "box2d": {"x1": 3, "y1": 2, "x2": 9, "y2": 21}}, {"category": "bike", "box2d": {"x1": 3, "y1": 5, "x2": 12, "y2": 25}}]  # fmt: skip
dataset("unsniffer", {
    **in_coco("annotations/instances_val2017_coco_ood.json", "val2017"),
    **{f"annotations/instances_val2017_mixed_{kind}.json": coco("a.jpg") for kind in ("ID", "OOD")},
}, 0.7)  # fmt: skip
dataset("bdd", {
    "labels/det_20/det_train.json": [{"name": "a.jpg", "labels": LABELS, "size": {"width": 40, "height": 30}}, {"name": "b.jpg", "labels": None}],
    "images/100k/train/a.jpg": (40, 30), "images/100k/train/b.jpg": (40, 30),
}, join_riders=True)  # fmt: skip
dataset("bdd_folder", {
    "labels/100k/val/a.json": {"name": "a", "frames": [{"objects": LABELS}]}, "images/100k/val/a.jpg": (40, 30),
}, 0.7, format="bdd")  # fmt: skip
dataset("nuimages", {
    "v1.0-mini/sample_data.json": [{"token": "k", "filename": "samples/k.jpg", "is_key_frame": True, "width": 160, "height": 90}, {"token": "f", "filename": "s/f.jpg", "is_key_frame": False}],
    "v1.0-mini/category.json": [{"token": "c1", "name": "vehicle.car"}, {"token": "c2", "name": "flat.x"}],
    "v1.0-mini/object_ann.json": [{"token": "o", "category_token": "c1", "bbox": [10, 20, 60, 70], "mask": {"counts": "x"}, "sample_data_token": "k"}],
    "samples/k.jpg": (160, 90),
})  # fmt: skip
BOXES = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsGroupOf\n" + "".join(
    f"{name},x,/m/{k},1,0.1,0.5,0.2,0.{k + 3},{k}\n" for k, name in enumerate("aab"[:3])
)
dataset("openimages", {
    "validation-annotations-bbox.csv": BOXES.replace(",2\n", ",-1\n"), "class-descriptions-boxable.csv": "/m/0,Cat\n/m/1,Dog\n/m/2,Fox\n", "validation/a.jpg": (40, 30), "validation/b.jpg": (40, 30),
    "bbox_labels_600_hierarchy.json": {"LabelName": "/m/9", "Subcategory": [{"LabelName": "/m/0", "Subcategory": [{"LabelName": "/m/1"}], "Part": [{"LabelName": "/m/2"}]}]},
    "validation-images-with-rotation.csv": "ImageID,License,Author,OriginalLandingURL\na,CC,x,u\n",
}, 1.5)  # fmt: skip
dataset("yolo", {
    "data.yaml": "path: .\ntrain: images/train\nval: val.txt\nnames: {0: cat, 1: dog}\nnc: 2\n", "val.txt": "./images/val/b.jpg\n",
    "labels/train/a.txt": "0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.3 0.1 0.3 0.4\n", "labels/val/b.txt": "1 0.4 0.4 0.2 0.1\n", "images/train/a.jpg": (40, 30), "images/val/b.jpg": (40, 30),
}, 1.5)  # fmt: skip
dataset("huggingface", {"data/train-00000-of-00001.parquet": parquet(HF), "README.md": README}, 2)
dataset("huggingface_arrow", _arrow, 2, format="huggingface")
LINES = [
    {"file_name": f"{n}.jpg", "objects": {"bbox": [[1, 2, 3, 4]], "category": ["cat"]}}
    for n in "ab"
]
dataset("huggingface_jsonl", {
    "train/metadata.jsonl": "\n".join(map(json.dumps, LINES)), "train/a.jpg": (40, 30), "train/b.jpg": (40, 30),
}, format="huggingface")  # fmt: skip
PUBLISHED = [{**row, "file_name": f"{row['image_id']}.jpg", "image_id": str(row["image_id"]), "dataset_origin": "COCO", "distance_category": "far",
              "objects": {"id": [1, 2], "area": [1.0, 2.0], "bbox": [[1.0, 2, 3, 4], [5, 6, 7, 8]], "category_id": [25, 90]},
              "categories": {"names": ["giraffe", "toothbrush"], "supercategories": ["a", "b"]}} for row in HF]  # fmt: skip
CHECKED = {"compression": "zstd", "write_page_checksum": True}
dataset("fmiyc", {"coco_far_voc/test-00000-of-00001.parquet": parquet(PUBLISHED, **CHECKED)})
dataset(
    "image_folder", {"val/cat/1.png": (7, 5), "val/dog/2.jpg": (9, 9), "val/3.png": (3, 3)}, 0.5
)
dataset(
    "images",
    {"a.jpg": (40, 30), "in/b.jpg": (40, 30), "notes.txt": "lynx", "boxes.json": coco()},
    boxes="boxes.json",
)
dataset("mvtec", {
    "tile/train/good/0.png": (7, 5), "tile/test/good/0.png": (7, 5), "tile/test/crack/0.png": (7, 5),
    "tile/ground_truth/crack/0_mask.png": (7, 5),
}, 0.5, category="tile")  # fmt: skip
dataset("tiny_imagenet", {
    "wnids.txt": "n01\nn02\n", "train/n01/images/0.JPEG": jpeg(8, 8), "train/n02/images/0.JPEG": jpeg(8, 8),
    "val/val_annotations.txt": "0.JPEG\tn02\t0\t0\t5\t5\n", "val/images/0.JPEG": jpeg(8, 8),
}, 0.5)  # fmt: skip
dataset("sun397", {"a/abbey/1.png": (7, 5), "b/barn/outdoor/2.jpg": (9, 9)}, 0.3)
dataset(
    "imglist", {"test.txt": "x/1.png 0\n/x/2.png -1\n", "x/1.png": (7, 5), "x/2.png": (9, 9)}, 0.7
)
dataset("mnist", {
    "t10k-images-idx3-ubyte.gz": gzip.compress(_idx(np.zeros((3, 28, 28))), mtime=0), "t10k-labels-idx1-ubyte": _idx(np.arange(3)),
}, 1.2)  # fmt: skip
NAMES = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n"
dataset("cifar", {
    "batches.meta.txt": NAMES, **{f"{name}.bin": bytes(3073 * 2) for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")},
}, 0.5)  # fmt: skip
dataset("svhn", _svhn)
dataset("svhn_cropped", _svhn_cropped)


# ---------------------------------------------------------------------------------------------------------------
# tables


def target(
    name: str, build: Callable[[], None], *mutable: str, **options: Any
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Decorator of the function that reads the files of a target; its options are those of `Target`."""

    def add(read: Callable[[], None]) -> Callable[[], None]:
        TARGETS[name] = Target(build, read, mutable or ("**/*",), **options)
        return read

    return add


def regions(count: int = 40, images: int = 10, **more: Any) -> Any:
    from farther.tables import Regions

    chance, rows = np.random.default_rng(5), np.arange(count)
    boxes = np.tile([1.0, 1, 12, 13], (count, 1)) + chance.random((count, 1))
    weight = chance.normal(size=(3, 4)).astype(np.float32)
    features = np.abs(chance.normal(size=(count, 4))).astype(np.float32)
    logits = features @ weight.T
    return Regions(
        image_id=[f"i{n * images // count}" for n in rows], region_id=rows, box=boxes, score=0.3 + 0.6 * chance.random(count), label=rows % 3, logits=logits,
        features=features, latent=chance.random((count, 3)), **{"latent.layer2": chance.random((count, 2)), "classes": ("cat", "dog", "fox"), "weight": weight, "bias": np.zeros(3)}, **more,
    )  # fmt: skip


def images(count: int = 10) -> Any:
    from farther.tables import Images

    names, files = (
        [f"{start}{n}{end}" for n in range(count)] for start, end in (("i", ""), ("", ".png"))
    )
    sizes = {"width": [40] * count, "height": [30] * count}
    return Images(image_id=names, dataset=["d"] * count, file=files, digest=["x"] * count, **sizes)


def objects(count: int = 10) -> Any:
    from farther.tables import Objects

    names, boxes = [f"i{n}" for n in range(count)], np.tile([1, 1, 12, 13], (count, 1))
    return Objects(
        image_id=names, object_id=range(count), box=boxes, category=["cat", "elk"] * (count // 2)
    )


def tables_files() -> None:
    images().write("images.parquet")
    objects().write("objects.parquet")


@target("tables", tables_files, share=2)
def tables() -> None:
    from farther.tables import Images, Objects

    found, rows = Images.read("images.parquet"), Objects.read("objects.parquet")
    assert len(found.columns()) == 6 and rows.box.shape == (len(rows), 4)


def regions_files() -> None:
    regions().write("r")


@target("regions", regions_files, share=2)
def read_regions() -> None:
    from farther.tables import Regions, RegionsFolder, scan_regions

    folder = RegionsFolder("r")
    list(folder.above(0.4).batches())
    Regions.read("r")
    scan_regions("r", min_score=0.5, columns=["image_id", "score"]).collect()


def embeddings_files() -> None:
    from farther.similarity.embeddings import Embeddings, EmbeddingsWriter, NameEmbeddings

    vectors = np.eye(8, dtype=np.float32)
    writer = EmbeddingsWriter("e", {"model": "x"}, ".work", "key")
    writer.write_shard(0, Embeddings(image_id=[f"i{n}" for n in range(8)], embedding=vectors), 8)
    writer.close(1)
    NameEmbeddings(name=[f"n{n}" for n in range(8)], embedding=vectors).write("names.parquet")


@target("embeddings", embeddings_files)
def embeddings() -> None:
    from farther.similarity.embeddings import EmbeddingsFolder, NameEmbeddings

    EmbeddingsFolder("e").read()
    NameEmbeddings.read("names.parquet")


def fitted_files() -> None:
    from farther.errors import FartherError
    from farther.methods.base import METHODS

    chance = np.random.default_rng(2)
    found = {
        name: chance.random(40)
        for name in ("uncertainty", "predictive_entropy", "mutual_information")
    }
    more = {**found, "box_variance": chance.random((40, 4)), "gram.layer2": chance.random((40, 10))}
    known = {
        "gram": {"layer": ("layer2",)},
        "temperature_scaling": {"temperature": 2.0},
        "imported": {"file": "a.csv"},
        "fused": {"of": ["energy", "knn"]},
        "cascade": {"first": "energy", "then": "knn"},
    }
    for name in METHODS.names():
        with suppress(FartherError):
            method = METHODS.create(name, **known.get(name, {})).fit(regions(**more))
            if method.wants_pass:
                method.learn_pass(regions(**more), regions(**more))
            method.save(name)
    regions(**more)[::4].write(".regions")


@target("fitted", fitted_files, "*/*.json", "*/*.safetensors", share=3)
def fitted() -> None:
    """Fitted states; in half of the cases with the right digest, as of a folder that was changed on purpose."""
    from farther.methods import loading
    from farther.tables import Regions

    rows = Regions.read(".regions")
    for folder in changed():
        loading.not_applicable(folder)
        loading.load(folder).score(rows)


def changed() -> list[Path]:
    """The folders in the current one with a file that is not shared with the valid one."""
    found = (
        path
        for path in Path().glob("*/*")
        if path.is_symlink() or not path.is_file() or path.stat().st_nlink == 1
    )
    return sorted({path.parent for path in found})


# --------------------------------------------------------------------------------------------------------------
# projects

RULES = {
    "id_classes": {"cat": {"pets": ["cat"]}, "dog": {"pets": ["dog"]}},
    "protocols": {
        "paper": {"near": {"wild": {"cat": ["lynx"]}}},
        "strict": {"extends": "paper", "far": {"wild": ["kite"]}},
    },
}
PARAMS: dict[str, Any] = {
    "datasets": {
        "pets": {"format": "coco", "root": "pets", "subset_names": ["train", "val", "test"]},
        "wild": {"format": "coco", "root": "wild", "subset_names": ["all"]},
    },
    "benchmarks": {
        "pets": {
            "id": "pets", "rules": "rules.yaml", "decisions": "decisions.csv",
            "splits": {"wild_near": {"dataset": "wild", "subset": "all", "distance": "near"}, "wild_far": {"dataset": "wild", "subset": "all", "distance": "far"}},
        }
    },
    "derived": {"paste": {}, "corrupt": {}, "blank": {}},
    "enrich": {},
    "detectors": {
        "theirs": {"adapter": "coco_results", "benchmark": "pets", "weights": "results.json", "params": {"classes": ["cat", "dog"], "score_tolerance": None}},
        "rows": {"adapter": "parquet", "benchmark": "pets", "weights": "rows", "params": {"classes": ["cat", "dog"], "score_tolerance": None}},
    },
    "inference": {}, "threshold": {"rule": "best_f1"}, "fit": {}, "methods": {"confidence": {}, "msp": {}, "knn": {"k": 3}}, "scoring": {}, "embed": {}, "stratify": {}, "demo": {}, "cost": {}, "deploy": {"max_misclassified": 0.01},
    "evaluate": {"replicates": 100, "kept": [0.95], "confidences": [0.5]}, "report": {"examples": 0},
}  # fmt: skip
DECISIONS = """time,reviewer,dataset,subset,image_id,decision,id_class,note
2026-11-21T09:30:02.114Z,ann,wild,all,all0,remove,cat,behind the bus
2026-11-21T09:30:05.870Z,ann,wild,all,all1,near,,
2026-11-21T09:30:07.002Z,ann,wild,all,all1,undo,,
"""
SIMILARITY = {
    "animal": {"feline": {"cat": None, "lynx": None}, "dog": None, "bird": {"kite": None}}
}


def _photos(folder: str, subset: str, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    """A COCO subset of six images of one object each; returns detections of the objects."""
    boxes = {n: [4 + n, 5, 20, 15] for n in range(6)}
    described = [{"id": k, "name": name} for k, name in enumerate(classes)]
    name = f"{folder}/annotations/instances_{subset}.json"
    rows = [
        {"id": n, "image_id": f"{subset}{n}", "category_id": n % len(classes), "bbox": box}
        for n, box in boxes.items()
    ]
    pictures = [{"id": f"{subset}{n}", "file_name": f"{subset}{n}.png"} for n in boxes]
    write({name: {"images": pictures, "annotations": rows, "categories": described}})
    write({f"{folder}/{subset}/{subset}{n}.png": (40, 30) for n in boxes})
    return [
        {"image_id": f"{subset}{n}", "category_id": ("cat", "dog")[(n + wrong) % 2], "bbox": box, "score": 0.9 - n / 20 - wrong / 2, "logits": [n / 3, 1.0 - wrong], "features": [n, 1.0, 2.0]}
        for n, box in boxes.items() for wrong in (0, 1)
    ]  # fmt: skip


def stage(name: str, *arguments: str) -> None:
    """Runs a stage's `main` in the current folder."""
    from farther import params

    params._cached_parse.cache_clear()
    runpy.run_path(str(ROOT / "stages" / f"{name}.py"))["main"](*arguments)


def project(until: str = "") -> None:
    """A project of two datasets and a run; its stages are run before the one named `until`."""
    found = [
        row
        for subset in ("train", "val", "test")
        for row in _photos("pets", subset, ("cat", "dog"))
    ]
    found += _photos("wild", "all", ("lynx", "kite"))
    rows = [{name: r[name] for name in ("image_id", "score", "logits")} for r in found]
    for row, r in zip(rows, found, strict=True):
        x, y = r["bbox"][:2]
        row |= {
            "box": [float(v) for v in (x, y, x + 20, y + 15)],
            "label": int(r["category_id"] == "dog"),
        }
    write({
        "results.json": found, "rows/a.parquet": parquet(rows), "rules.yaml": yaml.safe_dump(RULES), "decisions.csv": DECISIONS, "params.yaml": yaml.safe_dump(PARAMS, sort_keys=False),
        "names.yaml": "tv: {voc: [tvmonitor], coco: [tv], openimages: [Television, Computer monitor]}\ncat: {voc: [cat]}\n", "similarity.yaml": yaml.safe_dump(SIMILARITY),
    })  # fmt: skip
    Path("dvc.yaml").symlink_to(ROOT / "dvc.yaml")
    steps = {
        "ingest": (["pets"], ["wild"]),
        "curate": ([],),
        "infer": (["theirs"], ["rows"]),
        **dict.fromkeys(OF_RUN, (["theirs"],)),
    }
    write({"artifacts/code.json": CODE})
    for step, names in steps.items():
        if step == until:
            return
        for name in names:
            stage(step, *name)


OF_METHODS = dict.fromkeys(["confidence", "msp", "knn"], "x")
CODE = {
    "kept": {
        "fit": OF_METHODS,
        "score": OF_METHODS,
        "evaluate": "x",
        "search": "x",
        "user_defined": {},
    },
    "files": {"methods": OF_METHODS, "evaluate": "x"},
    **{
        "infer": {"coco_results": "x", "parquet": "x"},
        "curate": "x",
        "report": "x",
        "with_proposals": "x",
        "choose": "x",
    },
}


TABLES = ("artifacts/tables/**/*.parquet", "artifacts/tables/**/*.json")
SPLITS = ("artifacts/splits/**/*.parquet", "artifacts/splits/**/*.json")
OUTCOMES = "artifacts/outcomes/**/*.parquet"


@target("curate", lambda: project("curate"), "params.yaml", "rules.yaml", "decisions.csv", *TABLES)
@target("rules", lambda: project("curate"), "rules.yaml", "decisions.csv")
def curate() -> None:
    stage("curate")


@target("names", lambda: project("ingest"), "names.yaml", "similarity.yaml", share=0.5)
def names() -> None:
    from farther.datasets.class_names import ClassNames
    from farther.datasets.hierarchy import HierarchyFile

    names = ClassNames("names.yaml")
    names.same("tvmonitor", "voc", "coco")
    HierarchyFile("similarity.yaml").nearest("cat", ["dog", "kite"])


@target("params", lambda: project("curate"), "params.yaml", share=1)
def params() -> None:
    """What reads `params.yaml` before anything runs: `farther doctor`, and each stage's own section."""
    from farther import params
    from farther.command.doctor import examine
    from farther.command.project import Project

    params._cached_parse.cache_clear()
    list(examine(Project()))
    for step, *name in (("ingest", "pets"), ("curate",), ("infer", "theirs")):
        stage(step, *name)


@target(
    "imported",
    lambda: project("infer"),
    "results.json",
    "params.yaml",
    *SPLITS,
    share=0.8,
    compared=True,
)
def imported() -> None:
    stage("infer", "theirs")


@target("imported_parquet", lambda: project("infer"), "rows/*", share=0.8)
def imported_parquet() -> None:
    stage("infer", "rows")


@target(
    "evaluate",
    lambda: project("fit"),
    "artifacts/regions/**/*",
    "artifacts/splits/**/*",
    "params.yaml",
    "artifacts/code.json",
    share=0.2,
)
def evaluate() -> None:
    for name in OF_RUN:
        stage(name, "theirs")


@target(
    "report", lambda: project("report"), TABLES[0], SPLITS[0], OUTCOMES, "params.yaml", share=0.04
)
def report() -> None:
    stage("report")
