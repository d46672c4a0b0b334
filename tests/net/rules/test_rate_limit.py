from __future__ import annotations

import pytest

from sandbox_kernel.net.rules import rate_limit
from sandbox_kernel.net.rules.fetch_policy import FetchPolicy
from sandbox_kernel.net.rules.rate_limit import RateLimit
from sandbox_kernel.net.rules.refusal import FetchRefused


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_allows_within_limit():
    limit = RateLimit(FetchPolicy(max_requests_per_minute=3))
    for _ in range(3):
        limit.count("example.org", "GET https://example.org/")


def test_rejects_over_limit_until_the_minute_has_passed():
    clock = Clock()
    limit = RateLimit(FetchPolicy(max_requests_per_minute=2), clock)
    limit.count("a", "x")
    clock.now += 30
    limit.count("a", "x")
    with pytest.raises(FetchRefused) as caught:
        limit.count("a", "x")
    assert caught.value.rule == "rate_limit_exceeded"
    clock.now += 31
    limit.count("a", "x")


def test_each_domain_has_its_own_minute():
    limit = RateLimit(FetchPolicy(max_requests_per_minute=1))
    limit.count("a", "x")
    limit.count("b", "x")
    with pytest.raises(FetchRefused):
        limit.count("a", "x")


def test_rejects_over_concurrency_and_gives_places_back():
    limit = RateLimit(FetchPolicy(max_concurrent=2))
    with limit.slot("x"), limit.slot("x"):
        with pytest.raises(FetchRefused) as caught:
            with limit.slot("x"):
                pass
        assert caught.value.rule == "rate_limit_exceeded"
    with limit.slot("x"), limit.slot("x"):
        pass


def test_a_scan_of_many_hosts_is_stopped_and_costs_bounded_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rate_limit, "MAX_KEYS", 10)
    clock = Clock()
    limit = RateLimit(FetchPolicy(), clock)
    for number in range(10):
        limit.count(f"host{number}", "x")
    with pytest.raises(FetchRefused):
        limit.count("one more", "x")
    clock.now += 61
    limit.count("one more", "x")
    assert len(limit._windows) == 1
