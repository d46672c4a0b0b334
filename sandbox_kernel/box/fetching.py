"""HTTP requests that the host makes for a ``Sandbox``, under the same network rules as its programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sandbox_kernel.box.state import BoxState
from sandbox_kernel.errors import InvalidRequest, NetworkingDisabled
from sandbox_kernel.limits import quoted

if TYPE_CHECKING:
    from sandbox_kernel.net.fetch_messages import FetchRequest, FetchResponse
    from sandbox_kernel.net.safe_client import SafeClient


class BoxFetching(BoxState):
    """The fetch methods of ``Sandbox``."""

    _client: SafeClient | None = None

    def fetch(
        self,
        url: FetchRequest | str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes | str | None = None,
    ) -> FetchResponse:
        """Fetch a URL from the host process, under this sandbox's network rules.

        Args:
            url: The URL, or a ``FetchRequest`` that also holds the method, the headers and the body.
            method: The HTTP method; leave it out when ``url`` is a ``FetchRequest``.
            headers: Request headers, as a mapping or as pairs of name and value.
            body: The request body; text is sent as UTF-8.

        Returns:
            The response, also for a status of 400 or above.

        Raises:
            NetworkingDisabled: The policy allows no network at all.
            FetchError: A rule refused the request, or the request failed; the message names the rule. Private
                addresses are refused unless ``allow_private_for`` names their host.
            InvalidRequest: A ``FetchRequest`` and one of the other arguments were given together.

        """
        return self._fetcher(url).fetch(_fetch_request(url, method, headers, body))

    async def afetch(
        self,
        url: FetchRequest | str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes | str | None = None,
    ) -> FetchResponse:
        """Fetch a URL like ``fetch``, on the caller's event loop. Cancelling the task closes the connection.

        Args:
            url: The URL, or a ``FetchRequest`` that also holds the method, the headers and the body.
            method: The HTTP method; leave it out when ``url`` is a ``FetchRequest``.
            headers: Request headers, as a mapping or as pairs of name and value.
            body: The request body; text is sent as UTF-8.

        Returns:
            The response, also for a status of 400 or above.

        Raises:
            NetworkingDisabled: The policy allows no network at all.
            FetchError: A rule refused the request, or the request failed; the message names the rule.
            InvalidRequest: A ``FetchRequest`` and one of the other arguments were given together.

        """
        return await self._fetcher(url).afetch(_fetch_request(url, method, headers, body))

    def _fetcher(self, url: FetchRequest | str) -> SafeClient:
        """Return the sandbox's only client, so that the rate limit counts all fetches of the sandbox."""
        self._check_alive()
        if not self.policy.network and not self.policy.network_rules:
            asked = getattr(url, "url", url)
            raise NetworkingDisabled(
                f"networking disabled: {quoted(asked)} cannot be fetched; allow it with policy.allow_domain(…) first"
            )
        if self._client is None:
            from sandbox_kernel.net.fetch_policy import FetchPolicy

            self._client = self._egress.client(FetchPolicy.from_sandbox_policy(self.policy))
        return self._client


def _fetch_request(
    url: FetchRequest | str,
    method: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    body: bytes | str | None,
) -> FetchRequest:
    from sandbox_kernel.net.fetch_messages import FetchRequest

    if not isinstance(url, FetchRequest):
        return FetchRequest(url=url, method=method, headers=headers, body=body)
    if method != "GET" or headers or body is not None:
        raise InvalidRequest("a FetchRequest has its own method, headers and body; give them there")
    return url
