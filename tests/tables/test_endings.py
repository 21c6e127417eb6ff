"""Endings of files, in any case."""

from pathlib import Path

import pytest
from PIL import Image

from farther.errors import DataError
from farther.images.read import FORMATS
from farther.tables.endings import HEIF, IMAGES, UNREAD_IMAGES, is_image, refuse_twins

#: Endings of formats that are read, and the reason why a file of it is not: 32-bit channels.
WITHOUT = {".pfm"}


def test_images_have_the_endings_that_pillow_has_for_the_formats_that_are_read():
    Image.init()
    endings = {".mpo"}  # JPEG files with several pictures
    for ending, name in Image.registered_extensions().items():
        if name in FORMATS:
            endings.add(ending)
    assert set(IMAGES) - set(HEIF) == endings - WITHOUT
    assert not set(IMAGES) & set(UNREAD_IMAGES)


@pytest.mark.parametrize("name", ["a.JPG", "a.Jpg", "a.b.TiFf", "A.HEIC", "a.avif"])
def test_an_image_is_one_in_any_case(name):
    assert is_image(name)


@pytest.mark.parametrize("name", ["jpg", ".jpg", "a.jpg.txt", "a.jpg~", "a.jxl"])
def test_other_files_are_not_images(name):
    assert not is_image(name)


def test_two_files_that_differ_in_the_case_of_their_ending_are_refused():
    refuse_twins([Path("x/a.txt"), Path("y/a.TXT"), Path("x/A.txt"), Path("x/a.xml")])
    with pytest.raises(DataError, match=r"a\.txt and a\.Txt differ in the case of their ending"):
        refuse_twins([Path("x/a.txt"), Path("x/a.Txt")])
