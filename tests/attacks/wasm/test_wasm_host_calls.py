"""Modules that abuse each host call: pointers and lengths out of range, endless numbers, paths that lead out.

Beside the lines of the list in ``test_wasm_wall.py``. A call may fail or trap; the embedder, the host and all files
outside must not notice, and the next module runs.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status
from sandbox_kernel.policy import SandboxPolicy
from tests.attacks.harness import SECRET, make_sentinels, sentinel_state, unharmed

#: By name: the types of the parameters, i for 32 bits and I for 64.
CALLS = {
    "args_get": "ii", "args_sizes_get": "ii", "environ_get": "ii", "environ_sizes_get": "ii", "clock_res_get": "ii",
    "clock_time_get": "iIi", "fd_advise": "iIIi", "fd_allocate": "iII", "fd_close": "i", "fd_datasync": "i",
    "fd_fdstat_get": "ii", "fd_fdstat_set_flags": "ii", "fd_fdstat_set_rights": "iII", "fd_filestat_get": "ii",
    "fd_filestat_set_size": "iI", "fd_filestat_set_times": "iIIi", "fd_pread": "iiiIi", "fd_prestat_get": "ii",
    "fd_prestat_dir_name": "iii", "fd_pwrite": "iiiIi", "fd_read": "iiii", "fd_readdir": "iiiIi", "fd_renumber": "ii",
    "fd_seek": "iIii", "fd_sync": "i", "fd_tell": "ii", "fd_write": "iiii", "path_create_directory": "iii",
    "path_filestat_get": "iiiii", "path_filestat_set_times": "iiiiIIi", "path_link": "iiiiiii",
    "path_open": "iiiiiIIii", "path_readlink": "iiiiii", "path_remove_directory": "iii", "path_rename": "iiiiii",
    "path_symlink": "iiiii", "path_unlink_file": "iii", "poll_oneoff": "iiii", "sched_yield": "", "random_get": "ii",
    "sock_recv": "iiiiii", "sock_send": "iiiii", "sock_shutdown": "ii", "sock_accept": "iii",
}  # fmt: skip
TYPES = {"i": "i32", "I": "i64"}


def module(body: str, *names: str, data: str = "", memory: str = "1") -> str:
    imports = " ".join(
        f'(import "wasi_snapshot_preview1" "{name}" (func ${name} '
        f"(param {' '.join(TYPES[kind] for kind in CALLS[name])}) (result i32)))"
        for name in names
    )
    text = f'(data (i32.const 64) "{data}")' if data else ""
    return f'(module {imports} (memory (export "memory") {memory}) {text} (func (export "_start") {body}))'


def called(name: str, *values: int) -> str:
    given = " ".join(f"({TYPES[kind]}.const {value})" for kind, value in zip(CALLS[name], values, strict=True))
    return f"(drop (call ${name} {given}))"


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> WasmBackend:
    return WasmBackend(store=WasmStore(str(tmp_path_factory.mktemp("host-calls") / "store")))


def go(backend: WasmBackend, code: str, **fields: object) -> ExecResult:
    options = {"timeout": 20, **fields}
    return backend.run(ExecRequest(language=Language.WASM, code=code, **options))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def harmless(backend: WasmBackend, tmp_path_factory: pytest.TempPathFactory, nothing_left: None) -> Iterator[None]:
    assert go(backend, module("")).ok
    with unharmed(tmp_path_factory.mktemp("outside")):
        yield
    assert go(backend, module("")).ok


MAX = 0x7FFFFFFF
#: By what they do: the calls that one module makes, one after the other. The first file is opened as 4, its folder is 3.
ABUSES: dict[str, list[tuple[str, tuple[int, ...]]]] = {
    "2^31 subscriptions": [("poll_oneoff", (0, 0, MAX, 0))],
    "2^32 subscriptions": [("poll_oneoff", (0, 0, -1, 0))],
    "no subscription": [("poll_oneoff", (0, 0, 0, 0))],
    "cookies of nowhere": [
        *(("fd_readdir", (3, 1024, 4096, cookie, 0)) for cookie in (-1, 1 << 62, 1, 2, 3, 1000)),
        ("fd_readdir", (3, 1024, 0, 0, 0)),
        ("fd_readdir", (3, 1024, -1, 0, 0)),
    ],
    "sizes beyond every disk": [
        ("fd_allocate", (4, 0, (1 << 63) - 1)),
        ("fd_allocate", (4, (1 << 63) - 1, (1 << 63) - 1)),
        ("fd_filestat_set_size", (4, (1 << 63) - 1)),
        ("fd_filestat_set_size", (4, -1)),
        ("fd_seek", (4, (1 << 63) - 1, 1, 0)),
        ("fd_seek", (4, -(1 << 63), 2, 0)),
        ("fd_pwrite", (4, 8, 1, (1 << 63) - 1, 0)),
        ("fd_pwrite", (4, 8, 1, -1, 0)),
    ],
    "times of no calendar": [
        ("fd_filestat_set_times", (4, -1, -1, 5)),
        ("fd_filestat_set_times", (4, 0, 0, 15)),
        ("path_filestat_set_times", (3, 0, 64, 1, (1 << 63) - 1, -1, 5)),
    ],
    "descriptors that are none": [
        *((name, (fd, *(8,) * (len(CALLS[name]) - 1))) for name in ("fd_close", "fd_sync", "fd_tell", "fd_read")
          for fd in (-1, MAX, 999)),
        *(("fd_renumber", pair) for pair in ((4, MAX), (4, -1), (999, 4), (3, 4), (4, 4))),
        ("sock_shutdown", (4, 3)), ("sock_accept", (4, 0, 8)), ("sock_send", (4, 8, 1, 0, 16)),
    ],
    "a vector beyond the memory": [("fd_write", (1, 65532, 1, 0))],
    "vectors without end": [("fd_write", (1, 0, -1, 0))],
    "a read into nowhere": [("fd_read", (4, 0, MAX, 0))],
    "results at the last byte": [("fd_tell", (4, 65535)), ("clock_time_get", (0, 0, 65535))],
    "a name of 4 GB": [("path_open", (3, 0, 64, -1, 1, -1, -1, 0, 0))],
    "arguments into nowhere": [("args_sizes_get", (-1, -1)), ("environ_get", (MAX, MAX))],
    "4 GB of randomness": [("random_get", (0, -1))],
    "clocks that are none": [("clock_time_get", (number, 0, 0)) for number in (-1, 99, 2, 3)],
    "rights that nobody has": [
        ("fd_fdstat_set_rights", (3, -1, -1)),
        ("fd_fdstat_set_flags", (4, -1)),
        ("path_open", (3, -1, 64, 1, -1, -1, -1, -1, 0)),
    ],
}  # fmt: skip
OPEN = ("path_open", (3, 0, 64, 1, 1, (1 << 29) - 1, (1 << 29) - 1, 0, 128))


@pytest.mark.parametrize("abuse", ABUSES)
@pytest.mark.slow
def test_a_module_that_gives_its_host_calls(abuse: str, backend: WasmBackend) -> None:
    calls = [OPEN, *ABUSES[abuse]]
    names = dict.fromkeys(name for name, _ in calls)
    code = module(" ".join(called(name, *values) for name, values in calls), *names, data="f")
    result = go(backend, code, stdin=b"", limits=Limits(disk_mb=16))
    assert result.signal is None, result
    assert result.status in (Status.OK, Status.FAILED, Status.MEMORY_EXCEEDED), result


#: Each is a path to the secret, or to what is above the folder of the module.
WAYS_OUT = (
    "../secret.txt",
    "./../../secret.txt",
    "@SENTINELS@/secret.txt",
    "l",
    "d/secret.txt",
    "d/../secret.txt",
    "..",
)


@pytest.mark.parametrize("mounted", [False, True], ids=["its own folder", "a mounted folder"])
@pytest.mark.slow
def test_a_module_finds_no_way_out_of(mounted: bool, backend: WasmBackend, tmp_path: Path) -> None:
    """Every call that takes a path, with every way out, from a folder that holds links to the outside."""
    os.chmod(tmp_path, 0o755)
    sentinels = make_sentinels(tmp_path)
    shown = sentinels.parent / "shown"
    shown.mkdir()
    (shown / "l").symlink_to(sentinels / "secret.txt")
    (shown / "d").symlink_to(sentinels)
    os.chmod(shown, 0o777)
    before = sentinel_state(sentinels)
    policy = SandboxPolicy().mount(shown, "/shown", writable=True) if mounted else SandboxPolicy()
    inside = WasmBackend(policy, store=backend.store)
    # The same calls read what is the module's own: then they could read the secret too.
    own = go(inside, everything_with("f", truncates=False), files={"f": "inside"})
    assert "inside" in own.stdout, own
    for way in WAYS_OUT:
        result = go(inside, everything_with(way.replace("@SENTINELS@", str(sentinels))))
        assert SECRET not in result.stdout + result.stderr, way
        assert result.signal is None, result
        assert sentinel_state(sentinels) == before, way


def everything_with(path: str, *, truncates: bool = True) -> str:
    """A module that makes every call that takes a path, from each folder, and prints what it could open."""
    size = len(path)
    calls: list[tuple[str, tuple[int, ...]]] = [OPEN]
    for fd in (3, 4, 5, 6):
        calls += [
            ("path_open", (fd, 1, 64, size, 0, 2, 2, 0, 1024)),
            ("path_open", (fd, 1, 64, size, 9 * truncates, 66, 66, 0, 1024)),
            ("path_readlink", (fd, 64, size, 2048, 512, 1028)), ("path_filestat_get", (fd, 1, 64, size, 1536)),
            ("path_unlink_file", (fd, 64, size)), ("path_remove_directory", (fd, 64, size)),
            ("path_create_directory", (fd, 64, size)), ("path_link", (fd, 1, 64, size, fd, 4096, 1)),
            ("path_rename", (fd, 64, size, fd, 4096, 1)), ("path_rename", (fd, 4096, 1, fd, 64, size)),
            ("path_symlink", (64, size, fd, 4096, 1)), ("path_open", (fd, 1, 4096, 1, 0, 2, 2, 0, 1024)),
            ("path_filestat_set_times", (fd, 1, 64, size, 0, 0, 15)),
        ]  # fmt: skip
    body = " ".join(called(name, *values) for name, values in calls)
    body += "(i32.store (i32.const 16) (i32.const 3000))"
    read = "(call $fd_read (i32.const {fd}) (i32.const 16) (i32.const 1) (i32.const 24))"
    for fd in range(4, 24):
        body += (
            f"(i32.store (i32.const 20) (i32.const 1000)) (if (i32.eqz {read.format(fd=fd)}) (then "
            "(i32.store (i32.const 20) (i32.load (i32.const 24))) "
            "(drop (call $fd_write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 28)))))"
        )
    names = dict.fromkeys((*(name for name, _ in calls), "fd_read", "fd_write"))
    return module(body, *names, data=path)


BOMBS = {
    "a table of 100 million": '(module (table 100000000 funcref) (func (export "_start")))',
    "a table that grows": (
        '(module (table $t 1 funcref) (func (export "_start") '
        "(loop $l (drop (table.grow $t (ref.null func) (i32.const 1000000))) (br $l))))"
    ),
    "a memory of 4 GB": '(module (memory (export "memory") 65536) (func (export "_start")))',
    "data beyond its memory": '(module (memory (export "memory") 1) (data (i32.const -1) "x") (func (export "_start")))',
    "a start function that traps": '(module (func $s unreachable) (start $s) (func (export "_start")))',
    "a jump table of 200 000": (
        '(module (func (export "_start") (block (br_table ' + "0 " * 200_000 + "(i32.const 5)))))"
    ),
    "a start function that fills its memory": (
        '(module (memory (export "memory") 1 65536) (func $s (loop $l (drop (memory.grow (i32.const 100)))'
        "(memory.fill (i32.const 0) (i32.const 7) (i32.mul (memory.size) (i32.const 65535))) (br $l))) (start $s)"
        '(func (export "_start")))'
    ),
    "a hundred memories": "(module " + "(memory 1)" * 100 + '(func (export "_start")))',
    "imports of everything": '(module (import "env" "system" (func (param i32))) (func (export "_start")))',
    "imports of two hosts": '(module (import "wasi_unstable" "proc_exit" (func (param i32))) (func (export "_start")))',
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.slow
def test_a_module_is_refused_or_ends_by_itself_that_has(bomb: str, backend: WasmBackend) -> None:
    try:
        result = go(backend, BOMBS[bomb], memory_limit_mb=64, timeout=5)
    except InvalidRequest:
        return
    assert result.signal is None, result
    assert result.status in (Status.OK, Status.FAILED, Status.MEMORY_EXCEEDED, Status.TIMEOUT, Status.COMPILE_FAILED), (
        result
    )
    assert result.status is not Status.OK or bomb in ("a jump table of 200 000", "imports of two hosts"), result
