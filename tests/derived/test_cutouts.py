"""Sources of cut-outs, by box and by folder; for those by outline see `test_masks.py`."""

import pytest
from PIL import Image

from farther.derived import create, names
from farther.derived.boxes import fading
from farther.errors import DataError, ParameterError


def sprite(width: int, height: int, colour=(0, 0, 0), alpha: int = 255) -> Image.Image:
    return Image.new("RGBA", (width, height), (*colour, alpha))


def test_three_sources_are_known_and_another_name_is_refused():
    assert names() == ["boxes", "folder", "masks"]
    with pytest.raises(
        ParameterError, match=r"unknown source of cut-outs 'mask'\. Did you mean 'masks'"
    ):
        create(source="mask")


def test_a_box_is_cut_out_with_an_edge_that_fades():
    alpha = fading(20, 10, 0.2)
    assert alpha.shape == (10, 20)
    assert alpha[5, 10] == 255
    assert alpha[0, 10] == alpha[5, 0] == alpha[9, 10] == round(255 * 0.25)
    assert (fading(4, 4, 0) == 255).all()


def test_each_sub_folder_is_a_category(tmp_path):
    for name in ("Lynx", "Kite"):
        (tmp_path / name).mkdir()
        sprite(30, 30).save(tmp_path / name / "1.png")
    sprite(5, 30).save(tmp_path / "Lynx" / "small.png")
    cutouts = create(source="folder", root=tmp_path).read()
    assert [(cutout.category, cutout.name) for cutout in cutouts.entries] == [
        ("Kite", "Kite/1.png"),
        ("Lynx", "Lynx/1.png"),
    ]
    Image.new("RGB", (30, 30)).save(tmp_path / "Kite" / "2.png")
    with pytest.raises(DataError, match="no alpha channel"):
        create(source="folder", root=tmp_path).read()
