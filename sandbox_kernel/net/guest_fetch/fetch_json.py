"""The JSON messages of a wasm guest's fetch, and the function that carries one out.

A guest calls the host import ``__sandbox_fetch`` with a request and reads the response back in pieces. The request is
``{url, method, headers, body | body_b64}``, the response ``{status, headers, body, body_b64, ok, error}``. ``body`` is
decoded text for guests that only handle text; ``body_b64`` holds the exact bytes. ``fetch_server.py`` serves these
messages to a jail.
"""

from __future__ import annotations

import base64
import binascii
import json

from sandbox_kernel.errors import FetchError, InvalidRequest, NetworkingDisabled, SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.net.client.fetch_messages import MAX_HEADERS, FetchRequest, FetchResponse
from sandbox_kernel.net.client.safe_client import SafeClient
from sandbox_kernel.net.guest_fetch.request_json import read_request_json
from sandbox_kernel.net.network_thread import run_on_network_loop

#: Largest request in bytes: a body of 10 MiB (the limit of the default policy) as base64, plus headers.
MAX_REQUEST_JSON_BYTES = 16 * MIB
NETWORKING_DISABLED = "networking disabled: no domain is allowed; add --allow-net example.org"

_TEXTS = ("url", "method", "body", "body_b64")


def encode_request(request: FetchRequest) -> bytes:
    """Return the JSON of a request as a guest writes it; repeated headers are joined with commas."""
    document: dict[str, object] = {
        "url": request.url,
        "method": request.method,
        "headers": _joined(request.header_list, lower=False),
    }
    if request.body is not None:
        document["body_b64"] = base64.b64encode(request.payload).decode("ascii")
    return json.dumps(document).encode("ascii")


def decode_request(request_json: bytes) -> FetchRequest:
    """Parse the request of a hostile guest. Raises ``InvalidRequest`` that says what is wrong."""
    if len(request_json) > MAX_REQUEST_JSON_BYTES:
        raise InvalidRequest(f"the request has {len(request_json)} bytes, at most {MAX_REQUEST_JSON_BYTES} are read")
    found, headers = read_request_json(request_json, _TEXTS, "headers", MAX_HEADERS)
    url, method, body, coded = (found.get(key) for key in _TEXTS)
    if url is None:
        raise InvalidRequest("the request needs a url that is text")
    if coded is not None and body is not None:
        raise InvalidRequest("give body or body_b64, not both")
    payload = body if coded is None else _from_base64(coded)
    return FetchRequest(url=url, method="GET" if method is None else method, headers=headers, body=payload)


def encode_response(response: FetchResponse) -> bytes:
    """Return the JSON of a response; header names in lower case, repeated headers joined with commas."""
    return _document(response.status, _joined(response.headers, lower=True), response.body, response.ok, None)


def encode_error(message: str) -> bytes:
    """Return the JSON of a response for a request that failed."""
    return _document(0, {}, b"", False, message)


def decode_response(response_json: bytes) -> FetchResponse:
    """Parse a response as a guest does. Raises ``FetchError`` when it holds an error."""
    document = json.loads(response_json)
    if document["error"] is not None:
        raise FetchError(document["error"])
    body = base64.b64decode(document["body_b64"])
    return FetchResponse(status=document["status"], headers=tuple(document["headers"].items()), body=body, url="")


def answer(request_json: bytes, client: SafeClient | None) -> bytes:
    """Carry out a guest's fetch and wait for it. Must not be called on the network thread."""
    return run_on_network_loop(answer_async(request_json, client))


async def answer_async(request_json: bytes, client: SafeClient | None) -> bytes:
    """Carry out a guest's fetch. Always returns a response: a failure is in its field ``error``.

    ``client`` is None when the sandbox has no network.
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
    # An error may quote a lone surrogate; it is written as the JSON escape of that character.
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _joined(headers: tuple[tuple[str, str], ...], *, lower: bool) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.lower() if lower else name, []).append(value)
    return {name: ", ".join(values) for name, values in found.items()}


def _from_base64(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"body_b64 is not base64: {error}") from None
