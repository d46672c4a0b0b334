"""Sums up the canaries: what the process backend enforces on this host, for each promise of a policy."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.base import BackendCapabilities, EnforcedLimits, Enforcement
from sandbox_kernel.backends.checks import host_trouble
from sandbox_kernel.backends.probes.canaries import Measurement, Mechanisms, OnProgress, measure
from sandbox_kernel.backends.probes.gpu_canaries import measure_gpu
from sandbox_kernel.backends.probes.measured_cache import Measured, fingerprint, recall, remember
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies, shortfall
from sandbox_kernel.jail.root_user import has_own_user
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.template import unavailable
from sandbox_kernel.jail.walls import has_own_disk
from sandbox_kernel.languages.recipe import MODULES, availability

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
