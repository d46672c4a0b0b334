"""A session's network: none, or through the host's proxy, with refusals told cell by cell."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.net.fetch_policy import FetchPolicy
from sandbox_kernel.net.proxy.egress_proxy import EgressProxy
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session
from tests.loopback_server import QuietHandler, serving

FETCH = "import urllib.request\ndef get(url):\n    return urllib.request.urlopen(url, timeout=10).read().decode()"


class _Hello(QuietHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")


@pytest.fixture
def port() -> Iterator[int]:
    with serving(_Hello) as number:
        yield number


@pytest.mark.slow
def test_without_a_rule_there_is_no_network(session: Session, port: int) -> None:
    session.run(FETCH)
    result = session.run(f"get('http://127.0.0.1:{port}/')")
    assert result.error is not None
    assert result.error.ename == "URLError"


@pytest.mark.slow
def test_an_allowed_name_is_reached_and_others_are_refused_in_the_cell_that_asked(port: int) -> None:
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)

    def proxy(rules: FetchPolicy) -> EgressProxy:
        return EgressProxy(replace(rules, allow_private_for=["allowed.test"]), resolver=lambda *_: ["127.0.0.1"])

    with open_session(ProcessBackend(policy=policy, proxy=proxy)) as session:
        session.run(FETCH)
        first = session.run(f"get('http://allowed.test:{port}/')")
        assert first.displays[-1].data["text/plain"] == "'hello'", first.stderr
        assert first.violations == ()
        second = session.run(f"get('http://other.test:{port}/')")
        assert [violation.subject for violation in second.violations] != []
        assert session.run("1").violations == ()
        assert session.run("import os; os._exit(1)").rolled_back
        again = session.run(f"get('http://allowed.test:{port}/')")
        assert again.displays[-1].data["text/plain"] == "'hello'", again.stderr
