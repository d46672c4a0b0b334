import asyncio
import socket
import threading
from ipaddress import ip_address

import pytest

from sandbox_kernel.errors import FetchError
from sandbox_kernel.net import resolve
from sandbox_kernel.net.fetch_policy import FetchPolicy, FetchRefused
from sandbox_kernel.net.resolve import is_own, lookup_threads, pin, pin_in_thread, verifying_context
from sandbox_kernel.net.targets import parse_url

POLICY = FetchPolicy(allowed_domains=("example.org",))
TARGET = parse_url("https://example.org/")


def test_public_answers_are_pinned_in_order():
    pinned = pin(TARGET, POLICY, lambda host, port: ["8.8.8.8", "2606:4700:4700::1111"])
    assert pinned.addresses == ("8.8.8.8", "2606:4700:4700::1111")
    assert pinned.address == "8.8.8.8"


@pytest.mark.attack("N06", "network")
@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "10.0.0.1"],
        ["10.0.0.1", "8.8.8.8"],
        ["8.8.8.8", "::ffff:169.254.169.254"],
        ["fe80::1%eth0"],
        ["8.8.8.8"] * 20 + ["192.168.0.1"],
    ],
)
def test_one_private_answer_refuses_them_all(answers: list[str]):
    with pytest.raises(FetchRefused) as caught:
        pin(TARGET, POLICY, lambda host, port: answers)
    assert caught.value.rule == "private_ip_blocked"
    assert caught.value.violation.subject == "example.org:443"


@pytest.mark.attack("N06", "network")
def test_an_address_of_this_machine_is_private(monkeypatch: pytest.MonkeyPatch):
    assert is_own(ip_address("127.0.0.1")) and not is_own(ip_address("9.9.9.9"))
    monkeypatch.setattr(resolve, "is_own", lambda address: str(address) == "8.8.4.4")
    for target, answer in ((TARGET, "8.8.4.4"), (parse_url("http://8.8.4.4/"), "")):
        with pytest.raises(
            FetchRefused, match=r"8\.8\.4\.4, an address of this machine|\.4 is an address of this machine"
        ):
            pin(target, FetchPolicy(allow_all_public=True), lambda host, port, answer=answer: ["8.8.8.8", answer])
    allowed = FetchPolicy(allowed_domains=("example.org",), allow_private_for=("example.org",))
    assert pin(TARGET, allowed, lambda host, port: ["8.8.4.4"]).address == "8.8.4.4"


def test_a_name_may_be_allowed_private_answers():
    policy = FetchPolicy(allowed_domains=("example.org", "other.org"), allow_private_for=("example.org",))
    assert pin(TARGET, policy, lambda host, port: ["10.0.0.1"]).address == "10.0.0.1"
    with pytest.raises(FetchRefused):
        pin(parse_url("https://other.org/"), policy, lambda host, port: ["10.0.0.1"])
    with pytest.raises(FetchRefused):
        pin(TARGET, policy, lambda host, port: ["169.254.169.254"])


def test_a_literal_address_asks_no_resolver():
    def never(host: str, port: int) -> list[str]:
        raise AssertionError(host)

    assert pin(parse_url("http://8.8.8.8/"), POLICY, never).addresses == ("8.8.8.8",)


@pytest.mark.parametrize("answer", [[], ["not an address"], ["8.8.8.8", ""]])
def test_a_resolver_without_a_usable_answer_is_a_dns_failure(answer: list[str]):
    with pytest.raises(FetchError) as caught:
        pin(TARGET, POLICY, lambda host, port: answer)
    assert caught.value.rule == "dns_resolution_failed"


def test_a_resolver_that_fails_is_a_dns_failure_and_not_a_crash():
    def fails(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(FetchError, match="Name or service not known") as caught:
        pin(TARGET, POLICY, fails)
    assert caught.value.rule == "dns_resolution_failed"


def test_the_roots_of_trust_are_loaded_once():
    assert verifying_context() is verifying_context()


def test_a_resolver_that_hangs_is_given_up_within_the_connect_time():
    release = threading.Event()

    def hangs(host: str, port: int) -> list[str]:
        release.wait(30)
        return ["8.8.8.8"]

    async def main() -> None:
        try:
            await pin_in_thread(TARGET, FetchPolicy(connect_timeout_s=0.05), hangs, lookup_threads())
        finally:
            release.set()

    with pytest.raises(FetchError, match="no answer within") as caught:
        asyncio.run(main())
    assert caught.value.rule == "dns_resolution_failed"
