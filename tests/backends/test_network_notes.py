"""Whoever tries the network without having asked for it is told how; nobody else is."""

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy
from sandbox_kernel.backends.outcome import NetworkSigns, network_notes
from sandbox_kernel.model.notes import network_beside_proxy, network_open

NO_NETWORK = SandboxPolicy.preset("standard")


def hint(said: str, code: str = "", tried: tuple[str, ...] = ()) -> tuple[str, ...]:
    return network_notes(NO_NETWORK, NetworkSigns(said, code, tried), ())


COMPLAINTS = {
    "curl": ("curl: (6) Could not resolve host: example.org", "example.org"),
    "git": ("fatal: unable to access 'https://x.test/a/': Could not resolve host: x.test", "x.test"),
    "node": ("Error: getaddrinfo EAI_AGAIN packages.example.org", "packages.example.org"),
    "wget": ("wget: unable to resolve host address ‘example.org’", "example.org"),
    "requests": (
        "HTTPSConnectionPool(host='index.example.org', port=443): [Errno -2] Name or service not known",
        "index.example.org",
    ),
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


@pytest.mark.slow
def test_a_program_whose_lookup_fails_is_told_the_option() -> None:
    code = "import urllib.request; urllib.request.urlopen('http://example.org/')"
    with Sandbox() as box:
        assert "--allow-net example.org" in "".join(box.run(code).notes)
        with box.session() as session:
            assert "--allow-net example.org" in "".join(session.run(code).notes)
            assert session.run("1").notes == ()
        fetched = box.run("fetch('http://example.org/')", "javascript")
        assert "--allow-net example.org" in "".join(fetched.notes)


def test_a_program_that_catches_the_error_gets_the_hint_too() -> None:
    with Sandbox() as box, box.session() as session:
        result = session.run(
            "import urllib.request, asyncio, socket\n"
            "async def look(): await asyncio.get_running_loop().getaddrinfo('b.test', 443)\n"
            "try: urllib.request.urlopen('https://a.test/x')\nexcept OSError: pass\n"
            "try: await look()\nexcept OSError: pass"
        )
        assert result.ok
        assert [note.wanted.what for note in result.notes if note.wanted] == ["a.test"]
        # Names without a dot are those of machines: a library that asks for its own name wants no network.
        assert session.run("try: socket.getaddrinfo('this-host', 1)\nexcept OSError: pass").notes == ()
        assert session.run("1").notes == ()


def test_a_host_that_only_the_source_names_is_named_in_the_hint() -> None:
    (note,) = hint("<urlopen error [Errno -2] Name or service not known>", "get('https://user:pw@a.test:8443/x')")
    assert note.endswith("--allow-net a.test:8443")
    assert hint("", "get('https://a.test')") == ()


@pytest.mark.parametrize("backend", ["process", "wasm"])
@pytest.mark.one_case
def test_an_open_network_is_marked_in_the_receipt(backend: str) -> None:
    code = "console.log(1)"
    with Sandbox(SandboxPolicy.preset("standard").allow_network(), backend) as box:
        assert box.run(code, "javascript").notes == (network_open(),)
        with box.session("javascript") as session:
            result = session.run(code)
            assert result.notes == (network_open(),)
            assert network_open() in result._repr_mimebundle_()[0]["text/plain"]
    with Sandbox(SandboxPolicy.preset("standard").allow_domain("a.test"), backend) as box:
        assert box.run(code, "javascript").notes == ()


def test_a_program_that_goes_past_the_proxy_is_told_to_use_it() -> None:
    with Sandbox(SandboxPolicy.preset("standard").allow_domain("a.test")) as box:
        assert box.run("import socket; socket.create_connection(('a.test', 443))").notes == (network_beside_proxy(),)
        with box.session() as session:
            assert session.run("import socket; socket.create_connection(('a.test', 443))").notes == (
                network_beside_proxy(),
            )


def test_a_name_that_the_proxy_could_not_resolve_is_told_as_that() -> None:
    def fails(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    with Sandbox(SandboxPolicy.preset("standard").allow_domain("a.test"), resolver=fails) as box:
        (note,) = box.run("import urllib.request; urllib.request.urlopen('https://a.test/')").notes
    assert note.startswith("allowed, but not reached: the name a.test could not be resolved")
