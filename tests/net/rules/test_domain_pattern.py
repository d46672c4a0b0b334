from __future__ import annotations

import pytest

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.net.rules.domain_pattern import DomainPattern


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


def test_international_names_and_encoded_addresses_are_kept_in_one_spelling():
    assert DomainPattern("bücher.example").name == "xn--bcher-kva.example"
    assert DomainPattern("0x08080808").name == "8.8.8.8"


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
        "a:b",
        "a:0",
        "a:70000",
    ],
)
def test_what_is_no_pattern_is_a_policy_violation(text: str):
    with pytest.raises(PolicyViolation):
        DomainPattern.parse(text)
