"""Every parser that meets bytes of strangers, fed with bytes near what it expects: a value, or its own typed error.

Beside each parser's own tests, which feed it noise; here the noise begins as something real and is then damaged. Fixed
seeds, no clock.
"""

import asyncio
import base64
import json
from pathlib import Path

import h11
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_kernel import ExecRequest, ExecResult, SandboxPolicy
from sandbox_kernel.agent.sandbox_tool import SandboxTool
from sandbox_kernel.backends.base import BackendCapabilities, SandboxBackend
from sandbox_kernel.errors import InvalidRequest, PathTraversal, PolicyViolation
from sandbox_kernel.guest.wasm.binary import Caps, Malformed, inspect
from sandbox_kernel.guest.wasm.rewrite import prepare
from sandbox_kernel.languages.compile_cache import CompileCache, Compiled
from sandbox_kernel.model import Language
from sandbox_kernel.net.fetch_policy import FetchRefused
from sandbox_kernel.net.proxy.http_messages import read_request, refusal_reply
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.media import MAX_PIXELS, check_image
from sandbox_kernel.untrusted.sanitize import sanitize_bundle
from sandbox_kernel.workspace.tree.paths import names_beneath


def fixed(examples: int) -> settings:
    """So many examples, always the same ones, however slow the machine is."""
    health = list(HealthCheck)
    return settings(derandomize=True, deadline=None, max_examples=examples, database=None, suppress_health_check=health)


