"""Sound and video from a sandbox: only containers that hold all of their data."""

from __future__ import annotations

import base64

import pytest

from sandbox_kernel.untrusted.media import MAX_MEDIA_BYTES, check_media_url

SELF = b"\0\0\0\x1cdref\0\0\0\0\0\0\0\1\0\0\0\x0curl \0\0\0\1"
ELSEWHERE = b"\0\0\0\x1cdref\0\0\0\0\0\0\0\1\0\0\0\x0curl \0\0\0\0"
FTYP = b"\0\0\0\x18ftypmp42\0\0\0\0"


def url(mime: str, data: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize(
    ("mime", "data"),
    [
        ("audio/wav", b"RIFF\0\0\0\0WAVEfmt "),
        ("audio/mpeg", b"ID3\4"),
        ("audio/mpeg", b"\xff\xfb\x90\0\0"),
        ("audio/ogg", b"OggS"),
        ("audio/flac", b"fLaC"),
        ("video/webm", b"\x1a\x45\xdf\xa3"),
        ("video/mp4", FTYP + SELF),
    ],
)
def test_a_container_of_its_type_is_kept(mime: str, data: bytes) -> None:
    assert check_media_url(url(mime, data)) == url(mime, data)


@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example/x.mp4",
        "data:video/mp4,x",
        "data:video/mp4;base64,%%%",
        "data:audio/wav;charset=x;base64,AAAA",
        url("video/mp4", b"#EXTM3U\nhttps://evil.example/x.ts"),
        url("application/vnd.apple.mpegurl", b"#EXTM3U"),
        url("audio/mpegurl", b"#EXTM3U"),
        url("audio/mpeg", b"#EXTM3U\nhttps://evil.example/x.ts"),
        url("video/mp4", b"\0\0\0\x14ftypqt  "),
        url("video/quicktime", b"\0\0\0\x14ftypqt  "),
        url("video/mp4", FTYP + ELSEWHERE),
        url("video/mp4", FTYP + SELF + ELSEWHERE),
        url("text/html", b"<script>"),
        url("image/svg+xml", b"<svg>"),
        url("audio/wav", b"RIFF\0\0\0\0WAVE" + b"\0" * MAX_MEDIA_BYTES),
    ],
    ids=lambda address: address[:60],
)
def test_what_is_none_or_refers_to_elsewhere_is_refused(address: str) -> None:
    assert check_media_url(address) is None
