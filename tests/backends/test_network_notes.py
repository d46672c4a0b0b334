"""Whoever tries the network without having asked for it is told how; nobody else is."""

from __future__ import annotations

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy
from sandbox_kernel.backends.network_notes import BESIDE, OPEN, hint

COMPLAINTS = {
    "curl": ("curl: (6) Could not resolve host: example.org", "example.org"),
    "git": ("fatal: unable to access 'https://x.test/a/': Could not resolve host: x.test", "x.test"),
    "node": ("Error: getaddrinfo EAI_AGAIN registry.npmjs.org", "registry.npmjs.org"),
    "wget": ("wget: unable to resolve host address ‘example.org’", "example.org"),
    "requests": ("HTTPSConnectionPool(host='pypi.org', port=443): [Errno -2] Name or service not known", "pypi.org"),
    "go": ("dial tcp: lookup proxy.golang.org on [::1]:53: no such host", "proxy.golang.org"),
    "urllib": ("urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>", "DOMAIN"),
}


@pytest.mark.parametrize(("said", "domain"), COMPLAINTS.values(), ids=COMPLAINTS)
def test_the_usual_complaints_name_the_option(said: str, domain: str) -> None:
    (note,) = hint(f"something before\n{said}\nsomething after\n")
    assert note.endswith(f"--allow-net {domain}")


@pytest.mark.parametrize("said", ["", "Traceback\nValueError: host", "lookup example.org", "x" * (1 << 20)])
def test_what_is_no_such_complaint_gets_no_hint(said: str) -> None:
    assert hint(said) == ()


def test_a_hint_quotes_nothing_but_a_host() -> None:
    (note,) = hint("Could not resolve host: \x1b[2J<b>evil.test</b> --policy /etc")
    assert note.endswith("--allow-net DOMAIN")


def test_a_program_that_had_never_heard_of_the_option_was_left_alone_with_a_resolvers_error() -> None:
    code = "import urllib.request; urllib.request.urlopen('http://example.org/')"
    with Sandbox() as box:
        assert "--allow-net DOMAIN" in "".join(box.run(code).notes)
        with box.session() as session:
            assert "--allow-net DOMAIN" in "".join(session.run(code).notes)
            assert session.run("1").notes == ()
        fetched = box.run("fetch('http://example.org/')", "javascript")
        assert "--allow-net example.org" in "".join(fetched.notes)


@pytest.mark.parametrize("backend", ["process", "wasm"])
def test_an_open_network_was_not_marked_in_the_receipt(backend: str) -> None:
    code = "console.log(1)"
    with Sandbox(SandboxPolicy.preset("standard").allow_network(), backend) as box:
        assert box.run(code, "javascript").notes == (OPEN,)
        with box.session("javascript") as session:
            result = session.run(code)
            assert result.notes == (OPEN,)
            assert OPEN in result._repr_mimebundle_()[0]["text/plain"]
    with Sandbox(SandboxPolicy.preset("standard").allow_domain("a.test"), backend) as box:
        assert box.run(code, "javascript").notes == ()


def test_a_program_that_went_past_the_proxy_was_left_alone_with_a_resolvers_error() -> None:
    with Sandbox(SandboxPolicy.preset("standard").allow_domain("a.test")) as box:
        assert box.run("import socket; socket.create_connection(('a.test', 443))").notes == (BESIDE,)
        with box.session() as session:
            assert session.run("import socket; socket.create_connection(('a.test', 443))").notes == (BESIDE,)


def test_a_name_that_the_proxy_could_not_resolve_is_told_as_that() -> None:
    def fails(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    with Sandbox(SandboxPolicy.preset("standard").allow_domain("a.test"), resolver=fails) as box:
        (note,) = box.run("import urllib.request; urllib.request.urlopen('https://a.test/')").notes
    assert note.startswith("allowed, but not reached: the name a.test could not be resolved")
