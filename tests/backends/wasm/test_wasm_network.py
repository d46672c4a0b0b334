"""Guests in WebAssembly fetch through their parent: three functions for modules, JavaScript's ``fetch``, and nothing else."""

import asyncio
import base64
import json
import threading
from collections.abc import Iterator

import pytest

from sandbox_kernel import (
    ExecRequest,
    ExecResult,
    Language,
    PolicyViolation,
    Sandbox,
    SandboxPolicy,
    Secret,
    Status,
    WasmBackend,
)
from sandbox_kernel.net.egress import Egress
from sandbox_kernel.session.open_wasm import open_wasm_session
from sandbox_kernel.util.loop_thread import NETWORK
from tests.loopback_server import QuietHandler, serving

BINARY = bytes(range(256))


class _Site(QuietHandler):
    #: Set by the test; a request for /never waits for it.
    never = threading.Event()
    asked = threading.Semaphore(0)

    def do_GET(self) -> None:
        if self.path == "/never":
            self.asked.release()
            self.never.wait(60)
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/")
            self.end_headers()
            return
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length) if length else {"/binary": BINARY, "/large": bytes(9 << 20)}.get(self.path)
        self._say(
            json.dumps({"host": self.headers["Host"], "word": self.headers["X-Word"]}).encode()
            if body is None
            else body
        )

    do_POST = do_GET

    def _say(self, body: bytes) -> None:
        self.send_response(404 if self.path == "/404" else 200)
        self.send_header("X-Method", self.command)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def port() -> Iterator[int]:
    with serving(_Site) as number:
        _Site.never.clear()
        assert NETWORK.loop  # it stays, with descriptors of its own
        yield number
        _Site.never.set()


def backend(port: int) -> WasmBackend:
    egress = Egress(allow_private_for=["allowed.test"], resolver=lambda *_: ["127.0.0.1"])
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)
    return WasmBackend(policy, pool_size=0, proxy=egress.proxy)


def run(ours: WasmBackend, code: str, language: Language = Language.JAVASCRIPT, timeout: float = 30) -> ExecResult:
    return ours.run(ExecRequest(language=language, code=code, timeout=timeout))


def module(request: bytes, *, address: int = 4096, size: int | None = None, pages: int = 64) -> str:
    """Asks, prints the response, and exits with what the call returned, made positive; behind the request are spaces."""
    data = "".join(f"\\{byte:02x}" for byte in request)
    length = len(request) if size is None else size
    return f"""(module
      (import "sandbox" "__sandbox_fetch" (func $fetch (param i32 i32) (result i32)))
      (import "sandbox" "__sandbox_fetch_response_len" (func $len (result i32)))
      (import "sandbox" "__sandbox_fetch_response_read" (func $read (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (memory (export "memory") {pages})
      (data (i32.const 4096) "{data}")
      (func (export "_start") (local $told i32)
        (memory.fill (i32.const {4096 + len(request)}) (i32.const 32) (i32.const {(pages - 2) * 65536}))
        (local.set $told (call $fetch (i32.const {address}) (i32.const {length})))
        (i32.store (i32.const 0) (i32.const 65536))
        (i32.store (i32.const 4) (call $len))
        (drop (call $read (i32.const 65536) (call $len)))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        (call $exit (i32.sub (i32.const 0) (local.get $told)))))"""


@pytest.mark.slow
def test_a_module_fetches_through_the_three_functions(port: int) -> None:
    wanted = json.dumps({"url": f"http://allowed.test:{port}/", "headers": {"X-Word": "yes", "Host": "evil.test"}})
    result = run(backend(port), module(wanted.encode()), Language.WASM)
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert (answer["status"], answer["ok"], answer["error"]) == (200, True, None)
    assert answer["headers"]["x-method"] == "GET"
    assert json.loads(answer["body"]) == {"host": f"allowed.test:{port}", "word": "yes"}


