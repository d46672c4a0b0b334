"""An extension of Jupyter's server: serves the outer document of frames, and the code of libraries that they need.

A document that a page makes itself (``srcdoc``) can carry a Content-Security-Policy, but not this header, which closes
in Chromium what no policy governs: WebRTC, name lookups and connections ahead of a request. It is the same for
everybody, so nobody has to log in for it. A library is fetched as bytes by its SHA-256, checked, and given to a frame.
"""

from __future__ import annotations

import os
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado.web import HTTPError, authenticated

from sandbox_kernel.untrusted.frames.document import SANDBOX, outer_document, policy
from sandbox_kernel.untrusted.frames.frame_output import SERVED_VARIABLE, packed_library

#: Below the base address of the server; the labextension asks for the same.
PLACE = "sandbox-kernel/frame"
#: What nbconvert calls where the server exports a notebook; a command line has it from jupyter_nbconvert_config.json.
PREPROCESSOR = "sandbox_kernel.notebook.frames.frame_libraries.with_libraries"


class FrameDocumentHandler(JupyterHandler):
    """``GET sandbox-kernel/frame``."""

    def set_default_headers(self) -> None:
        """Set our own headers; those of other pages of the server allow more."""
        headers = {
            "Content-Security-Policy": f"{policy()}; sandbox {SANDBOX}; frame-ancestors 'self'",
            "Connection-Allowlist": "()",
            "Content-Type": "text/html; charset=utf-8",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            # The page asks again when the length of its own copy changes, and compares both.
            "Cache-Control": "private, max-age=86400",
        }
        for name, value in headers.items():
            self.set_header(name, value)

    @allow_unauthenticated
    def get(self) -> None:
        """Answer with the document."""
        self.finish(outer_document())


class LibraryHandler(APIHandler):
    """``GET sandbox-kernel/library/NAME``: the packed source with this SHA-256, for those who have logged in."""

    def set_default_headers(self) -> None:
        """Set headers by which no browser takes the answer for a document or a script."""
        super().set_default_headers()
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.set_header("Cache-Control", "private, max-age=86400")

    @authenticated
    def get(self, name: str) -> None:
        """Answer with the packed source."""
        packed = packed_library(name)
        if packed is None:
            raise HTTPError(404)
        self.finish(packed, set_content_type="application/octet-stream")


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    base = server.web_app.settings["base_url"].rstrip("/")
    library = f"{base}/sandbox-kernel/library/([0-9a-f]{{64}})"
    server.web_app.add_handlers(".*$", [(f"{base}/{PLACE}", FrameDocumentHandler), (library, LibraryHandler)])
    os.environ[SERVED_VARIABLE] = "1"  # for the kernels
    server.config.HTMLExporter.preprocessors.append(PREPROCESSOR)
