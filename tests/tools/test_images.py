"""Pictures are recognised by what they hold, fit what providers take, and cannot exhaust the memory."""

import base64
import struct
import subprocess
import sys
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from branchwork.agent.toolset import ToolOutput
from branchwork.session.entries import Image
from branchwork.tools.images import MAX_BASE64, MAX_RAW, MAX_SIDE, dimensions, kind_of
from tests.tools.workplace import Workplace, text_of

FORMATS = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp", "BMP": "image/bmp"}


def picture(form: str, size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: Any) -> bytes:
    out = BytesIO()
    PIL.Image.new(mode, size, "white").save(out, form, **options)
    return out.getvalue()


def noise(form: str, size: tuple[int, int], mode: str = "RGB") -> bytes:
    import random

    data = random.Random(1).randbytes(size[0] * size[1] * len(mode))
    out = BytesIO()
    PIL.Image.frombytes(mode, size, data).save(out, form)
    return out.getvalue()


def png_claiming(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")
    )


def attached(output: ToolOutput) -> tuple[str, bytes]:
    (image,) = (part for part in output.content if isinstance(part, Image))
    return image.mime_type, base64.b64decode(image.data, validate=True)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (40, 30), (2345, 3)])
def test_kind_and_size_come_from_the_content(form: str, size: tuple[int, int]) -> None:
    data = picture(form, size)
    assert kind_of(data[:64]) == FORMATS[form]
    assert dimensions(data, FORMATS[form]) == size


@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 50}, {"lossless": True, "exif": b"Exif\0\0II*\0"}])
def test_every_kind_of_webp_states_its_size(options: dict[str, Any]) -> None:
    assert dimensions(picture("WEBP", (123, 45), **options), "image/webp") == (123, 45)


def test_a_progressive_jpeg_with_a_thumbnail_before_its_frame_states_its_size() -> None:
    data = picture("JPEG", (123, 45), progressive=True)
    exif = b"Exif\0\0" + picture("JPEG", (9, 9))
    data = data[:2] + b"\xff\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]
    assert dimensions(data, "image/jpeg") == (123, 45)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_a_small_picture_is_attached_unchanged_whatever_its_name(place: Workplace, form: str) -> None:
    data = picture(form)
    place.file("notes.txt", data)
    output = await place.run("read", path="notes.txt")
    assert attached(output) == (FORMATS[form], data)
    assert text_of(output) == f"notes.txt: {FORMATS[form]}, 40×30 pixels, {len(data)} B"


async def test_a_bitmap_is_attached_as_png(place: Workplace) -> None:
    place.file("a.bmp", picture("BMP"))
    mime, data = attached(await place.run("read", path="a.bmp"))
    assert (mime, dimensions(data, mime)) == ("image/png", (40, 30))


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
async def test_a_large_picture_is_scaled_and_says_by_how_much(place: Workplace, form: str) -> None:
    place.file("a", picture(form, (3000, 1500)))
    output = await place.run("read", path="a")
    mime, data = attached(output)
    assert (mime, dimensions(data, mime)) == (FORMATS[form], (MAX_SIDE, 1000))
    assert "3000×1500 pixels" in text_of(output)
    assert text_of(output).endswith("shown at 2000×1000, so multiply coordinates by 1.5")


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
async def test_a_picture_of_too_many_bytes_becomes_a_jpeg_that_fits(place: Workplace, mode: str) -> None:
    data = noise("PNG", (1500, 1200), mode)
    assert len(data) > MAX_RAW
    place.file("a.png", data)
    output = await place.run("read", path="a.png")
    mime, shrunk = attached(output)
    assert mime == "image/jpeg"
    assert len(base64.b64encode(shrunk)) <= MAX_BASE64


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "I;16", "RGBA", "CMYK"])
async def test_every_common_kind_of_pixel_can_be_scaled(place: Workplace, mode: str) -> None:
    place.file("a", picture("JPEG" if mode == "CMYK" else "PNG", (2001, 10), mode))
    mime, data = attached(await place.run("read", path="a"))
    assert dimensions(data, mime) == (2000, 10)


async def test_a_decompression_bomb_is_refused_before_it_is_decoded(place: Workplace) -> None:
    place.file("bomb.png", png_claiming(60_000, 60_000))
    message = await place.error("read", path="bomb.png")
    assert "60000×60000 pixels" in message
    assert "more than 64 megapixels are not decoded" in message


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n and then something else",
        picture("PNG", (300, 300))[:-40],
        noise("JPEG", (64, 64))[:-600],
        b"\xff\xd8\xff\xe0",
        b"GIF89a",
        b"RIFF\0\0\0\0WEBPVP8 ",
        png_claiming(0, 10),
        png_claiming(100, 100),
    ],
)
async def test_a_damaged_picture_is_an_error_and_never_reaches_the_provider(place: Workplace, data: bytes) -> None:
    place.file("a", data)
    assert "damaged" in await place.error("read", path="a")


async def test_a_model_without_eyes_gets_a_sentence(place: Workplace) -> None:
    place.images = False
    place.file("a.png", picture("PNG"))
    output = await place.run("read", path="a.png")
    assert len(output.content) == 1
    assert text_of(output).endswith("Not attached: the model in use does not accept images.")


WITHOUT_PILLOW = """
import sys
sys.modules["PIL"] = None
from pathlib import Path
from typing import Any
from branchwork.agent.toolset import ToolError
from branchwork.tools.images import attach, kind_of
for name in sys.argv[1:]:
    path = Path(name)
    try:
        print(len(attach(path, path.name, kind_of(path.read_bytes()), accepted=True).content))
    except ToolError as error:
        print(error)
"""


def test_without_pillow_small_pictures_pass_and_others_say_what_is_missing(place: Workplace) -> None:
    names: list[Path] = [
        place.file("small.png", picture("PNG")),
        place.file("large.png", picture("PNG", (2001, 1))),
        place.file("a.bmp", picture("BMP")),
    ]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PILLOW, *map(str, names)], capture_output=True, text=True, check=True
    )
    small, large, bitmap = done.stdout.splitlines()
    assert small == "2"
    for line, name in ((large, "large.png"), (bitmap, "a.bmp")):
        assert line.startswith(f"Cannot show {name}: ")
        assert "branchwork[images]" in line
