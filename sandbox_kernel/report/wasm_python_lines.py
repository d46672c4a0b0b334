"""Lines of the wasm backend's report that need its Python: what its image, its folders and its sessions promise.

Each line has a control: the same action must succeed where it is allowed. They are measured where Python is prepared,
and say so where it is not; a report never waits for a compiler.
"""

from __future__ import annotations

from collections.abc import Callable

from sandbox_kernel.backends.measured.canaries import Measurement
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.backends.wasm.wheels import make_wheels
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import ExecRequest, Language, Status
from sandbox_kernel.session.opening.open_wasm import open_wasm_session

_LINKS = """import os
open("/box/own", "w").write("own")
found = []
for target in ("own", "../../../../etc/passwd", "/etc/passwd", "/proc/self/environ"):
    try:
        os.symlink(target, "/box/link")
        found.append(bool(open("/box/link").read()))
    except OSError:
        found.append(False)
    if os.path.lexists("/box/link"):
        os.unlink("/box/link")
print(found)"""
_PREOPENS = """import os
open("/box/name", "w").close()
print(os.listdir("/"), os.listdir("."), os.listdir("/box"))"""
_DRAW = "import os, random, uuid; print(random.random(), os.urandom(8).hex(), uuid.uuid4())"
_IMPORT = "import sandbox_canary; print(sandbox_canary.answer)"
_LOOP = "kept = 2\nprint('go', flush=True)\nwhile True: pass"

_Found = tuple[bool, str]


def python_lines(backend: WasmBackend) -> tuple[Measurement, ...]:
    """Measure the lines; those that cannot be measured here are said to be so."""
    ready = backend.is_ready(Language.PYTHON)
    lines = []
    for (area, name, mechanism), measure in _LINES.items():
        enforced: bool | None = None
        evidence = "Python is not prepared here: sandbox-kernel prepare python"
        if ready:
            try:
                enforced, evidence = measure(backend)
            except SandboxError as error:
                evidence = f"could not be tried: {error}"
        lines.append(Measurement(area=area, name=name, enforced=enforced, mechanism=mechanism, evidence=evidence))
    return tuple(lines)


def _out(backend: WasmBackend, code: str, env: dict[str, str] | None = None) -> str:
    return backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=30, env=env or {})).stdout.strip()


def _links(backend: WasmBackend) -> _Found:
    found = _out(backend, _LINKS)
    return found == "[True, False, False, False]", f"links to an own file and to three outside were read: {found}"


def _preopens(backend: WasmBackend) -> _Found:
    found = _out(backend, _PREOPENS)
    return found == "['name'] ['name'] ['name']", f"a file of /box seen in /, . and /box: {found}"


def _randomness(backend: WasmBackend) -> _Found:
    first, second = _out(backend, _DRAW).split(), _out(backend, _DRAW).split()
    fixed = {_out(backend, "import random; print(random.random())", {"SANDBOX_SEED": "1"}) for _ in range(2)}
    differ = len(first) == 3 and all(a != b for a, b in zip(first, second, strict=False))
    told = "three numbers of two runs " + ("all differ" if differ else "are alike")
    return differ and len(fixed) == 1, f"{told}; with a seed of the user: {'alike' if len(fixed) == 1 else 'not alike'}"


def _interrupt(backend: WasmBackend) -> _Found:
    # With wheels a session has the light Python, also where the large one is prepared, which cannot be interrupted.
    with open_wasm_session(_with_wheel(backend), "python") as session:

        def stop(_stream: str, _text: str) -> None:
            session.interrupt()

        session.run("kept = 1")
        ended = session.run(_LOOP, timeout=30, on_output=stop)
        after = session.run("print(kept)").stdout.strip()
    kept = ended.status is Status.INTERRUPTED and not ended.rolled_back and after == "2"
    return kept, f"an endless cell that had set 2 was interrupted: {ended.status}; the variable is {after}"


def _wheels(backend: WasmBackend) -> _Found:
    given, not_given = _out(_with_wheel(backend), _IMPORT), _out(backend, _IMPORT)
    seen = "found" if not_given else "not found"
    return given == "42" and not not_given, f"a wheel of one sandbox is imported there: {given}; by another: {seen}"


def _with_wheel(backend: WasmBackend) -> WasmBackend:
    wheels = make_wheels({"sandbox_canary.py": b"answer = 42\n"}, ("canary",))
    return WasmBackend(backend.policy, enforcer=backend.enforcer.name, store=backend.store, wheels=wheels)


_LINES: dict[tuple[str, str, str], Callable[[WasmBackend], _Found]] = {
    ("files", "follow a link out of the folder", "paths are resolved beneath their folder"): _links,
    ("files", "find the work folder as /, . and /box", "preopened folders"): _preopens,
    ("files", "import a wheel of another sandbox", "memory and folder by content"): _wheels,
    ("kernel", "draw the numbers of another run", "randomness is drawn when an image begins"): _randomness,
    ("limits", "lose the state to an interrupt", "four words of the guest's memory"): _interrupt,
}
