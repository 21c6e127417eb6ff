"""Exports the detections of the demo's Faster R-CNN as COCO results with logits: one file per split, in `detections`."""

import json
from pathlib import Path

from farther.tables import Regions

Path("detections").mkdir(exist_ok=True)
for file in sorted(Path("artifacts/regions/voc-faster_rcnn").glob("*/regions.json")):
    regions = Regions.read(file.parent)
    corners, size = regions.box[:, :2].tolist(), (regions.box[:, 2:] - regions.box[:, :2]).tolist()
    found = [
        {
            "image_id": regions.image_id[row],
            "category_id": regions.classes[regions.label[row]],
            "bbox": corners[row] + size[row],
            "score": float(regions.score[row]),
            "logits": regions.logits[row].tolist(),
        }
        for row in range(len(regions))
    ]
    Path("detections", f"{file.parent.name}.json").write_text(json.dumps(found))
