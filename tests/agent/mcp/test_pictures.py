"""Pictures for models: only what begins as a PNG, few and small."""

import base64
import struct
import zlib

import pytest

from sandbox_kernel import Display
from sandbox_kernel.agent.mcp.session_tools import pictures_of


def png(width: int = 1, height: int = 1, more: bytes = b"") -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    image = zlib.compress(b"\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", image) + chunk(b"IEND", b"") + more


def shown(data: object) -> Display:
    return Display(data={"image/png": data})


def test_a_png_is_handed_on_as_canonical_base64():
    wrapped = base64.encodebytes(png()).decode()
    assert pictures_of([shown(wrapped)]) == (base64.b64encode(png()).decode(),)


@pytest.mark.parametrize(
    "data",
    [
        "not base64!", "", 7, None, base64.b64encode(b"<svg onload=alert(1)>").decode(),
        base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(), base64.b64encode(png(100_000, 100_000)).decode(),
        base64.b64encode(png(0, 1)).decode(), base64.b64encode(png(more=b"x" * (1 << 20))).decode(), "A" * (10 << 20),
    ],
    ids=lambda data: str(data)[:20],
)  # fmt: skip
def test_what_only_claims_to_be_a_picture_is_not(data: object):
    assert pictures_of([shown(data), Display(data={"text/html": "<b>"})]) == ()


def test_the_last_few_of_many_are_kept():
    many = [shown(base64.b64encode(png(width)).decode()) for width in range(1, 10)]
    assert pictures_of(many) == tuple(base64.b64encode(png(width)).decode() for width in (6, 7, 8, 9))
