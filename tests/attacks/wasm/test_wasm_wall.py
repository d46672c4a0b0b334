"""The attacks of the list whose target is the wasm backend, by their numbers; the invariants hold after each."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.languages.compile_cache import CompileCache
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status, describe_end
from sandbox_kernel.policy import SandboxPolicy
from tests.attacks.harness import SECRET, has_a_name, unharmed

pytestmark = pytest.mark.timeout(600)
Run = Callable[..., ExecResult]
Told = Callable[[str, object], None]
WASI = '(import "wasi_snapshot_preview1" "{name}" (func ${name} {signature}))'
SIGNATURES = {
    "fd_write": "(param i32 i32 i32 i32) (result i32)",
    "random_get": "(param i32 i32) (result i32)",
    "poll_oneoff": "(param i32 i32 i32 i32) (result i32)",
    "clock_time_get": "(param i32 i64 i32) (result i32)",
    "proc_exit": "(param i32)",
    "path_open": "(param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)",
    "path_link": "(param i32 i32 i32 i32 i32 i32 i32) (result i32)",
    "path_rename": "(param i32 i32 i32 i32 i32 i32) (result i32)",
}


def wat(body: str, *calls: str, extra: str = "", memory: str = "1") -> str:
    wanted = " ".join(WASI.format(name=name, signature=SIGNATURES[name]) for name in calls)
    return f'(module {wanted} (memory (export "memory") {memory}) {extra} (func $main (export "_start") {body}))'


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WasmBackend]:
    yield WasmBackend(store=WasmStore(str(tmp_path_factory.mktemp("attacks") / "store")))


@pytest.fixture(scope="module")
def run(backend: WasmBackend) -> Run:
    def go(code: str | bytes, *, timeout: float = 20, language: str = "wasm", **fields: object) -> ExecResult:
        request = ExecRequest(language=Language(language), code=code, timeout=timeout, **fields)  # type: ignore[arg-type]
        result = backend.run(request)
        assert SECRET not in json.dumps(result.to_dict()), "the secret is in the result"
        assert result.duration <= timeout + 1, "it ran longer than its time limit and a second"
        assert result.status in (Status.OK, Status.FAILED, Status.COMPILE_FAILED) or has_a_name(result), result
        return result

    return go


@pytest.fixture(autouse=True)
def harmless(run: Run, tmp_path_factory: pytest.TempPathFactory, nothing_left: None) -> Iterator[None]:
    """After each attack: nothing outside was touched, nothing is left, and the next run works and is clean."""
    run(wat(""))
    with unharmed(tmp_path_factory.mktemp("outside")):
        yield
    assert run(wat("")).status is Status.OK


@pytest.mark.attack("W01", "wasm")
@pytest.mark.slow
def test_malformed_truncated_random_and_component_bytes_are_refused(run: Run) -> None:
    rng = random.Random(1)
    header = b"\0asm\x01\0\0\0"
    samples = [header + rng.randbytes(1000) for _ in range(5)]
    samples += [b"\0asm", header[:6], b"\0asm\x0d\0\x01\0" + rng.randbytes(50), rng.randbytes(100), header]
    for sample in samples:
        with pytest.raises(InvalidRequest):
            run(sample)
    assert run(wat("")).status is Status.OK


@pytest.mark.attack("W03", "wasm")
@pytest.mark.slow
def test_precompiled_code_from_outside_is_never_loaded(run: Run, backend: WasmBackend) -> None:
    run(wat("(drop (i32.const 3))"))
    cells = os.path.join(backend.store.folder, "cells")
    kept = CompileCache(cells).get(os.listdir(cells)[0])
    assert kept is not None
    with pytest.raises(InvalidRequest, match="never loaded from outside"):
        run(kept.program)


@pytest.mark.attack("W04", "wasm")
@pytest.mark.slow
def test_growing_without_end_meets_the_memory_limit(run: Run) -> None:
    result = run(wat("(loop $l (drop (memory.grow (i32.const 1024))) (br $l))"), memory_limit_mb=64)
    assert (result.status, result.limit) == (Status.MEMORY_EXCEEDED, "memory")


SLEEP = """(i32.store (i32.const 16) (i32.const 1)) (i64.store (i32.const 24) (i64.const 0x7fffffffffffffff))
  (loop $l (drop (call $poll_oneoff (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 200))) (br $l))"""
LOOPS, SLEEPS = pytest.mark.attack("W07", "wasm"), pytest.mark.attack("W09", "wasm")
ENDLESS = {
    "_start": wat("(loop $l (br $l))"),
    "start": '(module (func $s (loop $l (br $l))) (start $s) (func (export "_start")))',
    "bulk memory": wat("(loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 65536)) (br $l))"),
    "sleep": wat(SLEEP, "poll_oneoff"),
}


@pytest.mark.parametrize(
    "code",
    [pytest.param(code, id=name, marks=SLEEPS if name == "sleep" else LOOPS) for name, code in ENDLESS.items()],
)
@pytest.mark.slow
def test_what_does_not_end_is_ended(run: Run, code: str) -> None:
    assert run(code, timeout=1).status is Status.TIMEOUT


@pytest.mark.attack("W08", "wasm")
@pytest.mark.parametrize(
    "code",
    [
        '(module (func $f (export "_start") (call $f)))',
        """(module (type $t (func)) (table 1 funcref) (elem (i32.const 0) func $f)
          (func $f (export "_start") (call_indirect (type $t) (i32.const 0))))""",
        f'(module (func $f (export "_start") (local {"i64 " * 9000}) (local.set 8000 (i64.const 1)) (call $f)))',
    ],
    ids=["calls", "indirect calls", "huge frames"],
)
@pytest.mark.slow
def test_endless_recursion_is_a_trap(run: Run, code: str) -> None:
    result = run(code)
    assert result.status is Status.FAILED
    assert "call stack exhausted" in result.stderr


@pytest.mark.attack("W11", "wasm")
@pytest.mark.parametrize(
    "call",
    [
        "(call $random_get (i32.const 0) (i32.const -1))",
        "(call $random_get (i32.const 65530) (i32.const 100))",
        "(call $fd_write (i32.const 1) (i32.const 0) (i32.const 1000000) (i32.const 8))",
        "(call $fd_write (i32.const 1) (i32.const -8) (i32.const 1) (i32.const 8))",
        "(call $fd_write (i32.const 99) (i32.const 0) (i32.const 1) (i32.const 8))",
        "(call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0x40000000) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 8))",
    ],
    ids=["random", "random beyond the end", "vectors", "vectors beyond the end", "no descriptor", "path"],
)
@pytest.mark.slow
def test_absurd_sizes_in_host_calls_crash_nobody(run: Run, call: str) -> None:
    result = run(wat(f"(drop {call})", "random_get", "fd_write", "path_open"), memory_limit_mb=64)
    assert result.status in (Status.OK, Status.FAILED)
    assert result.signal is None


@pytest.mark.attack("W14", "wasm")
@pytest.mark.slow
def test_descriptors_run_out_for_the_guest_alone(run: Run) -> None:
    opened = """(call $path_open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 0) (i64.const 2)
      (i64.const 0) (i32.const 0) (i32.const 8))"""
    body = f"(local $e i32) (loop $l (local.set $e {opened}) (br_if $l (i32.eqz (local.get $e)))) (call $proc_exit (local.get $e))"
    program = wat(body, "path_open", "proc_exit", extra='(data (i32.const 64) "f")')
    result = run(program, files={"f": "x"}, limits=Limits(open_files=64))
    assert (result.status, result.exit_code in (29, 33)) == (Status.FAILED, True)


@pytest.mark.attack("W15", "wasm")
@pytest.mark.slow
def test_a_flood_of_output_is_cut(run: Run) -> None:
    body = """(local $i i32) (i32.store (i32.const 0) (i32.const 65536)) (i32.store (i32.const 4) (i32.const 1048576))
      (loop $l (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $l (i32.lt_u (local.get $i) (i32.const 1000))))"""
    result = run(wat(body, "fd_write", memory="20"), timeout=60)
    assert (result.status, result.limit, result.stdout_truncated) == (Status.OK, "output", True)
    assert result.stdout_bytes > 50_000_000
    assert len(result.stdout) < 1_100_000


@pytest.mark.attack("W16", "wasm")
@pytest.mark.slow
def test_a_module_leaves_only_by_the_call_that_ends_it(run: Run) -> None:
    body = "(call $proc_exit (i32.const 0)) unreachable"
    assert run(wat(body, "proc_exit")).exit_code == 0
    with pytest.raises(InvalidRequest, match="host_callback"):
        run('(module (import "env" "host_callback" (func $h)) (func (export "_start") (call $h)))')


@pytest.mark.attack("W19", "wasm")
@pytest.mark.slow
def test_clock_and_randomness_can_be_made_repeatable(run: Run) -> None:
    body = """(drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 64)))
      (drop (call $random_get (i32.const 72) (i32.const 4)))
      (call $proc_exit (i32.and (i32.const 0x7f) (i32.xor (i32.load (i32.const 64)) (i32.load (i32.const 72)))))"""
    program = wat(body, "clock_time_get", "random_get", "proc_exit")
    fixed = {"SANDBOX_TIME": "0", "SANDBOX_SEED": "3"}
    assert len({run(program, env=fixed).exit_code for _ in range(3)}) == 1


@pytest.mark.attack("W20", "wasm")
@pytest.mark.parametrize(
    "code",
    [
        '(module (type $s (struct (field i64))) (func (export "_start") (loop $l (drop (struct.new_default $s)) (br $l))))',
        '(module (tag $t) (func (export "_start") (loop $l (throw $t))))',
        '(module (memory i64 1) (func (export "_start")))',
    ],
    ids=["gc", "exceptions", "memory64"],
)
@pytest.mark.slow
def test_proposals_that_are_switched_off_are_refused(run: Run, code: str) -> None:
    with pytest.raises(InvalidRequest):
        run(code)


@pytest.mark.attack("F11", "wasm")
@pytest.mark.slow
def test_links_and_renames_between_folders_of_different_rights_are_refused(
    backend: WasmBackend, tmp_path: Path
) -> None:
    for name in ("ro", "rw"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(name)
    policy = SandboxPolicy().mount(tmp_path / "ro", "/ro").mount(tmp_path / "rw", "/rw", writable=True)
    mounted = WasmBackend(policy, store=backend.store)
    name = "(i32.const 64) (i32.const 1)"
    tries = [
        f"(call $path_link (i32.const {a}) (i32.const 0) {name} (i32.const {b}) (i32.const 68) (i32.const 1))"
        for a, b in ((6, 7), (7, 6), (6, 6))
    ]
    tries += [
        f"(call $path_rename (i32.const {a}) {name} (i32.const {b}) (i32.const 68) (i32.const 1))"
        for a, b in ((6, 7), (7, 6), (6, 6))
    ]
    for call in tries:
        program = wat(
            f"(call $proc_exit {call})", "path_link", "path_rename", "proc_exit", extra='(data (i32.const 64) "a   b")'
        )
        result = mounted.run(ExecRequest(language=Language.WASM, code=program, timeout=20))
        assert result.exit_code != 0, call
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "a", "ro", "rw"]
    assert (tmp_path / "ro" / "a").read_text() == "ro"


@pytest.fixture(scope="module")
def python(guest_backend_here: WasmBackend) -> Run:
    def go(code: str, **fields: object) -> ExecResult:
        request = ExecRequest(language=Language.PYTHON, code=code, **{"timeout": 90.0, **fields})  # type: ignore[arg-type]
        return guest_backend_here.run(request)

    return go


@pytest.fixture(scope="module")
def guest_backend_here() -> WasmBackend:
    return WasmBackend()


FILLS = {
    "R09": "f = open('big', 'wb')\nfor i in range(4096): f.write(b'x' * (1 << 20))",
    "R10": "for i in range(8000): open('f%d' % i, 'wb').write(b'x' * 8192)",
    "R11": "import os\nfor i in range(300000): os.mkdir('d%d' % i)",
}


@pytest.mark.parametrize(
    "number",
    [
        pytest.param("R09", marks=pytest.mark.attack("R09", "wasm")),
        pytest.param("R10", marks=pytest.mark.attack("R10", "wasm")),
        pytest.param("R11", marks=pytest.mark.attack("R11", "wasm")),
    ],
)
@pytest.mark.slow
def test_disk_and_inodes_are_limited(python: Run, number: str, record_property: Told) -> None:
    # Files that are not closed by the program fail in silence, so that one may go on until its time is over.
    result = python(FILLS[number], limits=Limits(disk_mb=32), timeout=8 if number == "R10" else 90)
    record_property("ended", describe_end(result) + (" (with 8 000 files)" if number == "R10" else ""))
    assert result.limit == "disk" or (number == "R10" and result.limit == "timeout")


@pytest.mark.attack("R12", "wasm")
@pytest.mark.slow
def test_a_terabyte_of_holes_is_refused(python: Run, record_property: Told) -> None:
    result = python("open('s', 'wb').truncate(1 << 40)")
    record_property("ended", describe_end(result))
    assert result.status in (Status.OK, Status.FAILED)


@pytest.mark.attack("R14", "wasm")
@pytest.mark.slow
def test_a_deep_tree_is_cleaned_up(python: Run, record_property: Told) -> None:
    code = "import os\np = '/box'\nfor i in range(1000):\n    p += '/a'\n    os.mkdir(p)\nprint('made')"
    result = python(code)
    record_property("ended", f"{describe_end(result)} (with 1 000 levels)")
    assert result.stdout == "made\n"


@pytest.mark.attack("F02", "wasm")
@pytest.mark.attack("F01", "wasm")
@pytest.mark.slow
def test_files_of_the_host_cannot_be_opened(python: Run) -> None:
    paths = [
        "/etc/shadow", "/guest/gate.py", "/proc/self/environ", "/root/.ssh/id_rsa", "/proc/1/root/etc/shadow",
        "../../../../etc/passwd", "/box/../etc/passwd", "//etc/passwd", "etc\0/passwd", "..%2f..%2fetc/passwd",
        "\uff0e\uff0e/etc", "/etc/passwd/",
    ]  # fmt: skip
    code = f"for path in {paths!r}:\n  try: print(open(path).read())\n  except (OSError, ValueError): print('refused')"
    result = python(code)
    assert (result.status, result.stdout) == (Status.OK, "refused\n" * len(paths)), result.stderr
