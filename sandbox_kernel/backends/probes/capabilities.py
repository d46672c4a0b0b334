"""Sums up the canaries: what the process backend enforces on this host, for each promise of a policy.

Those of accelerators are here. Their programs call NVIDIA's library, so that they need no package.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.base import BackendCapabilities, EnforcedLimits, Enforcement
from sandbox_kernel.backends.checks import host_trouble
from sandbox_kernel.backends.probes.canaries import Measurement, Mechanisms, OnProgress, Run, ending, measure
from sandbox_kernel.backends.probes.measured_cache import Measured, fingerprint, recall, remember
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies, shortfall
from sandbox_kernel.jail.accounting.gpu_meter import open_counts
from sandbox_kernel.jail.root_user import has_own_user
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.template import unavailable
from sandbox_kernel.jail.walls import has_own_disk
from sandbox_kernel.languages.recipe import MODULES, availability
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, Language, Status
from sandbox_kernel.policy.gpu import GpuRule, find_gpu, gpu_devices

if TYPE_CHECKING:
    from sandbox_kernel.backends.process import ProcessBackend

#: The canaries of each promise. The promise holds when all of them were stopped.
_PROOFS = {
    "timeout": ("time", "outlive the run", "survive the kill"),
    "memory": ("memory", "memory shared between processes"),
    "cpu": ("CPU time",),
    "processes": ("processes",),
    "disk": ("disk",),
    "output": ("output",),
    "network_isolation": (
        "connect to host TCP", "connect to a host abstract socket", "connect to a host socket file", "open a vsock",
        "send UDP to the host",
    ),
    "filesystem_read_isolation": ("read a secret outside", "see the host's environment"),
    "filesystem_write_isolation": ("write outside", "write host settings"),
    "environment_isolation": ("inherit the host's environment",),
    "syscall_filter": ("make a user namespace", "mount", "io_uring", "bpf", "keyctl", "ptrace"),
}  # fmt: skip

_measured: dict[object, Measured] = {}
_lock = threading.Lock()


def measurements(backend: ProcessBackend, *, again: bool = False, on_progress: OnProgress | None = None) -> Measured:
    """Return the measurements of a backend: once a boot for each kind of walls, or again if asked."""
    kept = fingerprint(backend)
    key = (kept, backend.enforcer, backend.policy, backend.config)
    with _lock:
        found = None if again else _measured.get(key) or recall(kept)
        if found is None:
            with host_trouble():
                lines = measure(
                    backend.run, mechanisms(backend), walls=backend.enforcer is not None, on_progress=on_progress
                )
            lines += tuple(measure_gpu(backend.run, backend.policy.gpu, mechanisms(backend).walls))
            found = Measured(lines, time.time())
            remember(kept, found)
        _measured[key] = found
        return found


def mechanisms(backend: ProcessBackend) -> Mechanisms:
    """Return the names of the mechanisms for this host and the walls of this backend."""
    where = find_hierarchies()
    name = backend.enforcer.name if backend.enforcer is not None else None
    walls = "none"
    if backend.enforcer is not None:
        version = backend.enforcer.version  # most version texts begin with the name
        walls = version if version.startswith(f"{name} ") else f"{name} ({version})"
    alone = unavailable() if name == bubblewrap.NAME else None
    if alone is not None:
        # The same walls without templates: each jail takes a full start.
        walls += f"; ready-made sandboxes are started one by one: {alone}"
    by_group = where is not None and where.unified is not None
    killed = "the control group" if by_group else "all that is found below the gate, until nothing is (best effort)"
    if where is not None and where.pids is not None:
        processes = where.mechanism
    elif name == bubblewrap.NAME:
        processes = "RLIMIT_NPROC in a user namespace"
    else:
        own = has_own_user(name)
        processes = "RLIMIT_NPROC of a user of its own" if own else "a watchdog on their number (best effort)"
    words = Mechanisms(
        walls=walls,
        filter="seccomp" if backend.enforcer is not None else "none",
        memory=where.mechanism if where is not None else "RLIMIT_DATA and a watchdog",
        processes=processes,
        cpu="CPU time of the control group" if by_group else "CPU time of the process tree",
    )
    if has_own_disk(name):
        return words
    return replace(
        words,
        clock=f"the host's clock and SIGKILL of {killed}",
        disk="RLIMIT_FSIZE and a watchdog on the folder (best effort)",
        network="seccomp: no socket can be opened" if backend.enforcer is not None else "none",
    )


def group_notes() -> tuple[str, ...]:
    """Return notes on the control groups of this process: where they are, or why there are none."""
    where, missing = find_hierarchies(), shortfall()
    if where is not None:
        return where.notes
    return () if missing is None else (f"memory is watched, not limited by the kernel: {missing}",)


def process_capabilities(backend: ProcessBackend) -> BackendCapabilities:
    """See ``SandboxBackend.capabilities``."""
    languages = {language: availability(backend.config, language) for language in MODULES}
    lines = {line.name: line for line in measurements(backend).lines}
    proofs = {name: _sum_up([lines[proof] for proof in wanted if proof in lines]) for name, wanted in _PROOFS.items()}
    return BackendCapabilities(
        supported_languages=tuple(name for name, found in languages.items() if found.available),
        isolation_class=backend.isolation_class,
        enforced_limits=EnforcedLimits(**proofs),
        languages=languages,
    )


def _sum_up(lines: list[Measurement]) -> Enforcement:
    """Return a promise as enforced when every canary was stopped or its target is absent on this host."""
    kept = bool(lines) and all(line.kept for line in lines)
    telling = next((line for line in lines if not line.kept), lines[0] if lines else None)
    if telling is None:
        return Enforcement(False, "none", "not measured")
    return Enforcement(kept, telling.mechanism, f"{telling.name}: {telling.evidence}")


AREA = "gpu"
#: Much memory for the process itself: a context of the driver takes it.
_PLAIN = ExecRequest(language=Language.PYTHON, code="pass", timeout=60, memory_limit_mb=8_000)
_LIMIT_MB, _OVER_MB, _FILLED_MB = 2048, 4096, 256
#: Defines ``hold(megabytes)``, which takes memory on the first card, ``fill`` and ``count``.
_DRIVER = r"""
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def do(name, *args):
    code = getattr(cuda, name)(*args)
    if code: sys.exit("%s: error %d" % (name, code))
