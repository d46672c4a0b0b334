"""Turns a redirect into a new request, which then passes every check again."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote, urljoin

from sandbox_kernel.errors import FetchError
from sandbox_kernel.net.client.fetch_messages import FetchRequest
from sandbox_kernel.net.rules.targets import Target, parse_url

REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_KEEP_METHOD = (307, 308)
#: Headers that are removed when a redirect leads to another origin.
_CREDENTIALS = ("authorization", "cookie", "cookie2", "www-authenticate")


def next_request(request: FetchRequest, target: Target, status: int, location: str | None) -> FetchRequest | None:
    """Return the request that follows a redirect; None for any other response (also 300 and 304).

    307 and 308 repeat method and body; the others become GET (HEAD stays HEAD). Credentials stay with their origin.
    Raises ``FetchError`` (``invalid_url``, ``scheme_not_allowed``) for a location that is not a usable URL.
    """
    if status not in REDIRECT_STATUSES or not location:
        return None
    try:
        new = parse_url(urljoin(target.url, _ascii(location)))
    except ValueError as error:
        raise FetchError(
            f"{target.url} redirects to {ascii(location)[:200]}, which is no URL: {error}", rule="invalid_url"
        ) from None
    headers, method, body = request.header_list, request.method, request.body
    if status not in _KEEP_METHOD:
        method = "HEAD" if method == "HEAD" else "GET"
        body = None
        headers = tuple((name, value) for name, value in headers if not name.lower().startswith("content-"))
    if new.origin != target.origin:
        headers = tuple((name, value) for name, value in headers if name.lower() not in _CREDENTIALS)
    return replace(request, url=new.url, method=method, headers=headers, body=body)


def _ascii(location: str) -> str:
    """Return a Location header as an ASCII URL. Servers often send UTF-8 and spaces in it.

    Control characters are kept, so that the URL parser refuses them.
    """
    raw = location.strip(" \t").encode("latin-1", "replace")
    if any(byte < 0x20 or byte == 0x7F for byte in raw):
        # urljoin would silently drop tabs and line breaks.
        return "http://" + location
    return quote(raw, safe="%/:?@!$&'()*+,;=-._~[]|^{}#\\")
