"""For guests: ``wasm`` starts guest/wasm/run.py as the host does and reads its report; ``python`` is a session."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.guest.wasm.plan import CompilePlan, read_plan
from sandbox_kernel.jail.guest_programs import guest_folder, start_of
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session

#: Carries out the plan in a file. As in a jail, a file beyond its size limit is an error for the guest alone.
PROGRAM = """import carry_out, read_plan
import json, os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
plan, status = sys.argv[1:]
os._exit(carry_out(read_plan(json.load(open(plan))), status))
"""
RUNNER = ("-c", start_of("wasm.run").replace("import main; main()", PROGRAM), guest_folder())


@dataclass
class Outcome:
    end: str
    code: int | None
    message: str
    fuel_used: int | None
    memory_bytes: int | None
    refused: int
    stdout: bytes
    stderr: bytes
    returncode: int


class Runner:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def start(self, plan: dict[str, object], **popen: object) -> tuple[subprocess.Popen[bytes], int]:
        self.count += 1
        plan_file = self.folder / f"plan{self.count}.json"
        plan_file.write_text(json.dumps(plan))
        reader, writer = os.pipe()
        pipe = subprocess.PIPE
        process = subprocess.Popen(  # type: ignore[call-overload]
            [sys.executable, "-I", "-B", *RUNNER, str(plan_file), str(writer)],
            **{"stdin": pipe, "stdout": pipe, "stderr": pipe, "env": {}, "pass_fds": [writer], **popen},
        )
        os.close(writer)
        return process, reader

    def report(self, process: subprocess.Popen[bytes], reader: int, stdin: bytes = b"") -> Outcome:
        stdout, stderr = process.communicate(stdin, timeout=60)
        with os.fdopen(reader, "rb") as file:
            line = file.readline()
        assert line, stderr.decode()
        return Outcome(**json.loads(line), stdout=stdout, stderr=stderr, returncode=process.returncode)

    def compile(self, code: str | bytes, **plan: object) -> tuple[Outcome, Path]:
        source, out = self.folder / f"source{self.count}", self.folder / f"module{self.count}.cwasm"
        source.write_bytes(code.encode() if isinstance(code, str) else code)
        text = isinstance(code, str)
        task = {"task": "compile", "source": str(source), "out": str(out), "text": text, **plan}
        compile_plan = read_plan(task)
        assert isinstance(compile_plan, CompilePlan)
        self.count += 1
        # Importing it makes an engine, whose signal handlers must come after those of pytest.
        from sandbox_kernel.guest.wasm.run import make

        ending = make(compile_plan)
        return Outcome(**asdict(ending), stdout=b"", stderr=b"", returncode=0), out

    def run(self, code: str | bytes, *, stdin: bytes = b"", **plan: object) -> Outcome:
        switches = dict(plan.pop("switches", {}))  # type: ignore[call-overload]
        if plan.get("fuel") is not None:
            switches["fuel"] = True
        compiled, out = self.compile(code, switches=switches)
        if compiled.end != "compiled":
            return compiled
        task = {"task": "run", "module": str(out), "switches": switches, **plan}
        return self.report(*self.start(task), stdin)


@pytest.fixture
def wasm(tmp_path: Path) -> Runner:
    folder = tmp_path / "runner"
    folder.mkdir()
    return Runner(folder)


@pytest.fixture
def wat() -> Callable[..., str]:
    """A WAT program: imports of WASI calls by name, one memory, and the body of _start."""
    signatures = {
        "fd_write": "(param i32 i32 i32 i32) (result i32)",
        "fd_read": "(param i32 i32 i32 i32) (result i32)",
        "proc_exit": "(param i32)",
        "poll_oneoff": "(param i32 i32 i32 i32) (result i32)",
        "random_get": "(param i32 i32) (result i32)",
        "clock_time_get": "(param i32 i64 i32) (result i32)",
        "args_sizes_get": "(param i32 i32) (result i32)",
        "args_get": "(param i32 i32) (result i32)",
        "environ_sizes_get": "(param i32 i32) (result i32)",
        "environ_get": "(param i32 i32) (result i32)",
        "path_open": "(param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)",
        "path_symlink": "(param i32 i32 i32 i32 i32) (result i32)",
        "path_link": "(param i32 i32 i32 i32 i32 i32 i32) (result i32)",
        "path_rename": "(param i32 i32 i32 i32 i32 i32) (result i32)",
    }

    def build(body: str, *imports: str, memory: str = "1", extra: str = "") -> str:
        wanted = "\n".join(
            f'(import "wasi_snapshot_preview1" "{name}" (func ${name} {signatures[name]}))' for name in imports
        )
        return f'(module {wanted} (memory (export "memory") {memory}) {extra} (func $main (export "_start") {body}))'

    return build


@pytest.fixture(scope="module")
def python() -> Iterator[Session]:
    """A Python session shared by tests that only look at what it shows."""
    with open_session(ProcessBackend(), "python", memory_mb=1024) as session:
        yield session