@st.composite
def damaged(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """One of the originals with a few bytes changed, cut, doubled or put in."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(0, 5))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(("change", "cut", "insert", "double", "ones"))):
            case "change" if data:
                data[place] = draw(st.integers(0, 255))
            case "cut":
                del data[place:]
            case "insert":
                data[place:place] = draw(st.binary(max_size=8))
            case "double":
                data[place:place] = data[place : place + 20]
            case "ones":
                data[place : place + 4] = b"\xff" * 4
    return bytes(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


# -- requests to the proxy

HEADS = [
    b"GET http://example.com/a?b=c HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n",
    b"POST http://example.com:80/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 3\r\n\r\nabc",
    b"PUT http://u:p@example.com/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nProxy-Authorization: Basic eA==\r\n\r\n",
    b"CONNECT [::1]:22 HTTP/1.0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.attack("N10", "network")
@fixed(100)
@given(damaged(HEADS))
@pytest.mark.slow
def test_a_damaged_proxy_request_is_one_request_or_a_refusal_that_cannot_be_split(data: bytes) -> None:
    connection = h11.Connection(h11.SERVER)
    try:
        connection.receive_data(data)
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return
    if not isinstance(event, h11.Request):
        return
    try:
        request = read_request(event)
    except FetchRefused as refusal:
        head, _, body = refusal_reply(refusal.violation).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 403 ")
        assert [line for line in head.split(b"\r\n")[1:] if b": " not in line or b"\n" in line] == []
        assert int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]) == len(body)
        return
    if not request.tunnel:
        sent = h11.Connection(h11.CLIENT).send(request.head_for_upstream())
        assert sent is not None
        again = h11.Connection(h11.SERVER)
        again.receive_data(sent)
        seen = again.next_event()
        assert isinstance(seen, h11.Request)
        assert dict(seen.headers)[b"host"].decode() == request.target.authority
        lengths = [name for name, _ in seen.headers if name in (b"content-length", b"transfer-encoding")]
        assert len(lengths) <= 1


# -- WebAssembly before the compiler


def _modules() -> list[bytes]:
    wasmtime = pytest.importorskip("wasmtime")
    texts = (
        """(module (import "wasi_snapshot_preview1" "proc_exit" (func $e (param i32))) (memory (export "memory") 1 9)
        (func (export "_start") (drop (memory.grow (i32.const 1))) (call $e (i32.const 3))))""",
        """(module (table 3 funcref) (func $s (local i32 i64) (block (loop (br_if 0 (i32.const 0))))) (start $s)
        (elem (i32.const 0) func $s) (memory 1) (data (i32.const 0) "text"))""",
        """(module (type $t (func (param i32 i64) (result i32))) (memory 1) (global (mut i32) (i32.const 64))
        (global f32 (f32.const 1)) (table $tab 4 8 funcref)
        (func $a (type $t) (local f32 f64 v128)
          (block (result i32) (br_table 0 0 0 (memory.grow (i32.const 0)) (i32.const 64))) (drop)
          (v128.store (i32.const 64) (v128.const i32x4 64 64 0 64))
          (memory.fill (i32.const 0) (i32.const 64) (i32.const 64))
          (memory.init 1 (i32.const 0) (i32.const 0) (i32.const 1)) (data.drop 1)
          (drop (table.grow $tab (ref.null func) (i32.const 64)))
          (drop (select (result i32) (i32.const 1) (i32.const 2) (i32.const 64)))
          (drop (call_indirect $tab (type $t) (i32.const 1) (i64.const 64) (i32.const 0))) (i32.const 0x4040))
        (func (export "_start") (if (i32.const 64) (then (drop (memory.grow (memory.size)))) (else (nop)))
          (f64.store (i32.const 64) (f64.const 2)) (return))
        (func $r (param i32) (result i32) (local.get 0) (i32.const 64) (i32.add) (return_call $r))
        (data (i32.const 0) "\\40\\00") (data "abc") (elem (table $tab) (i32.const 0) func $a) (elem func $a $r)
        (export "m" (memory 0)))""",
    )
    return [bytes(wasmtime.wat2wasm(text)) for text in texts]


@pytest.mark.attack("W01", "wasm")
@pytest.mark.slow
def test_a_damaged_module_is_measured_and_rewritten_or_malformed() -> None:
    originals = _modules()

    @fixed(400)
    @given(damaged(originals))
    def check(data: bytes) -> None:
        try:
            facts = inspect(data, Caps())
            rewritten = prepare(data, facts)
        except Malformed as problem:
            assert str(problem)
            return
        assert inspect(rewritten, Caps()).functions <= facts.functions + 1
        assert len(rewritten) < len(data) + 500
        if _valid(data):
            assert _valid(rewritten)

    check()


def _valid(data: bytes) -> bool:
    """Whether the engine takes a module as it is."""
    import wasmtime

    from sandbox_kernel.guest.wasm.engine import PLAIN, make_engine

    try:
        wasmtime.Module.validate(make_engine(PLAIN), data)
    except wasmtime.WasmtimeError:
        return False
    return True


@pytest.mark.attack("W01", "wasm")
@pytest.mark.slow
def test_a_damaged_module_that_is_compiled_was_valid_before_it_was_rewritten(folder: Path) -> None:
    from sandbox_kernel.guest.wasm.plan import CompilePlan
    from sandbox_kernel.guest.wasm.run import make

    originals = [module for module in _modules() if b"_start" in module]

    @fixed(300)
    @given(damaged(originals))
    def check(data: bytes) -> None:
        (folder / "module.wasm").write_bytes(data)
        ending = make(CompilePlan(source=str(folder / "module.wasm"), out=str(folder / "out.cwasm")))
        assert ending.end in ("compiled", "invalid")
        if ending.end == "compiled":
            assert _valid(data)

    check()


# -- outputs on their way to a page

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
JPEG = (
    b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xc0\0\x0b\x08\0\x02\0\x03\x01\x01\x11\0\xff\xd9"
    + bytes(20)
)
GIF = b"GIF89a\x02\0\x03\0\x80\0\0" + bytes(20)
WEBP = b"RIFF\x24\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x01\0\0\x02\0\0" + bytes(20)
PICTURES = {"image/png": PNG, "image/jpeg": JPEG, "image/gif": GIF, "image/webp": WEBP}


@pytest.mark.parametrize("mime", PICTURES)
def test_the_pictures_of_these_tests_are_pictures(mime: str) -> None:
    assert check_image(mime, base64.b64encode(PICTURES[mime]).decode())


@pytest.mark.attack("O01", "kernel")
@fixed(100)
@given(mime=st.sampled_from(sorted(PICTURES)), data=damaged(list(PICTURES.values())))
@pytest.mark.slow
def test_a_damaged_picture_is_drawable_or_refused_and_stays_what_it_was(mime: str, data: bytes) -> None:
    try:
        shown = check_image(mime, base64.b64encode(data).decode())
    except ContentRefused:
        return
    assert base64.b64decode(shown) == data
    assert data[:4] == PICTURES[mime][:4]
    if mime == "image/png":
        assert 0 < int.from_bytes(data[16:20], "big") * int.from_bytes(data[20:24], "big") <= MAX_PIXELS


MARKUP = [
    b'<svg xmlns="http://www.w3.org/2000/svg"><g onload="x()"><script>x()</script><a href="javascript:x()"/></g></svg>',
    b'<svg xmlns="http://www.w3.org/2000/svg"><style>*{background:url(//e)}</style><use href="#a"/><path d="M0 0"/></svg>',
    b"<table class='dataframe'><tr><td onclick=x()>1</td></tr></table><img src=x onerror=alert(1)>",
    b'<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">',
    b"<noscript><p title='</noscript><img src=x onerror=alert(1)>'><template><iframe srcdoc='<script>x()</script>'>",
    b"[a](javascript:x()) ![b](//e/x) <script>x()</script> `code` $\\href{javascript:x}{y}$ [c]: data:text/html,x",
]
ACTIVE = ("<script", "<iframe", "<object", "<embed", "<style", "<link", "<meta", "<form", "<base", "<foreignobject")


@pytest.mark.attack("O01", "kernel")
@fixed(300)
@given(kind=st.sampled_from(("text/html", "image/svg+xml")), data=damaged(MARKUP))
@pytest.mark.slow
def test_damaged_markup_is_inert_and_cleaning_it_again_changes_nothing(kind: str, data: bytes) -> None:
    markup = data.decode("utf-8", "replace")
    first = sanitize_bundle({kind: markup}, {}).data.get(kind, "")
    assert isinstance(first, str)
    _assert_inert(first)
    if first:
        second = sanitize_bundle({kind: first}, {}).data.get(kind, "")
        assert second == first


@pytest.mark.attack("O01", "kernel")
@fixed(200)
@given(damaged(MARKUP))
@pytest.mark.slow
def test_damaged_markdown_renders_to_nothing_that_acts(data: bytes) -> None:
    shown = sanitize_bundle({"text/markdown": data.decode("utf-8", "replace")}, {}).data
    assert "text/markdown" not in shown
    _assert_inert(str(shown.get("text/html", "")))


def _assert_inert(markup: str) -> None:
    from html.parser import HTMLParser

    class Audit(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert f"<{tag}" not in ACTIVE, tag
            for name, value in attrs:
                assert not name.lower().startswith("on"), (tag, name)
                assert name.lower() not in ("srcdoc", "formaction", "srcset", "ping"), (tag, name)
                plain = "".join((value or "").split()).lower()
                assert not plain.startswith(("javascript:", "vbscript:", "data:text")), (tag, name, value)

    Audit(convert_charrefs=True).feed(markup)


# -- policies, arguments, paths, caches

TOML = [
    b'allowNetwork = false\nallowedPaths = [{path = "/usr", writable = false}]\n[env]\nA = "b"\n',
    b'networkRules = [{domain = "example.com", ports = [443]}]\nmounts = []\n',
    b'{"allowedPaths": [], "allowNetwork": true, "env": {"A": "b"}, "mounts": [{"host": "/usr", "guest": "/u"}]}',
]


@fixed(100)
@given(data=damaged(TOML), ending=st.sampled_from(("toml", "json")))
def test_a_damaged_policy_file_is_a_policy_or_a_violation(folder: Path, data: bytes, ending: str) -> None:
    path = folder / f"policy.{ending}"
    path.write_bytes(data)
    try:
        policy = SandboxPolicy.load(path)
    except (PolicyViolation, InvalidRequest) as problem:
        assert str(problem)
        return
    assert SandboxPolicy.from_json(policy.to_json()) == policy


class Silent(SandboxBackend):
    """Runs nothing and notes what it was asked."""

    name = "process"
    isolation_class = "process+sandbox"

    def capabilities(self) -> BackendCapabilities:
        raise NotImplementedError

    def available_languages(self) -> tuple[Language, ...]:
        return (Language.PYTHON,)

    async def execute(self, request: ExecRequest, **_: object) -> ExecResult:
        return ExecResult(stdout=f"{request.language}", exit_code=0)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(["python", "1\0", "\ud800"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
TOOL = SandboxTool(Silent())
FIELDS = st.sampled_from(["language", "code", "timeout_secs", "stdin", "__class__", "env"])


@pytest.mark.attack("O08", "host")
@fixed(100)
@given(args=st.dictionaries(FIELDS, ANYTHING, max_size=6) | ANYTHING)
@pytest.mark.slow
def test_any_arguments_of_an_agent_are_answered_in_json(args: object) -> None:
    answer = asyncio.run(TOOL.execute(args))  # type: ignore[arg-type]
    assert answer["status"] in ("success", "error")
    json.dumps(answer).encode()


@pytest.mark.attack("O08", "host")
@fixed(300)
@given(
    st.lists(st.sampled_from(["..", ".", "/", "\\", "box", "/box", "a", "C:", "\0", "\udcff", "~", " "]), max_size=9)
)
@pytest.mark.slow
def test_a_path_made_of_tricks_stays_beneath_or_is_refused(parts: list[str]) -> None:
    for path in ("".join(parts), "/".join(parts)):
        try:
            names = names_beneath(path, folder=True)
        except (InvalidRequest, PathTraversal):
            continue
        assert all(name not in ("", ".", "..") and "/" not in name and "\0" not in name for name in names)


@fixed(100)
@given(data=st.data())
@pytest.mark.slow
def test_a_damaged_compiled_program_is_never_used(folder: Path, data: st.DataObject) -> None:
    cache = CompileCache(str(folder / "cache"))
    key = "ab" * 32
    stored = Compiled(program=b"\x7fELF program", messages=b"warning")
    cache.put(key, stored)
    path = folder / "cache" / key
    content = path.read_bytes()
    path.write_bytes(data.draw(damaged([content])))
    assert cache.get(key) in (None, stored)