def test_a_binary_body_is_intact_both_ways(port: int) -> None:
    sent = base64.b64encode(BINARY).decode()
    wanted = json.dumps({"url": f"http://allowed.test:{port}/", "method": "POST", "body_b64": sent})
    answer = json.loads(run(backend(port), module(wanted.encode()), Language.WASM).stdout)
    assert base64.b64decode(answer["body_b64"]) == BINARY


def test_without_permission_the_functions_say_so() -> None:
    result = run(WasmBackend(pool_size=0), module(b'{"url": "http://allowed.test/"}'), Language.WASM)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(module(b"no json"), id="no JSON"),
        pytest.param(module(b"[" * 50_000), id="a bracket bomb"),
        pytest.param(module(b"{}"), id="no url"),
        pytest.param(module(b"{}", address=-1), id="an address below zero"),
        pytest.param(module(b"{}", size=-1), id="a size below zero"),
        pytest.param(module(b"{}", address=64 * 65536 - 1), id="beyond the memory"),
        pytest.param(module(b"{}", size=0x7FFFFFFF), id="S7: two gigabytes"),
        pytest.param(module(b'{"url": "x"}', size=17 << 20, pages=320), id="S7: more than a request may have"),
    ],
)
@pytest.mark.one_case
def test_a_request_that_is_none_is_refused_before_it_is_copied(port: int, text: str) -> None:
    result = run(backend(port), text, Language.WASM)
    assert (result.status, result.exit_code) == (Status.FAILED, 1), result.stderr


@pytest.mark.slow
def test_a_fetch_that_hangs_ends_with_the_clock_of_the_run(port: int) -> None:
    ours = backend(port)
    result = run(ours, f"console.log('so far'); await fetch('http://allowed.test:{port}/never')", timeout=5)
    assert (result.status, result.stdout) == (Status.TIMEOUT, "so far\n")
    assert run(ours, "console.log(1)").stdout == "1\n"


@pytest.mark.slow
def test_a_fetch_that_hangs_can_be_interrupted(port: int) -> None:
    async def scenario() -> ExecResult:
        cancel = asyncio.Event()
        request = ExecRequest(
            language=Language.JAVASCRIPT, code=f"await fetch('http://allowed.test:{port}/never')", timeout=60
        )
        running = asyncio.create_task(backend(port).execute(request, cancel=cancel))
        await asyncio.to_thread(_Site.asked.acquire)
        cancel.set()
        return await running

    assert asyncio.run(scenario()).status is Status.INTERRUPTED


def test_a_body_larger_than_a_guest_can_hold_is_refused(port: int) -> None:
    result = run(backend(port), f"await fetch('http://allowed.test:{port}/large')")
    assert "response_body_too_large" in result.stderr


JAVASCRIPT = {
    "js_fetch": ("const r = await fetch(URL); console.log(r.status, r.ok)", "200 true"),
    "js_fetch_with_options": (
        "const r = await fetch(URL, { method: 'POST', body: 'text' }); console.log(r.headers.get('X-METHOD'), await r.text())",
        "POST text",
    ),
    "response_body": ("console.log((await (await fetch(URL, { headers: { 'X-Word': 'w' } })).json()).word)", "w"),
    "text_method": ("console.log((await (await fetch(URL)).text()).length > 10)", "true"),
    "ok_property": ("const r = await fetch(URL + '404'); console.log(r.status, r.ok)", "404 false"),
    "binary": (
        "const b = await (await fetch(URL + 'binary')).bytes(); console.log(b.length, b.every((v, i) => v === i))",
        "256 true",
    ),
    "binary_sent": (
        "const o = { method: 'POST', body: new Uint8Array([0, 9, 255]).subarray(1) }; console.log(await BYTES)",
        "9,255",
    ),
    "read_twice": (
        "const r = await fetch(URL); await r.text(); try { await r.text() } catch (e) { console.log(e.name) }",
        "TypeError",
    ),
}


