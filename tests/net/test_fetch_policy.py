from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.model import Violation
from sandbox_kernel.net import fetch_policy
from sandbox_kernel.net.fetch_policy import (
    MAX_KEPT,
    Decision,
    DomainPattern,
    FetchPolicy,
    FetchRefused,
    RateLimit,
    ViolationLog,
)
from sandbox_kernel.policy import SandboxPolicy

PUBLIC = FetchPolicy(allow_all_public=True)


def rule(decision: Decision) -> str:
    return "" if decision.violation is None else decision.violation.rule


def test_the_defaults_are_those_of_the_contract():
    policy = FetchPolicy()
    assert policy.methods == ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
    assert policy.schemes == ("https", "http")
    assert (policy.max_request_body_bytes, policy.max_response_body_bytes) == (10 << 20, 50 << 20)
    assert (policy.connect_timeout_s, policy.request_timeout_s) == (10, 30)
    assert (policy.max_redirects, policy.max_concurrent, policy.max_requests_per_minute) == (10, 50, 500)
    assert policy.deny_private_ips
    assert policy.blocked_domains == ()


def test_an_empty_allow_list_allows_nothing():
    assert rule(FetchPolicy().check_url("https://example.org/")) == "domain_not_allowed"
    assert rule(FetchPolicy().check_url("https://8.8.8.8/")) == "domain_not_allowed"


def test_an_allowed_name_allows_itself_alone():
    policy = FetchPolicy(allowed_domains=("example.org",))
    assert policy.check_url("https://EXAMPLE.org./").allowed
    assert rule(policy.check_url("https://www.example.org/")) == "domain_not_allowed"


def test_an_allowed_wildcard_does_not_allow_the_base_domain():
    policy = FetchPolicy(allowed_domains=("*.example.org",))
    assert policy.check_url("https://www.example.org/").allowed
    assert rule(policy.check_url("https://example.org/")) == "domain_not_allowed"


def test_a_blocked_domain_is_refused_although_it_is_allowed():
    policy = FetchPolicy(allowed_domains=("*.example.org",), blocked_domains=("bad.example.org",))
    assert rule(policy.check_url("https://bad.example.org/")) == "domain_blocked"
    assert policy.check_url("https://good.example.org/").allowed
    everything = replace(PUBLIC, blocked_domains=("*.example.org",))
    assert rule(everything.check_url("https://a.example.org/")) == "domain_blocked"


def test_an_allow_list_refuses_what_is_not_on_it():
    policy = FetchPolicy(allowed_domains=("example.org",))
    decision = policy.check_url("https://evil.net/x?secret=1")
    assert decision.violation is not None
    assert decision.violation.rule == "domain_not_allowed"
    assert decision.violation.subject == "evil.net:443"
    assert "example.org" in decision.violation.reason
    assert decision.violation.remedy == "--allow-net evil.net:443"


def test_all_is_allowed_only_when_it_is_said():
    assert PUBLIC.check_url("https://anything.example/").allowed
    assert PUBLIC.check_url("http://8.8.8.8/").allowed


def test_only_schemes_of_the_policy_are_allowed():
    policy = FetchPolicy(allow_all_public=True, schemes=("https",))
    assert rule(policy.check_url("http://example.org/")) == "scheme_not_allowed"
    assert rule(policy.check_url("ftp://example.org/")) == "scheme_not_allowed"
    assert policy.check_url("https://example.org/").allowed


def test_only_known_methods_are_allowed():
    assert rule(PUBLIC.check_request("TRACE", "https://example.org/")) == "method_not_allowed"
    assert rule(PUBLIC.check_request("CONNECT", "https://example.org/")) == "method_not_allowed"
    assert PUBLIC.check_request("post", "https://example.org/").allowed


def test_a_body_beyond_the_limit_is_refused_before_anything_is_sent():
    policy = replace(PUBLIC, max_request_body_bytes=10)
    assert policy.check_request("POST", "https://example.org/", 10).allowed
    assert rule(policy.check_request("POST", "https://example.org/", 11)) == "request_body_too_large"


def test_ports_are_80_and_443_unless_a_rule_names_others():
    policy = FetchPolicy(allowed_domains=("example.org", "db.example.org:5432"))
    assert policy.check_url("http://example.org/").allowed
    assert policy.check_url("https://example.org/").allowed
    refused = policy.check_url("https://example.org:8443/")
    assert rule(refused) == "port_not_allowed"
    assert refused.violation is not None
    assert refused.violation.remedy == "--allow-net example.org:8443"
    assert policy.check_url("http://db.example.org:5432/").allowed
    assert rule(policy.check_url("https://db.example.org/")) == "port_not_allowed"


