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


NAME, WILD = FetchPolicy(allowed_domains=("example.org",)), FetchPolicy(allowed_domains=("*.example.org",))
PORTS = FetchPolicy(allowed_domains=("example.org", "db.example.org:5432"))
BLOCKED = replace(WILD, blocked_domains=("bad.example.org",))
LISTED = FetchPolicy(allowed_domains=("10.0.0.5",), allow_all_public=True, deny_private_ips=False)
NAMED = FetchPolicy(allowed_domains=("10.0.0.5",), allow_private_for=("10.0.0.5",))


@pytest.mark.parametrize(
    ("policy", "url", "expected"),
    [
        (FetchPolicy(), "https://example.org/", "domain_not_allowed"),
        (FetchPolicy(), "https://8.8.8.8/", "domain_not_allowed"),
        (NAME, "https://EXAMPLE.org./", ""),
        (NAME, "https://www.example.org/", "domain_not_allowed"),
        (WILD, "https://www.example.org/", ""),
        (WILD, "https://example.org/", "domain_not_allowed"),
        (BLOCKED, "https://bad.example.org/", "domain_blocked"),
        (BLOCKED, "https://good.example.org/", ""),
        (replace(PUBLIC, blocked_domains=("*.example.org",)), "https://a.example.org/", "domain_blocked"),
        (PUBLIC, "https://anything.example/", ""),
        (PUBLIC, "http://8.8.8.8/", ""),
        (replace(PUBLIC, schemes=("https",)), "http://example.org/", "scheme_not_allowed"),
        (replace(PUBLIC, schemes=("https",)), "ftp://example.org/", "scheme_not_allowed"),
        (replace(PUBLIC, schemes=("https",)), "https://example.org/", ""),
        (PORTS, "http://example.org/", ""),
        (PORTS, "https://example.org/", ""),
        (PORTS, "https://example.org:8443/", "port_not_allowed"),
        (PORTS, "http://db.example.org:5432/", ""),
        (PORTS, "https://db.example.org/", "port_not_allowed"),
        *((PUBLIC, f"http://example.org:{port}/", "port_not_allowed") for port in (22, 25, 3306, 6379, 8080)),
        (NAMED, "http://10.0.0.5/", ""),
        (NAMED, "http://10.0.0.6/", "private_ip_blocked"),
        (FetchPolicy(allow_private_for=("10.0.0.5",)), "http://10.0.0.5/", "domain_not_allowed"),
        (LISTED, "http://10.0.0.5/", ""),
        (LISTED, "http://10.0.0.6/", "private_ip_blocked"),
    ],
    ids=str,
)
def test_a_url_is_judged_by_scheme_lists_address_and_port(policy: FetchPolicy, url: str, expected: str):
    assert rule(policy.check_url(url)) == expected


def test_an_allow_list_refuses_what_is_not_on_it():
    policy = FetchPolicy(allowed_domains=("example.org",))
    decision = policy.check_url("https://evil.net/x?secret=1")
    assert decision.violation is not None
    assert decision.violation.rule == "domain_not_allowed"
    assert decision.violation.subject == "evil.net:443"
    assert "example.org" in decision.violation.reason
    assert decision.violation.remedy == "--allow-net evil.net:443"


def test_only_known_methods_are_allowed():
    assert rule(PUBLIC.check_request("TRACE", "https://example.org/")) == "method_not_allowed"
    assert rule(PUBLIC.check_request("CONNECT", "https://example.org/")) == "method_not_allowed"
    assert PUBLIC.check_request("post", "https://example.org/").allowed


def test_a_body_beyond_the_limit_is_refused_before_anything_is_sent():
    policy = replace(PUBLIC, max_request_body_bytes=10)
    assert policy.check_request("POST", "https://example.org/", 10).allowed
    assert rule(policy.check_request("POST", "https://example.org/", 11)) == "request_body_too_large"


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
    assert FetchPolicy.from_sandbox_policy(SandboxPolicy().allow_network()) == PUBLIC


@pytest.mark.parametrize("name", ["faß.de", "bücher.example", "*.bücher.example", "BÜCHER.example"])
def test_an_international_name_is_the_same_in_the_sandbox_policy_and_in_a_url(name: str):
    policy = FetchPolicy.from_sandbox_policy(SandboxPolicy().allow_domain(name))
    host = name.replace("*", "www")
    assert policy.check_url(f"https://{host}/").allowed
    assert not policy.check_url("https://fass.de/").allowed


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


def test_a_name_matches_itself_alone_and_a_wildcard_what_is_below_it():
    name, wild = DomainPattern.parse("Example.ORG."), DomainPattern.parse("*.example.org")
    assert name.matches("example.org") and wild.matches("www.example.org") and wild.matches("a.b.example.org")
    for other in ("www.example.org", "example.org.evil.net", "notexample.org", "example.or"):
        assert not name.matches(other)
    for other in ("example.org", "notexample.org", "example.org.evil.net", ".example.org.net"):
        assert not wild.matches(other)


def test_a_pattern_may_name_a_port():
    assert DomainPattern.parse("example.org:8443") == DomainPattern("example.org", (8443,))
    assert DomainPattern.parse("*.example.org:8443").ports == (8443,)
    assert DomainPattern.parse("[2606:4700::1111]:443") == DomainPattern("2606:4700::1111", (443,))
    assert DomainPattern.parse("2606:4700::1111").domain == "2606:4700::1111"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_each_domain_has_so_many_requests_a_minute():
    clock = Clock()
    limit = RateLimit(FetchPolicy(max_requests_per_minute=2), clock)
    limit.count("a", "x")
    clock.now += 30
    limit.count("a", "x")
    with pytest.raises(FetchRefused) as caught:
        limit.count("a", "x")
    assert caught.value.rule == "rate_limit_exceeded"
    limit.count("b", "x")
    clock.now += 31
    limit.count("a", "x")


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
