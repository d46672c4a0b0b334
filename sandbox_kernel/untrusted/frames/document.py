"""Makes the documents of a frame: the outer one, whose policy the inner one inherits, and the HTML that embeds both.

Pure. The policy lets exactly two scripts start in either document (``relay.js`` and ``loader.js``, by hash). What a
sandbox wants to show stands in the outer document as JSON; ``loader.js`` evaluates it after it has taken away
everything that the policy does not govern. The same texts are in the labextension (``frame-document.txt``, written by
``docs/generate.py``), which draws frames in JupyterLab and never uses documents from a notebook.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

#: The rights of both documents: scripts alone (with allow-downloads a frame saves files unasked). No origin is theirs.
SANDBOX = "allow-scripts"
#: What browsers allow in frames unless told otherwise: a window over all others, the state of a game pad, tokens.
_DENIED = (
    "picture-in-picture 'none'; gamepad 'none'; storage-access 'none'; "
    "private-state-token-issuance 'none'; private-state-token-redemption 'none'"
)
#: The height of a frame in pixels: where the content is not known and no extension of ours adapts it, and the bounds of
#: what a program may ask for. The page has bounds of its own: labextension/static/frame-view.js.
USUAL_HEIGHT, LEAST_HEIGHT, MOST_HEIGHT = 450, 24, 2000

_STYLE = "html,body,iframe{margin:0;border:0;width:100%;height:100%;overflow:hidden;display:block}"


@cache
def script(name: str) -> str:
    """Return one of our two scripts: ``relay`` or ``loader``."""
    return resources.files(__package__).joinpath(f"{name}.js").read_text("utf-8")


@cache
def _inner_style() -> str:
    """Return the style of the inner document, in one line."""
    text = resources.files(__package__).joinpath("inner.css").read_text("utf-8")
    return " ".join(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).split())


@cache
def policy() -> str:
    """Return the Content-Security-Policy of both documents; the inner one inherits it."""
    digests = [hashlib.sha256(script(name).encode()).digest() for name in ("relay", "loader")]
    started = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {started} 'unsafe-eval' blob:; worker-src 'none'; "
        "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; media-src data: blob:; form-action 'none'; "
        "base-uri 'none'; require-trusted-types-for 'script'; trusted-types raw default"
    )


def outer_document(payload: Sequence[Mapping[str, object]] = ()) -> str:
    """Return the outer document.

    ``payload`` is untrusted and stands in it as JSON: ``show``, and ``needs`` and ``keep`` for libraries, in their
    order.
    """
    inner = (
        '<!doctype html><meta charset=utf-8><meta http-equiv="x-dns-prefetch-control" content="off">'
        f"<style>{_inner_style()}</style><body><script>{script('loader')}</script>"
    )
    shown = json.dumps(payload, ensure_ascii=True).replace("<", "\\u003c")
    return (
        "<!doctype html><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy())}"><style>{_STYLE}</style>'
        f'<iframe sandbox="{SANDBOX}" allow="{_DENIED}" srcdoc="{html.escape(inner)}"></iframe>'
        f'<script type="application/json" id="payload">{shown}</script><script>{script("relay")}</script>'
    )


def frame(payload: Sequence[Mapping[str, object]], height: int = USUAL_HEIGHT) -> str:
    """Return HTML with the frame in it, for pages without our extension. It has a fixed height; 0 hides it."""
    size = f"width:100%;height:{height}px" if height else "position:absolute;width:0;height:0"
    document = html.escape(outer_document(payload))
    return f'<iframe sandbox="{SANDBOX}" style="{size};border:0" srcdoc="{document}"></iframe>'