@pytest.mark.parametrize("port", [22, 25, 3306, 6379, 8080])
def test_all_public_addresses_are_open_on_web_ports_only(port: int):
    assert rule(PUBLIC.check_url(f"http://example.org:{port}/")) == "port_not_allowed"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0x7f.1", "①②⑦.⓪.⓪.①", "[::1]", "0", "0.0.0.0",
        "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "10.0.0.1",
        "192.168.1.1.", "[fe80::1]",
    ],
)  # fmt: skip
def test_a_private_address_in_any_notation_is_refused_and_no_option_is_promised(host: str):
    for policy in (PUBLIC, FetchPolicy(), FetchPolicy(allowed_domains=("example.org",))):
        decision = policy.check_url(f"http://{host}/")
        assert rule(decision) == "private_ip_blocked"
        assert decision.violation is not None
        assert "--allow-net" not in decision.violation.remedy


@pytest.mark.attack("N06", "network")
@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "[fd00:ec2::254]",
        "metadata.google.internal",
        "100.100.100.200",
        "168.63.129.16",
        "0xa9fea9fe",
    ],
)
def test_cloud_metadata_is_refused_even_when_all_is_allowed(host: str):
    assert rule(PUBLIC.check_url(f"http://{host}/latest/meta-data/")) == "private_ip_blocked"


@pytest.mark.attack("N06", "network")
def test_cloud_metadata_cannot_be_opened_at_all():
    open_wide = FetchPolicy(allowed_domains=("169.254.169.254",), deny_private_ips=False)
    assert rule(open_wide.check_url("http://169.254.169.254/")) == "private_ip_blocked"
    with pytest.raises(PolicyViolation, match="metadata"):
        FetchPolicy(allow_private_for=("169.254.169.254",))


@pytest.mark.parametrize(
    "host", ["localhost", "intranet", "printer.local", "db.internal", "nas.home.arpa", "x.localhost"]
)
def test_names_of_local_networks_are_not_public(host: str):
    assert rule(PUBLIC.check_url(f"http://{host}/")) == "private_ip_blocked"
    assert FetchPolicy(allowed_domains=(host,)).check_url(f"http://{host}/").allowed


def test_a_private_address_can_be_named_one_by_one():
    policy = FetchPolicy(allowed_domains=("10.0.0.5",), allow_private_for=("10.0.0.5",))
    assert policy.check_url("http://10.0.0.5/").allowed
    assert rule(policy.check_url("http://10.0.0.6/")) == "private_ip_blocked"
    unlisted = FetchPolicy(allow_private_for=("10.0.0.5",))
    assert rule(unlisted.check_url("http://10.0.0.5/")) == "domain_not_allowed"


def test_deny_private_ips_off_opens_listed_hosts_only():
    policy = FetchPolicy(allowed_domains=("10.0.0.5",), allow_all_public=True, deny_private_ips=False)
    assert policy.check_url("http://10.0.0.5/").allowed
    assert rule(policy.check_url("http://10.0.0.6/")) == "private_ip_blocked"


def test_a_bad_url_is_a_decision_too():
    decision = PUBLIC.check_url("https://user:pass@example.org/")
    assert rule(decision) == "invalid_url"
    with pytest.raises(FetchRefused) as caught:
        decision.require()
    assert caught.value.rule == "invalid_url"


def test_a_refusal_survives_pickling_with_its_violation():
    with pytest.raises(FetchRefused) as caught:
        FetchPolicy().check_url("https://example.org/").require()
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.violation == caught.value.violation
    assert str(again) == str(caught.value)


def test_the_rules_of_a_sandbox_become_a_fetch_policy():
    policy = FetchPolicy.from_sandbox_policy(SandboxPolicy().allow_domain("example.org").allow_domain("*.x.org", 8443))
    assert policy.check_url("http://example.org/").allowed
    assert policy.check_url("https://a.x.org:8443/").allowed
    assert rule(policy.check_url("https://a.x.org/")) == "port_not_allowed"
    assert rule(policy.check_url("https://other.org/")) == "domain_not_allowed"
    assert not FetchPolicy.from_sandbox_policy(SandboxPolicy()).check_url("https://example.org/").allowed


