"""Registries of a test's own, on loopback: a simple index with one wheel, and a sparse registry with one crate."""

from __future__ import annotations

import hashlib
import io
import json
import ssl
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.loopback_server import QuietHandler, serving

if TYPE_CHECKING:
    import trustme

HOST = "index.test"
PACKAGE = "tinything"
_WHEEL = f"{PACKAGE}-1.0-py3-none-any.whl"
_ROOT_FILES = {
    "Cargo.toml": f'[package]\nname = "{PACKAGE}"\nversion = "1.0.0"\nedition = "2021"\n',
    "src/lib.rs": "pub fn answer() -> i32 { 42 }\n",
}


def wheel() -> bytes:
    """A wheel whose module has ``answer == 42``."""
    info = f"{PACKAGE}-1.0.dist-info"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(f"{PACKAGE}/__init__.py", "answer = 42\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return data.getvalue()


def crate() -> bytes:
    """A crate whose ``answer()`` is 42."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in _ROOT_FILES.items():
            entry = tarfile.TarInfo(f"{PACKAGE}-1.0.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


def pages(base: str) -> dict[str, tuple[str, bytes]]:
    """Everything that the registries answer, by path."""
    link = f'<a href="/wheels/{_WHEEL}#sha256={hashlib.sha256(wheel()).hexdigest()}">{_WHEEL}</a>'
    packed = crate()
    entry = {
        "name": PACKAGE, "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
        "cksum": hashlib.sha256(packed).hexdigest(),
    }  # fmt: skip
    return {
        f"/simple/{PACKAGE}/": ("text/html", link.encode()),
        f"/wheels/{_WHEEL}": ("application/zip", wheel()),
        "/crates/config.json": ("application/json", json.dumps({"dl": f"{base}/files"}).encode()),
        f"/crates/{PACKAGE[:2]}/{PACKAGE[2:4]}/{PACKAGE}": ("text/plain", json.dumps(entry).encode()),
        f"/files/{PACKAGE}/1.0.0/download": ("application/gzip", packed),
    }


@contextmanager
def package_index(
    authority: trustme.CA | None = None, address: str = "127.0.0.1"
) -> Iterator[tuple[str, int, list[str]]]:
    """Serve both registries; the URL by the name that only a policy's resolver knows, the port, what was asked for."""
    asked: list[str] = []
    answers: dict[str, tuple[str, bytes]] = {}

    class Registry(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            kind, body = answers.get(self.path, ("", b""))
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    tls = None
    if authority is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(HOST).configure_cert(tls)
    with serving(Registry, tls, host=address) as port:
        base = f"{'http' if tls is None else 'https'}://{HOST}:{port}"
        answers.update(pages(base))
        yield base, port, asked
