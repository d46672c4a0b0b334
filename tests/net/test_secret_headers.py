"""Secrets stay outside: a placeholder inside, the value only in headers to its own hosts, over TLS unless said."""

import base64
import json
import pickle
from pathlib import Path

import pytest

from sandbox_kernel import (
    FetchError,
    FetchRequest,
    InvalidRequest,
    PolicyViolation,
    SafeClient,
    Sandbox,
    SandboxPolicy,
    Secret,
)
from sandbox_kernel.commands.shared import make_secrets
from sandbox_kernel.net.egress import SECRETS_VARIABLE
from sandbox_kernel.net.fetch_policy import FetchRefused
from sandbox_kernel.net.secret_headers import Vault
from sandbox_kernel.net.targets import parse_url

VALUE = "real-value-0123456789"


def secret(*hosts: str, **more: object) -> Secret:
    return Secret(name="TOKEN", value=VALUE, hosts=hosts or ("api.test",), **more)  # type: ignore[arg-type]


def test_the_value_is_in_no_representation() -> None:
    made = secret()
    assert VALUE not in repr(made) + str(made) + made.placeholder + repr(Vault([made]).placeholders)
    assert made.placeholder == secret().placeholder, "what one cell noted works in another"
    assert made.placeholder != Secret(name="TOKEN", value=VALUE + "x", hosts=["api.test"]).placeholder
    assert made.placeholder != Secret(name="OTHER", value=VALUE, hosts=["api.test"]).placeholder
    assert pickle.loads(pickle.dumps(made)).placeholder == made.placeholder


@pytest.mark.parametrize(
    ("name", "value", "hosts"),
    [
        ("", VALUE, ["a.test"]), ("A=B", VALUE, ["a.test"]), ("LD_PRELOAD", VALUE, ["a.test"]),
        ("T", "", ["a.test"]), ("T", "a\r\nX: y", ["a.test"]), ("T", " a", ["a.test"]), ("T", "é", ["a.test"]),
        ("T", "x" * 4097, ["a.test"]), ("T", 5, ["a.test"]),
        ("T", VALUE, []), ("T", VALUE, "a.test"), ("T", VALUE, ["*"]), ("T", VALUE, ["http://a.test"]),
    ],
)  # fmt: skip
def test_a_secret_that_cannot_be_kept_is_refused_without_showing_it(name: str, value: str, hosts: list[str]) -> None:
    with pytest.raises(PolicyViolation) as error:
        Secret(name=name, value=value, hosts=hosts)
    assert VALUE not in str(error.value)


def test_two_secrets_of_one_name_are_refused() -> None:
    with pytest.raises(PolicyViolation, match="same name"):
        Vault([secret(), secret()])


def test_the_value_goes_into_headers_and_into_the_base64_of_basic() -> None:
    made = secret()
    vault = Vault([made])
    pair = base64.b64encode(f"me:{made.placeholder}".encode()).decode()
    headers = (("Authorization", f"Bearer {made.placeholder}"), ("X-Other", "x"), ("X-Basic", f"Basic {pair}"))
    filled = dict(vault.fill(parse_url("https://api.test/"), headers))
    assert filled["Authorization"] == f"Bearer {VALUE}"
    assert filled["X-Other"] == "x"
    assert base64.b64decode(filled["X-Basic"].split()[1]).decode() == f"me:{VALUE}"


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("https://other.test/", "secret_not_for_host"),
        ("https://sub.api.test/", "secret_not_for_host"),
        ("https://api.test.evil.test/", "secret_not_for_host"),
        ("https://api.test:8443/", "secret_not_for_host"),
        ("http://api.test/", "secret_needs_tls"),
    ],
)
def test_a_placeholder_on_its_way_elsewhere_is_refused(url: str, rule: str) -> None:
    made = secret()
    with pytest.raises(FetchRefused) as error:
        Vault([made]).fill(parse_url(url), (("X", made.placeholder),))
    assert error.value.rule == rule
    assert VALUE not in str(error.value)
    assert Vault([made]).fill(parse_url(url), (("X", "plain"),)) == (("X", "plain"),)


