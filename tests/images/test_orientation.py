import io
import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from farther.detectors.networks.ultralytics_import import import_quietly
from farther.images.inputs import as_pixels
from farther.images.orientation import BACK, TURNS, turned
from farther.images.read import load, read_header

ORIENTATIONS = range(1, 9)
#: Options by the ending of the file: JPEG differs between decoders by a little, the others not at
#: all.
FORMATS = {
    "jpg": {"quality": 95, "subsampling": 0},
    "png": {},
    "webp": {"lossless": True},
    "tif": {},
}


def four_colours():
    """24 × 16 pixels, each quarter in its own colour: no two orientations look alike."""
    colours = np.array([[(250, 20, 20), (20, 250, 20)], [(20, 20, 250), (240, 240, 40)]], np.uint8)
    return Image.fromarray(colours.repeat(8, axis=0).repeat(12, axis=1))


def tagged(value):
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def equal(first, second):
    return first.shape == second.shape and np.abs(first.astype(int) - second).max() <= 6


def entry(kind, count, value):
    """EXIF data whose only entry is an orientation of another type."""
    return b"Exif\0\0II*\0" + struct.pack("<IHHHI", 8, 1, 0x0112, kind, count) + value + bytes(4)


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("ending", FORMATS)
def test_an_image_is_read_as_pillow_opencv_and_ultralytics_show_it(tmp_path, ending, orientation):
    path = tmp_path / f"a.{ending}"
    four_colours().save(path, exif=tagged(orientation), **FORMATS[ending])
    pixels = load(path)
    with Image.open(path) as image:
        assert equal(pixels, np.asarray(ImageOps.exif_transpose(image)))
        assert equal(pixels, as_pixels(image, "a"))
    assert equal(pixels, cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)[..., ::-1])
    import_quietly()
    from ultralytics.data.loaders import LoadImagesAndVideos

    (_, (read, *_), _) = next(iter(LoadImagesAndVideos(path)))
    assert equal(pixels, read[..., ::-1])
    assert read_header(path) == (pixels.shape[1], pixels.shape[0], orientation)


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_tag_behind_the_pixels_of_a_png_counts_too(tmp_path, orientation):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    sink, path = io.BytesIO(), tmp_path / "a.png"
    four_colours().save(sink, "PNG")
    end = chunk(b"IEND", b"")
    exif = tagged(orientation).tobytes().removeprefix(b"Exif\0\0")
    path.write_bytes(sink.getvalue().removesuffix(end) + chunk(b"eXIf", exif) + end)
    pixels = load(path)
    assert equal(pixels, cv2.imread(str(path))[..., ::-1])
    assert read_header(path) == (pixels.shape[1], pixels.shape[0], orientation)


@pytest.mark.parametrize(
    "exif",
    [
        *(tagged(value).tobytes() for value in (0, 9, 65_535)),
        entry(kind=2, count=4, value=b"six\0"),  # text
        entry(
            kind=5, count=1, value=b"\xff\xff\xff\x7f"
        ),  # a fraction that lies outside of the file
        b"Exif\0\0MM\0*" + b"\xff" * 40,
        b"Exif\0\0" + bytes(60),
        tagged(6).tobytes()[:17],
        b"nonsense",
    ],
)
@pytest.mark.parametrize("ending", ["jpg", "png", "webp"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_damaged_or_absurd_tag_is_no_orientation(tmp_path, exif, ending):
    path = tmp_path / f"a.{ending}"
    four_colours().save(path, exif=exif, **FORMATS[ending])
    assert equal(load(path), np.asarray(four_colours()))
    assert read_header(path) == (24, 16, 1)


@pytest.mark.parametrize("mode", ["L", "P", "I;16", "RGBA", "CMYK", "1"])
def test_images_of_all_modes_are_turned(tmp_path, mode):
    deep = Image.fromarray(np.asarray(four_colours().convert("L"), np.uint16) * 256)
    image = deep if mode == "I;16" else four_colours().convert(mode)
    ending = "jpg" if mode == "CMYK" else "png"
    image.save(tmp_path / f"upright.{ending}")
    image.save(tmp_path / f"a.{ending}", exif=tagged(6))
    upright = load(tmp_path / f"upright.{ending}")
    np.testing.assert_array_equal(load(tmp_path / f"a.{ending}"), np.rot90(upright, -1))


def test_turning_back_undoes_turning():
    for orientation in TURNS:
        there = turned(four_colours(), orientation)
        assert (
            turned(there, BACK.get(orientation, orientation)).tobytes() == four_colours().tobytes()
        )
