import os
import struct
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageFile

from farther.errors import DataError
from farther.images import read as pictures

RED, BLUE = (200, 30, 20), (10, 40, 220)


def left_red_right_blue():
    image = Image.new("RGB", (8, 4), BLUE)
    image.paste(RED, (0, 0, 4, 4))
    return image


def saved(folder, image, name, **options):
    image.save(folder / name, **options)
    return folder / name


def png_that_claims(width, height):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    size = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


def test_rows_come_first_then_columns_then_red_green_blue(tmp_path):
    pixels = pictures.load(saved(tmp_path, left_red_right_blue(), "a.png"))
    assert pixels.shape == (4, 8, 3)
    assert pixels.dtype == np.uint8
    assert tuple(pixels[0, 0]) == RED
    assert tuple(pixels[3, 7]) == BLUE


def test_the_pixels_belong_to_the_caller(tmp_path):
    pixels = pictures.load(saved(tmp_path, left_red_right_blue(), "a.png"))
    pixels[:] = 0
    assert pixels.max() == 0


def test_a_jpeg_looks_as_it_was_drawn(tmp_path):
    path = saved(tmp_path, Image.new("RGB", (16, 16), RED), "a.jpg", quality=95)
    assert np.abs(pictures.load(path).astype(int) - RED).max() <= 3


def test_grey_becomes_three_equal_channels(tmp_path):
    path = saved(tmp_path, Image.new("L", (3, 2), 77), "a.png")
    assert (pictures.load(path) == 77).all()
    assert pictures.load(path).shape == (2, 3, 3)


def test_one_bit_images_are_black_and_white(tmp_path):
    image = Image.new("1", (2, 1))
    image.putpixel((1, 0), 1)
    assert pictures.load(saved(tmp_path, image, "a.png"))[0].tolist() == [
        [0, 0, 0],
        [255, 255, 255],
    ]


@pytest.mark.parametrize("name", ["a.png", "a.tiff"])
def test_16_bit_grey_keeps_its_high_byte_and_is_not_clipped_to_white(tmp_path, name):
    image = Image.fromarray(np.array([[0x0000, 0x00FF, 0x0100, 0x80FF, 0xFFFF]], np.uint16))
    assert pictures.load(saved(tmp_path, image, name))[0, :, 0].tolist() == [0, 0, 1, 128, 255]


def test_palette_images_get_their_colours(tmp_path):
    path = saved(tmp_path, left_red_right_blue().quantize(2), "a.png")
    assert np.abs(pictures.load(path)[0, 0].astype(int) - RED).max() <= 8


def test_cmyk_becomes_rgb(tmp_path):
    path = saved(tmp_path, Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "a.jpg", quality=95)
    assert Image.open(path).mode == "CMYK"
    assert np.abs(pictures.load(path).astype(int) - (255, 0, 0)).max() <= 6


@pytest.mark.parametrize(("mode", "colour"), [("RGBA", (*RED, 0)), ("RGBA", (*RED, 128))])
def test_transparency_is_dropped_and_the_colour_under_it_stays(tmp_path, mode, colour):
    assert (
        tuple(pictures.load(saved(tmp_path, Image.new(mode, (2, 2), colour), "a.png"))[0, 0]) == RED
    )


def test_grey_with_transparency_becomes_rgb(tmp_path):
    assert (pictures.load(saved(tmp_path, Image.new("LA", (2, 2), (90, 10)), "a.png")) == 90).all()


def test_an_animation_is_its_first_frame(tmp_path):
    first, second = Image.new("RGB", (4, 4), RED), Image.new("RGB", (4, 4), BLUE)
    path = saved(tmp_path, first, "a.gif", save_all=True, append_images=[second])
    assert Image.open(path).n_frames == 2
    assert np.abs(pictures.load(path)[0, 0].astype(int) - RED).max() <= 8


