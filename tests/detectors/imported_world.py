"""Two splits of two datasets into which the detections of other programs are imported."""

import json

from farther import detectors
from farther.detectors.imported import import_splits
from farther.tables import Images, Regions


def detection(image_id, category_id=1, bbox=(1, 2, 3, 4), score=0.5, **optional):
    return {
        "image_id": image_id,
        "category_id": category_id,
        "bbox": list(bbox),
        "score": score,
        **optional,
    }


class World:
    """Two splits of two datasets: `test` with voc images, `far` with coco images."""

    def __init__(self, root):
        self.root = root
        self.lines = []
        self.add_split("test", "voc", ["2007_1", "2007_2"], "JPEGImages/{}.jpg")
        self.add_split("far", "coco", ["000000000007", "000000000009"], "val2017/{}.jpg")

    def add_split(self, split, dataset, image_ids, file):
        size = [10] * len(image_ids)
        images = Images(
            image_id=image_ids,
            dataset=[dataset] * len(image_ids),
            file=[file.format(image_id) for image_id in image_ids],
            width=size,
            height=size,
            digest=[f"{dataset}/{image_id}" for image_id in image_ids],
        )
        images.write(self.root / "splits" / split / "images.parquet")

    def write(self, name, content):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def run(self, adapter="coco_results", names=None, left_out=(), **params):
        self.lines = []
        out = self.root / "regions"
        work = self.root / "work"
        import_splits(
            detectors.create(adapter, **params),
            self.root / "splits",
            out,
            work,
            shard_images=1,
            classes=names,
            left_out=left_out,
            log=self.lines.append,
        )
        assert not work.exists()
        return {split: Regions.read(out / split) for split in ("test", "far")}

    def results(self, detections, **params):
        params = {"classes": ["dog", "cat"], "categories": {1: "dog", 2: "cat"}, **params}
        return self.run(weights=self.write("results.json", detections), **params)
