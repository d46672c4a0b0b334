"""An extension of Jupyter's server: serves the outer document of frames with its policy as headers, and one more.

A document that a page makes itself (``srcdoc``) can carry a Content-Security-Policy, but not this header, which closes
in Chromium what no policy governs: WebRTC, name lookups and connections ahead of a request. The document is the same
for everybody and holds nothing of the user, so nobody has to log in for it.
"""

# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False
# jupyter_server has no types.

from __future__ import annotations

from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import JupyterHandler

from sandbox_kernel.untrusted.frames.document import SANDBOX, outer_document, policy

#: Below the base address of the server; the labextension asks for the same.
PLACE = "sandbox-kernel/frame"


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


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    base = server.web_app.settings["base_url"].rstrip("/")
    server.web_app.add_handlers(".*$", [(f"{base}/{PLACE}", FrameDocumentHandler)])