def test_a_guests_fetch_carries_the_value_and_everything_it_gets_the_placeholder(tls_site, names, authority) -> None:
    made = secret(f"site.test:{tls_site.port}")
    log: list[object] = []
    client = SafeClient(tls_site.policy(), names, log.append, ca_file=authority.ca_file, vault=Vault([made]))
    request = FetchRequest(url=tls_site.url(scheme="https"), headers={"Authorization": f"Bearer {made.placeholder}"})
    assert client.fetch(request).ok
    assert tls_site.seen[0].all("authorization") == [f"Bearer {VALUE}"]
    assert VALUE not in repr(log)
    assert VALUE not in repr(request)


def test_a_redirect_to_another_host_takes_no_value_along(tls_site, names, authority) -> None:
    made = secret(f"site.test:{tls_site.port}")
    there = f"https://other.test:{tls_site.port}/"
    tls_site.routes["/"] = tls_site.reply(302, b"", f"Location: {there}")
    rules = tls_site.policy(allowed_domains=(f"site.test:{tls_site.port}", f"other.test:{tls_site.port}"))
    client = SafeClient(rules, names, ca_file=authority.ca_file, vault=Vault([made]))
    url = tls_site.url(scheme="https")
    for name, rule in {"User-Agent": "secret_not_for_host", "X-Key": "connection_failed"}.items():
        with pytest.raises(FetchError) as error:
            client.fetch(FetchRequest(url=url, headers={name: made.placeholder}))
        # The second header was dropped, and the certificate is not other.test's.
        assert error.value.rule == rule
    assert len(tls_site.seen) == 2


def test_a_plain_request_to_the_proxy_is_sent_on_over_tls_to_a_server_with_the_right_certificate(
    tls_site, open_door, authority, monkeypatch
) -> None:
    made = secret(f"site.test:{tls_site.port}")
    distrusting = open_door(tls_site.policy(), vault=Vault([made]))
    answer = distrusting.talk(distrusting.get(tls_site.url("/"), f"X: {made.placeholder}"))
    assert answer.startswith(b"HTTP/1.1 502 "), answer
    assert VALUE.encode() not in answer and tls_site.seen == []
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
    door = open_door(tls_site.policy(), vault=Vault([made]))
    answer = door.talk(door.get(tls_site.url("/"), f"Authorization: Bearer {made.placeholder}"))
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert answer.endswith(b"secret hello")
    assert tls_site.seen[0].all("authorization") == [f"Bearer {VALUE}"]
    assert tls_site.seen[0].all("host") == [f"site.test:{tls_site.port}"]


def test_plain_http_has_to_be_said(site, open_door) -> None:
    made = secret(f"site.test:{site.port}", plain_http=True)
    door = open_door(site.policy(), vault=Vault([made]))
    assert door.talk(door.get(site.url("/"), f"X-Key: {made.placeholder}")).startswith(b"HTTP/1.1 200 ")
    assert site.seen[0].all("x-key") == [VALUE]


def test_another_host_gets_neither_value_nor_placeholder_also_inside_a_tunnel_of_plain_http(site, open_door) -> None:
    made = secret("api.test")
    door = open_door(site.policy(), vault=Vault([made]), limits=site.limits_as(80))
    answers = [door.talk(door.get(site.url("/"), f"X-Key: {made.placeholder}"))]
    assert door.rules == ["secret_not_for_host"]
    with door.open_tunnel(f"site.test:{site.port}") as tunnel:
        tunnel.sendall(f"GET / HTTP/1.1\r\nHost: site.test\r\nX: {made.placeholder}\r\n\r\n".encode())
        answers.append(door.read_all(tunnel))
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 403 ") and VALUE.encode() not in answer
    assert site.seen == []
    assert door.talk(door.get(site.url("/"))).startswith(b"HTTP/1.1 200 ")


