"""What a ``Sandbox`` fetches from the host, under the rules of its own programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sandbox_kernel.box.state import BoxState
from sandbox_kernel.errors import InvalidRequest, NetworkingDisabled
from sandbox_kernel.limits import quoted

if TYPE_CHECKING:
    from sandbox_kernel.net.client.fetch_messages import FetchRequest, FetchResponse
    from sandbox_kernel.net.client.safe_client import SafeClient


class BoxFetching(BoxState):
    """The part of the facade that is about the network."""

    _client: SafeClient | None = None

    def fetch(
        self,
        url: FetchRequest | str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes | str | None = None,
    ) -> FetchResponse:
        """Fetch a URL from the host under this sandbox's network rules; private addresses stay refused.

        A status of 400 and more is a response. ``FetchError`` names the rule that refused; ``NetworkingDisabled`` means
        that the policy allows nothing.
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
        """The same, on the caller's event loop; cancelling it closes the connection."""
        return await self._fetcher(url).afetch(_fetch_request(url, method, headers, body))

    def _fetcher(self, url: FetchRequest | str) -> SafeClient:
        """One client for the life of the sandbox, so that its rate limit counts all fetches."""
        self._check_alive()
        if not self.policy.network and not self.policy.network_rules:
            asked = getattr(url, "url", url)
            raise NetworkingDisabled(
                f"networking disabled: {quoted(asked)} cannot be fetched; allow it with policy.allow_domain(…) first"
            )
        if self._client is None:
            from sandbox_kernel.net.rules.fetch_policy import FetchPolicy

            self._client = self._egress.client(FetchPolicy.from_sandbox_policy(self.policy))
        return self._client


def _fetch_request(
    url: FetchRequest | str,
    method: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    body: bytes | str | None,
) -> FetchRequest:
    from sandbox_kernel.net.client.fetch_messages import FetchRequest

    if not isinstance(url, FetchRequest):
        return FetchRequest(url=url, method=method, headers=headers, body=body)
    if method != "GET" or headers or body is not None:
        raise InvalidRequest("a FetchRequest has its own method, headers and body; give them there")
    return url
