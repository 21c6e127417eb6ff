"""OW-DETR, PROB: lines for `engine.py: evaluate`, which write the results of each image as COCO results."""

detections = []  # before the loop

for image_id, found in res.items():  # after `res = …`
    name = base_ds.convert_image_id(image_id, to_string=True)
    for box, score, label in zip(
        found["boxes"].tolist(), found["scores"].tolist(), found["labels"].tolist()
    ):
        xmin, ymin, xmax, ymax = box
        bbox = [xmin, ymin, xmax - xmin, ymax - ymin]
        detections.append({"image_id": name, "category_id": label, "bbox": bbox, "score": score})

import json, os  # after the loop

os.makedirs("detections", exist_ok=True)
json.dump(detections, open("detections/open_world.json", "w"))