def test_an_image_of_one_pixel_is_an_image(tmp_path):
    assert pictures.load(saved(tmp_path, Image.new("RGB", (1, 1), RED), "a.png")).tolist() == [
        [list(RED)]
    ]


@pytest.mark.slow
def test_12000_by_9000_pixels_are_read_without_a_warning(tmp_path, recwarn):
    path = saved(tmp_path, Image.new("1", (12_000, 9_000)), "a.png")
    with Image.open(path) as image:
        assert image.size == (12_000, 9_000)
    recwarn.clear()
    assert pictures.load(path).shape == (9_000, 12_000, 3)
    assert not recwarn.list


@pytest.mark.parametrize("side", [11, 15, 100])
def test_an_image_with_more_pixels_than_allowed_is_refused_with_the_limit(tmp_path, side, recwarn):
    path = saved(tmp_path, Image.new("L", (side, 10)), "a.png")
    with pytest.raises(DataError, match=r"a\.png: .* pixels, more than the limit of 100"):
        pictures.load(path, max_pixels=100)


def test_an_image_at_the_limit_is_read(tmp_path):
    assert pictures.load(
        saved(tmp_path, Image.new("L", (10, 10)), "a.png"), max_pixels=100
    ).shape == (10, 10, 3)


def test_a_decompression_bomb_is_refused_before_it_is_decoded(tmp_path):
    (tmp_path / "bomb.png").write_bytes(png_that_claims(60_000, 60_000))
    with pytest.raises(DataError, match="max_pixels"):
        pictures.load(tmp_path / "bomb.png")


def test_the_message_about_a_large_image_has_its_pixels_the_limit_and_what_to_do(tmp_path):
    path = saved(tmp_path, Image.new("1", (14_000, 14_000)), "a.png")
    with pytest.raises(DataError) as error:
        pictures.load(path, advice="raise inference.max_pixels")
    assert error.value.problem == (
        "14,000 × 14,000 = 196,000,000 pixels, more than the limit of 178,956,970: raise "
        "inference.max_pixels, or cut it into tiles"
    )


def test_a_header_is_read_whatever_the_number_of_pixels(tmp_path, recwarn):
    (tmp_path / "a.png").write_bytes(png_that_claims(60_000, 60_000))
    assert pictures.read_header(tmp_path / "a.png") == (60_000, 60_000, 1)
    assert not recwarn.list


def test_threads_that_read_leave_pillows_limit_as_it_was(tmp_path):
    before = Image.MAX_IMAGE_PIXELS
    path = saved(tmp_path, left_red_right_blue(), "a.png")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pictures.load, [path] * 64))
    assert before == Image.MAX_IMAGE_PIXELS


def test_heif_is_refused_with_the_package_that_reads_it(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    with pytest.raises(DataError, match=r"a\.jpg: HEIF .*pip install pillow-heif"):
        pictures.load(tmp_path / "a.jpg")
    reason, is_image = pictures.problem_of(tmp_path / "a.jpg")
    assert "pillow-heif" in reason
    assert not is_image


def test_heif_is_read_where_the_package_is_installed(tmp_path, monkeypatch):
    class StandIn(ImageFile.ImageFile):
        """Opens any file as one red pixel."""

        format = "HEIF"

        def _open(self):
            self._mode = "RGB"
            self._size = (1, 1)

        def load(self):
            self.im = Image.new("RGB", (1, 1), "red").im

    def register():
        Image.register_open("HEIF", StandIn, lambda head: head[4:8] == b"ftyp")

    monkeypatch.setitem(Image.OPEN, "HEIF", None)
    monkeypatch.setattr(Image, "ID", list(Image.ID))
    module = SimpleNamespace(register_heif_opener=register)
    monkeypatch.setitem(sys.modules, "pillow_heif", module)
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic")
    assert pictures.load(tmp_path / "a.heic").tolist() == [[[255, 0, 0]]]


def test_a_format_that_is_not_read_is_named(tmp_path):
    (tmp_path / "a.DNG").write_bytes(b"anything")
    with pytest.raises(DataError, match=r"a\.DNG: a camera's raw format is not read: convert it"):
        pictures.load(tmp_path / "a.DNG")


def test_pillows_own_limit_is_left_as_it_was(tmp_path):
    before = Image.MAX_IMAGE_PIXELS
    pictures.load(saved(tmp_path, left_red_right_blue(), "a.png"), max_pixels=1_000)
    with pytest.raises(DataError):
        pictures.load(tmp_path / "a.png", max_pixels=10)
    assert before == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif", "a.webp", "a.bmp", "a.tiff"])
def test_a_truncated_file_is_refused_with_its_name(tmp_path, name):
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    path = saved(tmp_path, Image.fromarray(noise), name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError) as refused:
        pictures.load(path)
    assert refused.value.file == str(path)
    assert refused.value.problem


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xd8\xff", b"<html>not found</html>", b"\x89PNG\r\n\x1a\n"]
)
def test_what_is_no_image_is_refused(tmp_path, content):
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.jpg: "):
        pictures.load(tmp_path / "a.jpg")