@pytest.mark.parametrize("name", ["faß.de", "bücher.example", "*.bücher.example", "BÜCHER.example"])
def test_an_international_name_is_the_same_in_the_sandbox_policy_and_in_a_url(name: str):
    policy = FetchPolicy.from_sandbox_policy(SandboxPolicy().allow_domain(name))
    host = name.replace("*", "www")
    assert policy.check_url(f"https://{host}/").allowed
    assert not policy.check_url("https://fass.de/").allowed


def test_a_sandbox_with_network_reaches_public_addresses_only():
    policy = FetchPolicy.from_sandbox_policy(SandboxPolicy().allow_network())
    assert policy.check_url("https://example.org/").allowed
    assert rule(policy.check_url("http://127.0.0.1/")) == "private_ip_blocked"


def test_the_rate_limit_counts_a_wildcard_as_one_domain():
    policy = FetchPolicy(allowed_domains=("*.example.org",))
    assert policy.check_url("https://a.example.org/").limit_key == policy.check_url("https://b.example.org/").limit_key


@pytest.mark.parametrize(
    "bad",
    [
        {"allowed_domains": "example.org"},
        {"allowed_domains": ("*",)},
        {"allowed_domains": (7,)},
        {"ports": (0,)},
        {"schemes": ("ftp",)},
        {"methods": ("GET", "CONNECT")},
        {"max_redirects": -1},
        {"max_concurrent": 0},
        {"max_requests_per_minute": True},
        {"connect_timeout_s": 0},
        {"request_timeout_s": float("nan")},
        {"request_timeout_s": float("inf")},
        {"max_response_body_bytes": 1.5},
        {"allow_private_for": ("not a host",)},
        {"allow_private_for": ("*.internal",)},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(bad: dict[str, object]):
    with pytest.raises(PolicyViolation):
        FetchPolicy(**bad)  # type: ignore[arg-type]


def test_policies_are_values():
    assert FetchPolicy(allowed_domains=["example.org"]) == FetchPolicy(allowed_domains=(DomainPattern("example.org"),))
    assert hash(PUBLIC) == hash(FetchPolicy(allow_all_public=True))
    assert pickle.loads(pickle.dumps(PUBLIC)) == PUBLIC


def test_a_plain_name_matches_itself_alone():
    pattern = DomainPattern.parse("Example.ORG.")
    assert pattern.matches("example.org")
    for other in ("www.example.org", "example.org.evil.net", "notexample.org", "example.or"):
        assert not pattern.matches(other)


def test_a_wildcard_matches_names_below_and_not_the_base_domain():
    pattern = DomainPattern.parse("*.example.org")
    assert pattern.matches("www.example.org")
    assert pattern.matches("a.b.example.org")
    for other in ("example.org", "notexample.org", "example.org.evil.net", ".example.org.net"):
        assert not pattern.matches(other)


def test_a_pattern_may_name_a_port():
    assert DomainPattern.parse("example.org:8443") == DomainPattern("example.org", (8443,))
    assert DomainPattern.parse("*.example.org:8443").ports == (8443,)
    assert DomainPattern.parse("[2606:4700::1111]:443") == DomainPattern("2606:4700::1111", (443,))
    assert DomainPattern.parse("2606:4700::1111").name == "2606:4700::1111"


def test_international_names_are_kept_in_one_spelling():
    assert DomainPattern("bücher.example").name == "xn--bcher-kva.example"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "*.",
        "*.*.org",
        "a*.org",
        "exa mple.org",
        "https://example.org",
        "example.org/x",
        "*.127.0.0.1",
        "0x08080808",
        "a:b",
        "a:0",
        "a:70000",
    ],
)
def test_what_is_no_pattern_is_a_policy_violation(text: str):
    with pytest.raises(PolicyViolation):
        DomainPattern.parse(text)


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
    monkeypatch.setattr(fetch_policy, "MAX_KEYS", 10)
    clock = Clock()
    limit = RateLimit(FetchPolicy(), clock)
    for number in range(10):
        limit.count(f"host{number}", "x")
    with pytest.raises(FetchRefused):
        limit.count("one more", "x")
    clock.now += 61
    limit.count("one more", "x")
    assert len(limit._windows) == 1


def test_each_refusal_is_kept_once_in_order_and_never_too_many():
    log = ViolationLog()
    for number in [0, 1, 0, *range(2 * MAX_KEPT)]:
        log.add(Violation(rule="domain_not_allowed", subject=f"host{number}", reason="x"))
    subjects = [violation.subject for violation in log.snapshot()]
    assert subjects == [f"host{number}" for number in range(MAX_KEPT)]
