"""Lines of the wasm backend's report that need its Python: what its image, its folders and its sessions promise.

Each line has a control: the same action must succeed where it is allowed. They are measured where Python is prepared,
and say so where it is not; a report never waits for a compiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sandbox_kernel.backends.measured.canaries import Measurement
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.backends.wasm.wheels import make_wheels
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status
from sandbox_kernel.model.notes import NoteKind
from sandbox_kernel.session.open_wasm import open_wasm_session

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
#: The time of day, and how far the monotonic clock, which begins with each run, goes until it is another.
_CLOCKS = (
    "import time\nfirst = later = time.monotonic_ns()\n"
    "while later == first: later = time.monotonic_ns()\nprint(time.time_ns(), later - first)"
)
_SEED = "print(hash('canary'))"
#: Makes CPython start anew, with a hash seed of its own.
_OWN_SEED = {"PYTHONHASHSEED": "random"}
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


def _run(backend: WasmBackend, code: str, env: dict[str, str] | None = None) -> ExecResult:
    return backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=60, env=env or {}))


def _out(backend: WasmBackend, code: str, env: dict[str, str] | None = None) -> str:
    return _run(backend, code, env).stdout.strip()


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


def _clocks(backend: WasmBackend) -> _Found:
    began = time.monotonic()
    runs = [[int(word) for word in _out(backend, _CLOCKS).split() if word.isdigit()] for _ in range(2)]
    most = time.monotonic() - began
    fixed = _out(backend, _CLOCKS, {"SANDBOX_TIME": "1000"}).split()
    given = bool(fixed) and fixed[0].isdigit() and int(fixed[0]) // 10**9 == 1000  # it goes on at each call
    if any(len(run) != 2 for run in runs):
        return False, "a run that waited for its clock to go on did not come to its end"
    passed = (runs[1][0] - runs[0][0]) / 1e9
    told = (
        f"between two runs the time of day went on by {passed:.3f} s of {most:.3f} s, and in each the monotonic clock"
    )
    return 0 < passed <= most and given, f"{told}; a time that the user gives is {'shown' if given else 'not shown'}"


def _image(backend: WasmBackend) -> _Found:
    """A run begins with the image of a CPython that has started; one that needs a start says so."""
    started, anew = (_run(backend, _SEED, env) for env in (None, _OWN_SEED))
    from_image, told = _begun_with_image(started), not _begun_with_image(anew)
    found = f"a run began with {'an image' if from_image else 'a start of its own'}"
    return from_image and told, f"{found}; one that needs a start {'has a note of it' if told else 'has no note'}"


def _begun_with_image(result: ExecResult) -> bool:
    return result.ok and all(note.kind is not NoteKind.NOT_BOOTED for note in result.notes)


def _seed(backend: WasmBackend) -> _Found:
    shared, own = ([_out(backend, _SEED, env) for _ in range(2)] for env in (None, _OWN_SEED))
    alike = "alike, by the seed of the image" if shared[0] == shared[1] else "different"
    differ = len({*own, shared[0]}) == 3
    return differ, f"the hash of a word in two runs is {alike}; with {'='.join(*_OWN_SEED.items())} it " + (
        "is another in each" if differ else "is not another in each"
    )


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
    ("kernel", "see a clock that stood still in the image", "clocks are the host's, asked at each call"): _clocks,
    ("kernel", "begin without the image, untold", "a CPython that has started, or a note"): _image,
    ("kernel", "share a hash seed with a run that wants its own", "such a run starts CPython anew"): _seed,
    ("limits", "lose the state to an interrupt", "four words of the guest's memory"): _interrupt,
}