context, device = ctypes.c_void_p(), ctypes.c_int()
do("cuInit", 0); do("cuDeviceGet", ctypes.byref(device), 0); do("cuCtxCreate_v2", ctypes.byref(context), 0, device)
def hold(megabytes):
    place = ctypes.c_uint64()
    do("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(megabytes << 20))
    return place
def fill(place, byte, megabytes): do("cuMemsetD8_v2", place, ctypes.c_ubyte(byte), ctypes.c_size_t(megabytes << 20))
def count(place, byte, megabytes):
    found, part = 0, (ctypes.c_ubyte * (64 << 20))()
    for at in range(0, megabytes << 20, 64 << 20):
        do("cuMemcpyDtoH_v2", part, ctypes.c_uint64(place.value + at), ctypes.c_size_t(64 << 20))
        found += bytes(part).count(byte)
    return found
"""
_OPEN = r"""
import json, os, sys
found = {}
for path in json.loads(sys.argv[1]):
    try: os.close(os.open(path, os.O_RDWR))
    except OSError as error: found[path] = error.strerror
    else: found[path] = ""
print(json.dumps(found))
"""
_HOLD = _DRIVER + "fill(hold({mb}), 1, {mb}); print('held', flush=True); time.sleep({seconds})"
_LEAVE = _DRIVER + f"place = hold({_FILLED_MB}); fill(place, 0x5A, {_FILLED_MB}); print(count(place, 0x5A, 64))"
_FIND = _DRIVER + f"print(count(hold({4 * _FILLED_MB}), 0x5A, {4 * _FILLED_MB}))"

#: Whether it is enforced, by what, the evidence, and whether there is nothing to prevent here.
_Found = tuple[bool | None, str, str, bool]


def measure_gpu(run: Run, rule: GpuRule | None, walls: str) -> list[Measurement]:
    """Return the lines about accelerators; none on a machine without a card."""
    if not gpu_devices():
        return []
    tries: dict[str, Callable[[], _Found]] = {"open a card that is not allowed": lambda: _forbidden(run, rule, walls)}
    if rule is not None:
        tries |= {
            "memory of the card": lambda: _limit(run),
            "read what another program left on the card": lambda: _remains(run),
            "stay on the card after the kill": lambda: _after_kill(run),
        }
    lines = []
    for name, act in tries.items():
        began = time.monotonic()
        try:
            enforced, mechanism, evidence, absent = act()
        except SandboxError as error:
            enforced, mechanism, evidence, absent = None, "", f"could not be tried: {error}", False
        took = (time.monotonic() - began) * 1e3
        lines.append(Measurement(AREA, name, enforced, mechanism, evidence, took, absent))
    return lines


def _forbidden(run: Run, rule: GpuRule | None, walls: str) -> _Found:
    allowed = find_gpu(rule).devices
    others = [path for path in gpu_devices() if path not in allowed]
    result = run(replace(_PLAIN, code=_OPEN, args=[json.dumps([*others, *allowed])]))
    try:
        answers: dict[str, str] = json.loads(result.stdout)
        inside = {path: str(answers[path]) for path in (*others, *allowed)}
    except (ValueError, TypeError, KeyError):
        return None, walls, f"canary failed: {ending(result)}", False
    reached = [path for path in others if not inside[path]]
    refused = [path for path in allowed if inside[path]]
    outside = [path for path in others if os.access(path, os.R_OK | os.W_OK)]
    said = []
    if allowed:
        said.append(f"of {len(allowed)} allowed device files {len(allowed) - len(refused)} can be opened")
    if others:
        said.append(f"of {len(others)} others {len(reached)} can be opened; outside: {len(outside)}")
    else:
        said.append("this machine has no other card")
    enforced: bool | None = not reached
    if not reached and (refused or not outside):
        # The control failed, or nothing is forbidden.
        enforced = None
    return enforced, walls, "; ".join(said), not others and not refused


def _limit(run: Run) -> _Found:
    limited = replace(_PLAIN, limits=Limits(gpu_memory_mb=_LIMIT_MB))
    over = run(replace(limited, code=_HOLD.format(mb=_OVER_MB, seconds=20)))
    below = run(replace(limited, code=_HOLD.format(mb=_FILLED_MB, seconds=0.3)))
    enforced = over.limit == "gpu_memory" if below.status is Status.OK else None
    text = f"{_OVER_MB} MB under a limit of {_LIMIT_MB}: {ending(over)}; {_FILLED_MB} MB: {ending(below)}"
    return enforced, "the driver's own count, asked at ticks", text, False


def _remains(run: Run) -> _Found:
    mechanism = "the driver, which clears memory that it gives out"
    left = run(replace(_PLAIN, code=_LEAVE))
    if left.stdout.strip() != str(64 << 20):
        return None, mechanism, f"canary failed: {ending(left)}", False
    found = run(replace(_PLAIN, code=_FIND))
    if not found.stdout.strip().isdigit():
        return None, mechanism, f"canary failed: {ending(found)}", False
    count = int(found.stdout)
    # Where memory is not cleared, whole stretches of the pattern are found.
    text = (
        f"one program filled {_FILLED_MB} MB and ended; the next one took {4 * _FILLED_MB} MB and found {count} bytes"
    )
    return count < 1 << 20, mechanism, f"{text} of it", False


def _after_kill(run: Run) -> _Found:
    mechanism = "SIGKILL; the driver frees what a dead process held"
    counts = open_counts()
    if isinstance(counts, str):
        return None, mechanism, counts, False
    before = set(counts.by_process())
    result = run(replace(_PLAIN, code=_HOLD.format(mb=_FILLED_MB, seconds=60), timeout=10))
    after = set(counts.by_process()) - before
    ran = result.status is Status.TIMEOUT and "held" in result.stdout
    text = (
        f"a program that held {_FILLED_MB} MB ({ending(result)}); {len(after)} processes of it on the card afterwards"
    )
    return False if after else True if ran else None, mechanism, text, False
