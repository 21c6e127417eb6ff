"""Prints what `deployed/model.onnx` detects in `photo.jpg`, without farther."""

import json

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession("deployed/model.onnx")
names = [output.name for output in session.get_outputs()]
classes = json.loads(session.get_modelmeta().custom_metadata_map["farther.classes"])
image = np.asarray(ImageOps.exif_transpose(Image.open("photo.jpg")).convert("RGB"))
found = dict(zip(names, session.run(None, {"image": image})))
for box, label, score, unknown in zip(
    found["box"], found["label"], found["score"], found["unknown"]
):
    print(box.tolist(), "unknown" if unknown else classes[label], score)
