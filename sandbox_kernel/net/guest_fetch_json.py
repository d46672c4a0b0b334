"""The fetch of wasm guests: the JSON that crosses the wall, and one function that answers it.

A guest calls the host import ``__sandbox_fetch`` with a request and reads the response back in pieces. The request is
``{url, method, headers, body | body_b64}``, the response ``{status, headers, body, body_b64, ok, error}``. ``body`` is
text for guests that only know text; ``body_b64`` is the same, exact. ``fetch_bridge`` serves it to a jail.
"""

from __future__ import annotations

import base64
import binascii
import json

from sandbox_kernel.errors import FetchError, InvalidRequest, NetworkingDisabled, SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.net.messages import FetchRequest, FetchResponse
from sandbox_kernel.net.network_thread import run_on_network_loop
from sandbox_kernel.net.safe_client import SafeClient

#: A body of 10 MiB, the most that a default policy lets out, as base64 and with room for headers.
MAX_REQUEST_JSON_BYTES = 16 * MIB
NETWORKING_DISABLED = "networking disabled: no domain is allowed; add --allow-net example.org"

_KNOWN = ("url", "method", "headers", "body", "body_b64")


def encode_request(request: FetchRequest) -> bytes:
    """The JSON of a request, as a guest writes it; headers of the same name are joined."""
    document: dict[str, object] = {
        "url": request.url,
        "method": request.method,
        "headers": _joined(request.header_list, lower=False),
    }
    if request.body is not None:
        document["body_b64"] = base64.b64encode(request.payload).decode("ascii")
    return json.dumps(document).encode("ascii")


def decode_request(request_json: bytes) -> FetchRequest:
    """Read what a guest wrote, as if it were hostile; ``InvalidRequest`` says what is wrong."""
    if len(request_json) > MAX_REQUEST_JSON_BYTES:
        raise InvalidRequest(f"the request has {len(request_json)} bytes, at most {MAX_REQUEST_JSON_BYTES} are read")
    try:
        document = json.loads(request_json)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the request is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequest('the request must be an object like {"url": "https://example.org/"}')
    unknown = [key for key in document if key not in _KNOWN]
    if unknown:
        raise InvalidRequest(f"the request has the unknown key {unknown[0][:50]!r}; known keys: {', '.join(_KNOWN)}")
    url, method = document.get("url"), document.get("method")
    headers, body = document.get("headers"), document.get("body")
    if not isinstance(url, str):
        raise InvalidRequest("the request needs a url that is text")
    if body is not None and not isinstance(body, str):
        raise InvalidRequest("body must be text; put bytes into body_b64")
    if headers is not None and not isinstance(headers, dict):
        raise InvalidRequest("headers must be an object of names and values")
    payload: bytes | str | None = body
    if document.get("body_b64") is not None:
        if body is not None:
            raise InvalidRequest("give body or body_b64, not both")
        payload = _from_base64(document["body_b64"])
    return FetchRequest(url=url, method="GET" if method is None else method, headers=headers or {}, body=payload)


def encode_response(response: FetchResponse) -> bytes:
    """The JSON of an answer; names of headers in lower case, repeated ones joined."""
    return _document(response.status, _joined(response.headers, lower=True), response.body, response.ok, None)


def encode_error(message: str) -> bytes:
    """The JSON of a request that got no answer."""
    return _document(0, {}, b"", False, message)


def decode_response(response_json: bytes) -> FetchResponse:
    """Read an answer back, as a guest does; raises ``FetchError`` for one that holds an error."""
    document = json.loads(response_json)
    if document["error"] is not None:
        raise FetchError(document["error"])
    body = base64.b64decode(document["body_b64"])
    return FetchResponse(status=document["status"], headers=tuple(document["headers"].items()), body=body, url="")


def answer(request_json: bytes, client: SafeClient | None) -> bytes:
    """Carry out a guest's fetch and wait for it; never call it on the network thread."""
    return run_on_network_loop(answer_async(request_json, client))


async def answer_async(request_json: bytes, client: SafeClient | None) -> bytes:
    """Carry out a guest's fetch. Always answers: whatever goes wrong is the response's ``error``.

    No client means that the sandbox has no network.
    """
    try:
        request = decode_request(request_json)
        if client is None:
            raise NetworkingDisabled(NETWORKING_DISABLED)
        return encode_response(await client.afetch(request))
    except FetchError as error:
        text = str(error)
        return encode_error(text if error.rule in text else f"{error.rule}: {text}")
    except SandboxError as error:
        return encode_error(str(error))


def _document(status: int, headers: dict[str, str], body: bytes, ok: bool, error: str | None) -> bytes:
    document = {
        "status": status,
        "headers": headers,
        "body": body.decode("utf-8", "replace"),
        "body_b64": base64.b64encode(body).decode("ascii"),
        "ok": ok,
        "error": error,
    }
    # A lone surrogate, which an error may quote, becomes the escape by which JSON writes it.
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _joined(headers: tuple[tuple[str, str], ...], *, lower: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        key = name.lower() if lower else name
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def _from_base64(value: object) -> bytes:
    if not isinstance(value, str):
        raise InvalidRequest("body_b64 must be base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"body_b64 is not base64: {error}") from None
