"""ORE, OpenDet: text lines per class, with 1 added to xmin and ymin, become COCO results."""

import json
from pathlib import Path

detections = []
for file in sorted(Path("output/pascal_voc_eval").glob("*.txt")):
    for line in filter(None, file.read_text().splitlines()):
        image_id, score, *edges = line.split()
        xmin, ymin, xmax, ymax = map(float, edges)
        box = [xmin - 1, ymin - 1, xmax - xmin + 1, ymax - ymin + 1]
        detections.append(
            {"image_id": image_id, "category_id": file.stem, "bbox": box, "score": float(score)}
        )
Path("detections").mkdir(exist_ok=True)
Path("detections/open_world.json").write_text(json.dumps(detections))
