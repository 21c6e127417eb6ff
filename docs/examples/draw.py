"""Draws 40 images of objects that are not in Pascal VOC, with their boxes in COCO's format, into `mine`."""

import json
import random
from pathlib import Path

from PIL import Image

from farther_demo.drawings import catalogue, sprite

names, chance = ["kangaroo", "penguin", "rocket", "guitar"], random.Random(3)
images, annotations = [], []
Path("mine/images").mkdir(parents=True, exist_ok=True)
for number in range(40):
    picture = Image.new("RGB", (224, 160), chance.choice(["skyblue", "khaki", "lightgreen"]))
    category = chance.randrange(len(names))
    drawing = sprite(catalogue()[names[category]].train[0], chance.randrange(70, 130))
    x, y = (
        chance.randrange(whole - part)
        for whole, part in zip(picture.size, drawing.size, strict=True)
    )
    picture.paste(drawing, (x, y), drawing)
    picture.save(f"mine/images/{number:03}.jpg", quality=88)
    images.append({"id": number, "file_name": f"{number:03}.jpg", "width": 224, "height": 160})
    box = {"bbox": [x, y, *drawing.size], "area": drawing.width * drawing.height, "iscrowd": 0}
    annotations.append({"id": number + 1, "image_id": number, "category_id": category, **box})
categories = [{"id": number, "name": name} for number, name in enumerate(names)]
content = {"images": images, "annotations": annotations, "categories": categories}
Path("mine/test.json").write_text(json.dumps(content))
