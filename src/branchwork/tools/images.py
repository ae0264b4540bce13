"""Pictures for the model: recognised by content, checked, and shrunk to what providers accept.

Pillow (the extra `images`) is used when it is installed; without it small pictures pass unchanged.
"""

import os
import struct
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from branchwork.agent.toolset import ToolError, ToolOutput, text_output, with_image
from branchwork.tools.files import open_regular
from branchwork.tools.paths import shown
from branchwork.tools.truncate import format_size

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_SIDE = 2000
"""Pixels; larger pictures are scaled down."""
MAX_BASE64 = 4_718_592
"""4.5 MiB, below the 5 MB that providers take for one picture."""
MAX_RAW = MAX_BASE64 // 4 * 3
MAX_PIXELS = 64_000_000
"""More are not decoded: 64 megapixels take 256 MB of memory, and a small file can claim far more."""
MAX_FILE = 32 << 20
JPEG_QUALITY = 80

PNG, JPEG, GIF, WEBP, BMP = "image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"
_PASSING = (PNG, JPEG, GIF, WEBP)
"""What providers take as it is."""
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
"""Sizes of the second header, which tell a bitmap from a text that begins with BM."""


class _Picture(Struct, frozen=True):
    data: bytes
    mime: str
    size: tuple[int, int]


def kind_of(head: bytes) -> str | None:
    """The MIME type of the picture that begins with `head` (at least 32 bytes of it), or None."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if head.startswith(b"\xff\xd8\xff"):
        return JPEG
    if head.startswith((b"GIF87a", b"GIF89a")):
        return GIF
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return WEBP
    if head[:2] == b"BM" and len(head) >= 18 and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return BMP
    return None


def attach(path: Path, text: str, mime: str, *, accepted: bool) -> ToolOutput:
    """The picture at `path` as a result for the model, or, unless `accepted`, a sentence about it.

    Blocks, up to seconds for large pictures. Raises `ToolError` for what is damaged, too large to decode, or
    needs Pillow where there is none.
    """
    name = shown(text)
    with open_regular(path, "read", text) as file:
        length = os.fstat(file.fileno()).st_size
        if length > MAX_FILE:
            raise ToolError(f"Cannot show {name}: {format_size(length)} is over the limit of {format_size(MAX_FILE)}.")
        data = file.readall()
    size = dimensions(data, mime)
    if size is None or min(size) < 1:
        raise ToolError(f"Cannot show {name}: it begins like {mime} but is damaged.")
    about = f"{name}: {mime}, {size[0]}×{size[1]} pixels, {format_size(len(data))}"
    if not accepted:
        return text_output(f"{about}. Not attached: the model in use does not accept images.")
    if size[0] * size[1] > MAX_PIXELS:
        raise ToolError(f"Cannot show {about}: more than {MAX_PIXELS // 1_000_000} megapixels are not decoded.")
    return _output(about, _prepared(_Picture(data, mime, size), name), size)


def _output(about: str, picture: _Picture, original: tuple[int, int]) -> ToolOutput:
    from binascii import b2a_base64

    note = about
    if picture.size != original:
        factor = original[0] / picture.size[0]
        note += f"; shown at {picture.size[0]}×{picture.size[1]}, so multiply coordinates by {factor:.3g}"
    encoded = b2a_base64(picture.data, newline=False).decode("ascii")
    return ToolOutput(content=with_image(encoded, picture.mime, note))


def _prepared(picture: _Picture, name: str) -> _Picture:
    fits = picture.mime in _PASSING and max(picture.size) <= MAX_SIDE and len(picture.data) <= MAX_RAW
    try:
        import PIL.Image
    except ImportError:
        if fits:
            return picture
        raise ToolError(
            f"Cannot show {name}: it has to be converted first ({MAX_SIDE}×{MAX_SIDE} pixels and "
            f"{format_size(MAX_RAW)} at most, no BMP), and Pillow is not installed. "
            "The person can install it with the extra branchwork[images]."
        ) from None
    try:
        with PIL.Image.open(BytesIO(picture.data)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError("its headers disagree about its size")
            if not fits:
                return _converted(image, picture.mime)
            image.load()  # a damaged picture would be refused by the provider, in this and every later request
            return picture
    except Exception as error:  # boundary: decoders raise anything on damaged files
        raise ToolError(f"Cannot show {name}: it is damaged ({error}).") from error


def _converted(source: "Image", mime: str) -> _Picture:
    """Scaled to the longest side allowed, then smaller until it fits."""
    from PIL import ImageOps

    source.draft("RGB", (MAX_SIDE, MAX_SIDE))  # lets JPEG decode at a fraction; other formats ignore it
    image = _plain(ImageOps.exif_transpose(source))
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    if mime != JPEG:
        data = _encode(image, "PNG")
        if len(data) <= MAX_RAW:
            return _Picture(data, PNG, image.size)
    image = _flat(image)
    while len(data := _encode(image, "JPEG")) > MAX_RAW:
        image = image.resize((max(1, image.width * 3 // 4), max(1, image.height * 3 // 4)))
    return _Picture(data, JPEG, image.size)


def _plain(image: "Image") -> "Image":
    """One of the modes that both PNG and JPEG code can handle."""
    if image.mode in ("L", "RGB", "RGBA"):
        return image
    if image.mode.startswith("I"):  # 16 bits a pixel, as microscopes write them; converting alone would clip
        return image.convert("I").point(lambda value: value / 256).convert("L")
    if image.mode in ("1", "F"):
        return image.convert("L")
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _flat(image: "Image") -> "Image":
    """Without transparency, over white."""
    if image.mode != "RGBA":
        return image
    import PIL.Image

    paper = PIL.Image.new("RGB", image.size, "white")
    paper.paste(image, mask=image.getchannel("A"))
    return paper


def _encode(image: "Image", form: str) -> bytes:
    out = BytesIO()
    image.save(out, form, quality=JPEG_QUALITY)
    return out.getvalue()


def dimensions(data: bytes, mime: str) -> tuple[int, int] | None:
    """Width and height as the file's header states them, without decoding; None when there is no such header."""
    try:
        match mime:
            case "image/png":
                return _pair(">II", data, 16) if data[12:16] == b"IHDR" else None
            case "image/gif":
                return _pair("<HH", data, 6)
            case "image/bmp":
                return _bmp(data)
            case "image/webp":
                return _webp(data)
            case _:
                return _jpeg(data)
    except (struct.error, IndexError):
        return None


def _pair(form: str, data: bytes, offset: int) -> tuple[int, int]:
    width, height = struct.unpack_from(form, data, offset)
    return width, height


def _bmp(data: bytes) -> tuple[int, int]:
    if data[14] == 12:
        return _pair("<HH", data, 18)
    width, height = _pair("<ii", data, 18)
    return width, abs(height)  # negative: rows from top to bottom


def _webp(data: bytes) -> tuple[int, int] | None:
    # RFC 9649, sections 2.5 to 2.7.
    match data[12:16]:
        case b"VP8 ":
            width, height = _pair("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case _:
            return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """From the first frame header: markers C0 to CF without C4, C8 and CC (ITU-T T.81, table B.1)."""
    position = 2
    while position + 9 < len(data):
        if data[position] != 0xFF:
            return None
        marker = data[position + 1]
        if marker == 0xFF:  # padding
            position += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = _pair(">HH", data, position + 5)
            return width, height
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:  # without a length
            position += 2
            continue
        if marker in (0xD9, 0xDA):
            return None
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return None
