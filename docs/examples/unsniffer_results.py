"""UnSniffer: in its COCO results unknown objects are ranked by `complete_scores`.

Parameters of the entry:

    categories: {1: person, 2: bird, 3: cat, 4: cow, 5: dog, 6: horse, 7: sheep, 8: aeroplane, 9: bicycle, 10: boat,
      11: bus, 12: car, 13: motorbike, 14: train, 15: bottle, 16: chair, 17: diningtable, 18: pottedplant, 19: sofa,
      20: tvmonitor, 81: unknown}
"""

import json
from pathlib import Path

detections = json.loads(Path("coco_instances_results_idood.json").read_text())
for one in detections:
    if one["category_id"] == 81:
        one["score"] = min(max(one["complete_scores"], 0.0), 1.0)
Path("detections").mkdir(exist_ok=True)
fields = ("image_id", "category_id", "bbox", "score")
Path("detections/open_world.json").write_text(
    json.dumps([{field: one[field] for field in fields} for one in detections])
)
