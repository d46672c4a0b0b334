"""Fetches pages and wheels through the host, or reads them from a folder. Runs inside the guest."""

import base64
import os
import urllib.parse
from collections.abc import Callable

from .unpack import PackageError

_MOST_WHEEL_BYTES = 64 << 20
#: Sends a message to the worker and returns its answer.
Send = Callable[..., dict[str, object]]


class NotFound(PackageError):
    """Raised for an address that has nothing."""


class Fetch:
    """Fetches by the rules of the sandbox."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._indexes: list[str] = []

    def content(self, place: str) -> bytes:
        """Return a file, by its address or its path."""
        if "://" in place:
            return self.get(place)[0]
        try:
            with open(place, "rb") as file:
                data = file.read(_MOST_WHEEL_BYTES + 1)
        except OSError as error:
            raise PackageError(f"the wheel {place[:200]} cannot be read: {error.strerror}") from None
        if len(data) > _MOST_WHEEL_BYTES:
            raise PackageError(f"{place[:200]} is larger than {_MOST_WHEEL_BYTES >> 20} MB")
        return data

    def usual_indexes(self) -> list[str]:
        """Return the indexes of a line that names none: those of the sandbox's environment, or of pip on the host."""
        if not self._indexes:
            told = os.environ.get("PIP_INDEX_URL", "").split() or self._send(op="indexes").get("indexes")
            self._indexes = [str(each) for each in told] if isinstance(told, list) else []
        if not self._indexes:
            raise PackageError(
                "no package index is known: this sandbox has no network, or pip is not installed on the host or uses "
                "an index with a password; name one that it may reach (%pip install -i URL NAME, with --allow-net "
                "DOMAIN for its domain and that of its files), or install wheels of a folder that it can read: "
                "%pip install --no-index --find-links FOLDER NAME"
            )
        return self._indexes

    def get(self, url: str, accept: str = "*/*") -> tuple[bytes, str]:
        """Return a body and its type."""
        answer = self._send(op="fetch", request={"url": url, "method": "GET", "headers": {"Accept": accept}})
        if answer.get("off"):
            raise PackageError(
                "this sandbox has no network, so no package index can be reached; allow the domains of one and of its "
                "files (--allow-net DOMAIN), or install wheels of a folder that it can read: "
                "%pip install --no-index --find-links FOLDER NAME"
            )
        status, error = answer.get("status"), answer.get("error")
        if status in (404, 410):
            raise NotFound(f"{short(url)} was not found")
        if error or status != 200:
            raise PackageError(f"{short(url)} could not be fetched: {error or f'the server answered {status}'}")
        headers = answer.get("headers")
        kind = str(headers.get("content-type", "")) if isinstance(headers, dict) else ""
        return base64.b64decode(str(answer.get("body_b64", ""))), kind


def file_name(place: str) -> str:
    """Return the name of a file, from its address or its path."""
    return urllib.parse.unquote(os.path.basename(urllib.parse.urlsplit(place).path if "://" in place else place))


def short(url: str) -> str:
    """Return an address as messages show it."""
    return url.partition("?")[0][:200]