def test_a_damaged_png_is_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(png_that_claims(50, 50))
    with pytest.raises(DataError, match="cannot be read"):
        pictures.load(tmp_path / "a.png")


def test_an_absent_file_is_refused_as_absent(tmp_path):
    with pytest.raises(DataError, match=r"a\.jpg: the file does not exist"):
        pictures.load(tmp_path / "a.jpg")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a file"):
        pictures.load(tmp_path)


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_32_bit_channels_are_refused_because_nothing_says_what_is_white(tmp_path, kind):
    path = saved(tmp_path, Image.fromarray(np.zeros((2, 2), kind)), "a.tiff")
    with pytest.raises(DataError, match="32 bits"):
        pictures.load(path)


def test_a_page_of_postscript_called_jpeg_starts_no_program(tmp_path, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("started a program"))
    page = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    (tmp_path / "photo.jpg").write_text(page)
    with pytest.raises(DataError, match="unknown image format: not one of JPEG"):
        pictures.load(tmp_path / "photo.jpg")


def test_a_file_that_is_not_an_image_installs_nothing_beside_ultralytics(tmp_path, monkeypatch):
    from ultralytics.utils import checks

    monkeypatch.setattr(
        checks, "check_requirements", lambda *_, **__: pytest.fail("installs a package")
    )
    (tmp_path / "a.jpg").write_text("not an image")
    with pytest.raises(DataError, match="unknown image format"):
        pictures.load(tmp_path / "a.jpg")


def test_the_problem_of_a_file_is_found_by_its_header_and_its_end(tmp_path):
    for name in ("a.jpg", "a.png", "a.webp"):
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)).save(
            tmp_path / name
        )
        assert pictures.problem_of(tmp_path / name) == ("", True)
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content + b"more")
        assert pictures.problem_of(tmp_path / name) == ("", True)
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        reason, is_image = pictures.problem_of(tmp_path / name)
        assert reason and is_image == (name != "a.webp")
        (tmp_path / name).write_bytes(content[:5])
        reason, is_image = pictures.problem_of(tmp_path / name)
        assert reason.startswith("unknown image format")
        assert not is_image
    assert pictures.problem_of(tmp_path / "b.jpg") == ("the file does not exist", False)


@pytest.mark.parametrize(
    "kind", ["pipe", "folder", "loop of links", "long name", "zero byte", "device"]
)
def test_what_is_not_a_file_is_refused_with_its_name(tmp_path, kind):
    path = tmp_path / "a.jpg"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop of links":
        path.symlink_to(path)
    else:
        path = {
            "long name": tmp_path / ("a" * 300),
            "zero byte": tmp_path / "a\0",
            "device": Path("/dev/zero"),
        }[kind]
    with pytest.raises(DataError) as error:
        pictures.load(path)
    assert error.value.file == str(path)
    problem, is_image = pictures.problem_of(path)
    assert problem
    assert not is_image
