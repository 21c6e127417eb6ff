"""YOLO-UniOW: pickled predictions of MMDetection become COCO results."""

import json
import pickle
from pathlib import Path

detections = []
for image in pickle.loads(
    Path("results.pkl").read_bytes()
):  # only of files that you wrote yourself
    found = image["pred_instances"]
    for box, score, label in zip(
        found["bboxes"].tolist(), found["scores"].tolist(), found["labels"].tolist()
    ):
        if label >= 0:  # -100 marks detections that are left out
            xmin, ymin, xmax, ymax = box
            bbox = [xmin, ymin, xmax - xmin, ymax - ymin]
            detections.append(
                {
                    "file_name": image["img_path"],
                    "image_id": 0,
                    "category_id": label,
                    "bbox": bbox,
                    "score": score,
                }
            )
Path("detections").mkdir(exist_ok=True)
Path("detections/open_world.json").write_text(json.dumps(detections))