def test_a_tunnel_to_the_host_of_a_secret_is_refused_and_says_what_to_write(site, open_door) -> None:
    """The proxy cannot put anything into what the program encrypts itself."""
    made = secret(f"site.test:{site.port}")
    door = open_door(site.policy(), vault=Vault([made]))
    answer = door.talk(f"CONNECT site.test:{site.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert door.rules == ["secret_in_tunnel"]
    assert "http://site.test/" in door.proxy.violations[0].remedy
    free = open_door(site.policy(), vault=Vault([secret("api.test")]))
    free.open_tunnel(f"site.test:{site.port}").close()


def test_a_plain_request_through_a_tunnel_is_filled_and_sent_on_over_tls(
    tls_site, open_door, authority, monkeypatch
) -> None:
    """Node.js' fetch tunnels plain HTTP too."""
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
    made = secret(f"site.test:{tls_site.port}")
    door = open_door(tls_site.policy(), vault=Vault([made]), limits=tls_site.limits_as(80))
    with door.open_tunnel(f"site.test:{tls_site.port}") as tunnel:
        tunnel.sendall(f"GET / HTTP/1.1\r\nHost: site.test\r\nX: {made.placeholder}\r\n\r\n".encode())
        assert door.read_all(tunnel).endswith(b"secret hello")
    assert tls_site.seen[0].all("x") == [VALUE]
    with door.open_tunnel(f"site.test:{tls_site.port}") as tunnel:
        tunnel.sendall(b"\x16\x03\x01\x00\x05hello")
        assert door.read_all(tunnel)[:1] == b"\x15", "an alert of TLS"
    assert door.rules == ["secret_in_tunnel"]
    assert len(tls_site.seen) == 1


def test_a_tunnel_of_plain_http_to_the_host_of_a_secret_passes_the_policy_first(site, open_door) -> None:
    made = secret(f"other.test:{site.port}")
    door = open_door(site.policy(), vault=Vault([made]), limits=site.limits_as(80))
    answer = door.talk(f"CONNECT other.test:{site.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert door.rules == ["domain_not_allowed"]


PROGRAM = """
import os, json, urllib.request
asked = urllib.request.Request(os.environ["URL"], headers={"Authorization": "Bearer " + os.environ["TOKEN"]})
print(os.environ["TOKEN"], urllib.request.urlopen(asked, timeout=20).status)
"""


def test_a_program_uses_a_secret_that_it_never_has(tls_site, names, authority, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
    made = secret(f"site.test:{tls_site.port}")
    policy = SandboxPolicy.preset("standard").allow_domain("site.test", tls_site.port)
    log = tmp_path / "audit.jsonl"
    with Sandbox(policy, allow_private_for=["site.test"], resolver=names, secrets=[made], audit=log) as box:
        result = box.run(PROGRAM, env={"URL": tls_site.url("/")})
        assert result.stdout == f"{made.placeholder} 200\n", result.stderr
        with box.session() as session:
            assert (
                session.run(f"import os\nos.environ['URL'] = {tls_site.url('/')!r}\n{PROGRAM}").stdout == result.stdout
            )
        assert VALUE not in json.dumps(result.to_dict()) + repr(box.policy)
    assert [request.all("authorization") for request in tls_site.seen] == [[f"Bearer {VALUE}"]] * 2
    assert VALUE not in log.read_text()


def test_a_variable_of_the_policy_is_not_replaced_in_silence() -> None:
    with pytest.raises(PolicyViolation, match="TOKEN"):
        Sandbox(SandboxPolicy.preset("standard").with_env("TOKEN", "x"), secrets=[secret()])


def test_the_command_line_takes_values_from_the_callers_environment() -> None:
    made = make_secrets(["TOKEN@a.test", "TOKEN@b.test:8443"], {"TOKEN": VALUE})
    assert [(one.name, one.value, len(tuple(one.hosts))) for one in made] == [("TOKEN", VALUE, 2)]
    assert make_secrets([], {}) == ()
    for wrong in ("TOKEN", "@a.test", "TOKEN@", "OTHER@a.test", "TOKEN@http://a.test"):
        with pytest.raises(InvalidRequest, match="--secret"):
            make_secrets([wrong], {"TOKEN": VALUE})


def test_every_sandbox_of_a_kernel_has_the_secrets_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", VALUE)
    monkeypatch.setenv(SECRETS_VARIABLE, "TOKEN@api.test, TOKEN@other.test:8443")
    with Sandbox() as box:
        shown = box.run("import os; print(os.environ['TOKEN'])").stdout
    assert shown == f"{secret().placeholder}\n"
    monkeypatch.setenv(SECRETS_VARIABLE, "MISSING@api.test")
    with pytest.raises(PolicyViolation, match="no variable MISSING"):
        Sandbox()
