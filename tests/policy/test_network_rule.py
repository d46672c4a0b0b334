"""One line of what may be reached: what is read, in which one spelling it is kept, and what a mistake is told."""

import pytest

from sandbox_kernel import PolicyViolation, SandboxPolicy
from sandbox_kernel.net.fetch_policy import FetchPolicy
from sandbox_kernel.policy.network_rule import NetworkRule, domain_rule, parse_rule

READ = {
    "example.org": NetworkRule("example.org"),
    " Example.ORG. ": NetworkRule("example.org"),
    "example.org:8443": NetworkRule("example.org", (8443,)),
    "*.example.org:80": NetworkRule("*.example.org", (80,)),
    "bücher.example": NetworkRule("xn--bcher-kva.example"),
    "localhost:8888": NetworkRule("localhost", (8888,)),
    "192.0.2.1:81": NetworkRule("192.0.2.1", (81,)),
    "2001:DB8::1": NetworkRule("2001:db8::1"),
    "[2001:db8:0:0::1]": NetworkRule("2001:db8::1"),
    "[2001:db8::1]:443": NetworkRule("2001:db8::1", (443,)),
    "my_host": NetworkRule("my_host"),
}


@pytest.mark.parametrize(("text", "rule"), READ.items(), ids=READ)
def test_what_people_write_is_read_and_written_back_the_same(text: str, rule: NetworkRule) -> None:
    assert parse_rule(text) == rule
    assert parse_rule(str(rule)) == rule


WRONG = {
    "https://data.example/simple/": "give its domain alone: data.example",
    "https://data.example": "give its domain alone: data.example",
    "http://data.example:8080/a?b": "give its domain alone: data.example:8080",
    "data.example/simple": "give its domain alone: data.example",
    "me:word@data.example": "give its domain alone: data.example",
    "https://": "give a domain alone, for example",
    "http://[::1": "give a domain alone, for example",
    "10.0.0.0/8": "give its domain alone: 10.0.0.0",
    "data.example,example.org": "more than one domain; repeat the option for each",
    "data.example example.org": "more than one domain; repeat the option for each",
    "*": "allowNetwork = true",
    "data.example:https": "port 'https' must be a number from 1 to 65535",
    "data.example:": "port '' must be a number from 1 to 65535",
    "data.example:0": "port '0' must be a number",
    "data.example:65536": "port '65536' must be a number",
    "data.example:\u0661": "must be a number",
    "data.example:443:80": "is not a domain name",
    "[::1]80": "is not a domain name",
    "[::1": "is not a domain name",
    "fe80::1%eth0": "is not a domain name",
    "": "is not a domain name",
    ":443": "is not a domain name",
    "*.": "is not a domain name",
    "-a.org": "is not a domain name",
    "a..org": "is not a domain name",
    "a" * 64 + ".org": "is not a domain name",
    "x." * 130 + "org": "is not a domain name",
}


@pytest.mark.parametrize(("text", "told"), WRONG.items(), ids=[repr(text)[:30] for text in WRONG])
def test_a_mistake_says_what_should_have_been_written(text: str, told: str) -> None:
    with pytest.raises(PolicyViolation) as error:
        parse_rule(text)
    assert told in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("text", ["0x7f.1", "2130706433", "0177.0.0.1", "127.1", "1.2.3.4.5", "example.0x1", "*.1"])
def test_an_address_in_a_notation_that_hides_which_is_no_domain(text: str) -> None:
    with pytest.raises(PolicyViolation, match="not a domain name"):
        domain_rule(text)


def test_the_option_that_a_refusal_names_is_read() -> None:
    """Also for an IPv6 address, whose brackets and colons the option must take."""
    nothing = FetchPolicy(allowed_domains=("example.org",))
    for url in ("https://[2606:4700:4700::1111]/", "http://other.test:8080/", "http://8.8.8.8/"):
        violation = nothing.check_url(url).violation
        assert violation is not None
        option, _, value = violation.remedy.partition(" ")
        assert option == "--allow-net"
        rule = parse_rule(value)
        opened = FetchPolicy.from_sandbox_policy(SandboxPolicy().allow_domain(rule.domain, *rule.ports))
        assert opened.check_url(url).allowed