def test_javascript_fetches(port: int) -> None:
    code = "\n".join(f"{{ {each} }}" for each, _ in JAVASCRIPT.values())
    code = code.replace("BYTES", "fetch(URL, o).then((r) => r.arrayBuffer()).then((b) => new Uint8Array(b).join())")
    result = run(backend(port), code.replace("URL", f"'http://allowed.test:{port}/'"))
    shown = dict(zip(JAVASCRIPT, result.stdout.splitlines(), strict=False))
    assert shown == {name: printed for name, (_, printed) in JAVASCRIPT.items()}, result.stderr


def test_fetch_without_permission_is_told_with_the_option() -> None:
    result = run(WasmBackend(pool_size=0), "try { await fetch('http://a.test/') } catch (e) { console.log(String(e)) }")
    assert result.stdout.startswith("TypeError: fetch failed: networking disabled")
    assert "--allow-net" in result.stdout


REFUSED = {
    "http://other.test/": "domain_not_allowed",
    "http://169.254.170.2/latest/": "private_ip_blocked",
    "http://2130706433/": "private_ip_blocked",
    "http://[::ffff:127.0.0.1]/": "private_ip_blocked",
    "http://user:word@allowed.test/": "invalid_url",
    "file:///etc/passwd": "scheme_not_allowed",
    "http://allowed.test:1/": "port_not_allowed",
    "http://allowed.test:PORT/away": "private_ip_blocked",
}


def test_a_refused_fetch_is_a_violation_of_the_result(port: int) -> None:
    urls = [url.replace("PORT", str(port)) for url in REFUSED]
    code = f"for (const url of {json.dumps(urls)}) try {{ await fetch(url); console.log(url) }} catch (e) {{}}"
    result = run(backend(port), code)
    assert result.stdout == "", result.stderr
    assert [violation.rule for violation in result.violations] == list(REFUSED.values()), result.stderr


@pytest.mark.slow
def test_a_session_in_wasm_fetches_and_each_cell_tells_its_own_refusals(port: int, nothing_left: None) -> None:
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)
    with (
        Sandbox(policy, "wasm", allow_private_for=["allowed.test"], resolver=lambda *_: ["127.0.0.1"]) as box,
        box.session("javascript") as session,
    ):
        assert session.run(f"const get = (h) => fetch(`http://${{h}}:{port}/`)").ok
        assert session.run("(await get('allowed.test')).status").displays[-1].data["text/plain"] == "200"
        refused = session.run("await get('other.test')")
        assert [violation.subject for violation in refused.violations] == [f"other.test:{port}"]
        assert session.run("1").violations == ()


def test_a_network_that_the_walls_cannot_hold_is_refused_before_anything_runs(port: int) -> None:
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port)
    ours = WasmBackend(policy, enforcer="landlock", pool_size=0)
    for act in (lambda: run(ours, "1"), lambda: open_wasm_session(ours)):
        with pytest.raises(PolicyViolation, match=r"allow_domain.*landlock"):
            act()


@pytest.mark.slow
def test_a_guest_sends_a_secret_that_it_never_has(port: int) -> None:
    """The server says which word it got: what it repeats comes back, which is why such hosts get no secret."""
    secret = Secret(name="TOKEN", value="real-value", hosts=[f"allowed.test:{port}"], plain_http=True)
    policy = SandboxPolicy.preset("standard").allow_domain("allowed.test", port).allow_domain("other.test", port)
    private = ["allowed.test", "other.test"]
    code = (
        "const get = async (host) => (await fetch(`http://${host}:PORT/`, {headers: {'X-Word': process.env.TOKEN}}))\n"
        "console.log(process.env.TOKEN); console.log(await (await get('allowed.test')).text())\n"
        "try { await get('other.test') } catch (error) { console.log('refused') }"
    ).replace("PORT", str(port))
    with Sandbox(policy, "wasm", allow_private_for=private, resolver=lambda *_: ["127.0.0.1"], secrets=[secret]) as box:
        result = box.run(code, "javascript", timeout=60)
    inside, there, other = result.stdout.splitlines()
    assert inside == secret.placeholder, result.stderr
    assert json.loads(there)["word"] == "real-value"
    assert other == "refused"
    assert [violation.rule for violation in result.violations] == ["secret_not_for_host"]
