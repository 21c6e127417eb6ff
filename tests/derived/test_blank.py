"""Datasets of images whose objects are blanked out."""

import numpy as np
from PIL import Image


def test_blanked_images_show_no_object_and_have_no_annotation(scenes, write, tmp_path):
    counts, subsets = write("blank", scenes(tmp_path, 3), tmp_path / "out")
    assert (counts["images"], counts["blanked"]) == (3, 3)
    assert subsets["blank"]["annotations"] == []
    assert len(subsets["blank"]["images"]) == 3
    pixels = np.asarray(Image.open(tmp_path / "out/blank/000001.png"))
    assert (pixels[:12, :16] == 0).all()
    assert (pixels[12:] == 255).all()
    assert (pixels[:, 16:] == 255).all()
