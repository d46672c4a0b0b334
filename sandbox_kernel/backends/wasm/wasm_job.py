"""Turns a request into walls, limits and plans for the embedder in the jail. Pure, except that it looks at the host."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sandbox_kernel.backends.wasm.guest_images import FACTS, PLAIN, EngineSwitches, boot_fields
from sandbox_kernel.backends.wasm.store import StoreEntry
from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.enforcer import has_own_disk
from sandbox_kernel.jail.gate_messages import REPORT_FD, JobFile, Step
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.rules import seccomp
from sandbox_kernel.jail.run_job import Job
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.jail.walls import CELL, WORK, Walls, Warm, sizes
from sandbox_kernel.languages.guest_catalogue import WasmLanguage
from sandbox_kernel.languages.recipe import rlimits
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model import ExecRequest
from sandbox_kernel.policy import Grant, SandboxPolicy
from sandbox_kernel.policy.places import ROOT
from sandbox_kernel.workspace.given_grants import GivenGrants

#: Memory of Python, the engine and the compiled code, in addition to the memory of the guest.
RUNTIME_MB = 256
#: Limits of a compilation. Cranelift cannot be interrupted, so the jail ends it.
COMPILE_MEMORY_MB, COMPILE_CPU_S = 2048, 30.0
#: Limits of preparing a language. Its files are known, so they are met only on a machine that is too small.
PREPARE_MEMORY_MB, PREPARE_DISK_MB, PREPARE_S = 4096, 1024, 3600.0
#: How long the modules of wheels may take to be imported.
PACKAGES_S = 120.0
#: Threads of the engine; a guest cannot start any.
_PROCESSES = 64
#: Open files of the embedder itself, in addition to those of the guest.
_OWN_FILES = 32
#: Largest compiled module that fits into the cell folder.
MOST_COMPILED_BYTES = 60 << 20

MODULE, COMPILED, HANDLES = "module", "module.cwasm", "handles.json"
#: Where a jail has the folder that a policy mounts as the root of a program.
_ROOT_PLACE = "/mounted-root"
#: Guest program that waits in each jail for a plan.
_WAITING = "sandbox_guest.wasm.run"


@dataclass(frozen=True)
class TrustedFile:
    """A file of the store that a jail reads at its host path."""

    path: str

    @property
    def grant(self) -> Grant:
        """The grant that shows the file in a jail."""
        return Grant(self.path, self.path, False)


@dataclass(frozen=True, kw_only=True)
class GuestRun:
    """A compiled module and its arguments; see ``guest/wasm/plan.py``."""

    #: The compiled module: a store file that the jail sees, or memory that is passed to it.
    module: str | SealedMemory
    argv: Sequence[str]
    env: Mapping[str, str]
    switches: EngineSwitches = PLAIN
    #: Files for the cell folder, which the guest can read as /cell when ``sees_cell`` is true.
    files: Mapping[str, bytes] = field(default_factory=dict)
    sees_cell: bool = False
    runtime: Sequence[Grant] = ()
    program: str | None = None
    handles: str | None = None
    translate: str | None = None
    memory_exit: int | None = None
    #: A file of the store that is mapped as the guest's memory, and one more folder of the guest.
    memory: str | None = None
    folder: Mapping[str, object] | None = None


@dataclass(frozen=True, kw_only=True)
class PackageFiles:
    """Where packages are while they are imported into an image."""

    #: The folder from which the guest imports them.
    path: str
    #: That folder as one more folder of the guest, or else files for its work folder.
    folder: Mapping[str, object] | None = None
    work: Mapping[str, bytes] = field(default_factory=dict)
    timeout_s: float = PACKAGES_S


def make_walls(
    limits: Limits,
    memory_mb: int,
    policy: SandboxPolicy,
    enforcer: str,
    runtime: Sequence[Grant] = (),
    ahead: tuple[str, EngineSwitches] | None = None,
    given: GivenGrants | None = None,
) -> Walls:
    """Return the walls around the engine. They are equal for most requests, so that spares can serve them.

    ``ahead`` is a compiled module of the store, with the settings of its engine, that is loaded while the jail waits.
    ``given`` are the grants of the policy; None for a job of ours, which has none.
    """
    python = find_python("python3")
    box, tmp, shm = sizes(limits, memory_mb + RUNTIME_MB)
    if policy.gpu is not None:
        raise PolicyViolation("WebAssembly programs cannot use a GPU; run it with backend='process', or without --gpu")
    found = given.now(root=True) if given is not None else ()
    grants = tuple(replace(grant, target=_ROOT_PLACE) if grant.target == ROOT else grant for grant in found)
    for grant in grants:
        if not os.path.isdir(grant.source):
            raise PolicyViolation(
                f"{grant.source!r} is a file, and WebAssembly programs can only be given folders; "
                f"mount the folder that holds it: policy.mount({os.path.dirname(grant.source)!r}, '/data')"
            )
    together = tuple(dict.fromkeys((*python.runtime, *runtime)))
    rlimits = tuple(embedder_rlimits(limits, memory_mb + RUNTIME_MB, has_own_disk(enforcer)).items())
    # A guest that escapes from the engine still cannot start a process.
    no_spawn = seccomp.build_no_spawn_filter(seccomp.host_arch())
    loaded = () if ahead is None else (ahead[0], json.dumps(ahead[1].to_dict()))
    warm = Warm((_WAITING, *loaded), rlimits, no_spawn)
    preload = ("site", _WAITING)
    return Walls(python.executable, together, grants, box, tmp, shm, preload, warm, enforcer=enforcer)


def embedder_rlimits(limits: Limits, memory_mb: int, own_disk: bool) -> dict[str, int]:
    """Return the resource limits of a process with the engine."""
    exact = find_hierarchies() is not None
    most = rlimits(limits, memory_mb, exact_memory=exact, processes=None, own_disk=own_disk)
    return {**most, "NOFILE": limits.open_files + _OWN_FILES}


def _step(jail: Jail, plan: Mapping[str, object], *, compiles: bool = False) -> Step:
    """Return the step for the embedder that waits in a jail with these walls; its limits were set when it started."""
    return Step(
        kind="warm",
        argv=[json.dumps(plan), str(REPORT_FD)],
        env={},
        rlimits={},
        cwd=jail.places.work,
        compiles=compiles,
        reports=True,
    )


def compile_job(
    jail: Jail, data: bytes, *, text: bool, switches: EngineSwitches, timeout_s: float, memory_bytes: int | None
) -> Job:
    """Return the job that checks and compiles a module; the result is ``module.cwasm`` in the work folder."""
    plan = {
        "task": "compile",
        "source": f"{jail.places.cell}/{MODULE}",
        "out": f"{jail.places.work}/{COMPILED}",
        "text": text,
        "memory_bytes": memory_bytes,
        "switches": switches.to_dict(),
    }
    return Job(
        steps=(_step(jail, plan, compiles=True),),
        files=(JobFile(root=jail.places.cell, name=MODULE, data=data),),
        timeout_s=timeout_s,
        memory_bytes=COMPILE_MEMORY_MB * MIB,
        processes=_PROCESSES,
        cpu_seconds=COMPILE_CPU_S,
        output_bytes=1 << 16,
    )


def trusted_compile_job(jail: Jail, module: TrustedFile, switches: EngineSwitches, *, plain: bool = False) -> Job:
    """Return the job that compiles a module of the catalogue, with higher limits."""
    plan = {
        "task": "compile",
        "source": module.path,
        "out": f"{jail.places.work}/{COMPILED}",
        "trusted": True,
        "plain": plain,
        "switches": switches.to_dict(),
    }
    return _preparation(jail, plan)


def bake_job(
    jail: Jail,
    module: TrustedFile,
    libraries: Sequence[Mapping[str, object]],
    glue: str | None,
    functions: Sequence[str],
    switches: EngineSwitches,
) -> Job:
    """Return the job that makes an image of the JavaScript engine; see ``guest/wasm/quickjs.py``."""
    plan = {
        "task": "bake",
        "source": module.path,
        "out": f"{jail.places.work}/{COMPILED}",
        "handles": f"{jail.places.work}/{HANDLES}",
        "libraries": list(libraries),
        "glue": glue,
        "glue_names": list(functions),
        "switches": switches.to_dict(),
    }
    return _preparation(jail, plan)


def boot_job(jail: Jail, module: TrustedFile, guest: WasmLanguage, switches: EngineSwitches) -> Job:
    """Return the job that makes an image of a started interpreter; see ``guest/wasm/boot_python.py``."""
    plan = {
        "task": "boot",
        "source": module.path,
        "out": f"{jail.places.work}/{COMPILED}",
        "facts": f"{jail.places.work}/{FACTS}",
        **boot_fields(guest),
        "switches": switches.to_dict(),
    }
    return _preparation(jail, plan)


def packages_job(
    jail: Jail,
    image: StoreEntry,
    packages: PackageFiles,
    modules: Sequence[str],
    results: tuple[str, str],
    switches: EngineSwitches,
) -> Job:
    """Return the job that imports packages into an image; see ``guest/wasm/boot_python.py``."""
    plan = {
        "task": "packages",
        "module": image.file(COMPILED),
        "handles": image.file(FACTS),
        "preopens": [*preopens(jail, sees_cell=True), *([packages.folder] if packages.folder else [])],
        "path": packages.path,
        "modules": list(modules),
        "out": f"{jail.places.work}/{results[0]}",
        "facts": f"{jail.places.work}/{results[1]}",
        "switches": switches.to_dict(),
    }
    given = [JobFile(root=jail.places.work, name=name, data=data) for name, data in packages.work.items()]
    return replace(_preparation(jail, plan, timeout_s=packages.timeout_s), files=given)


def _preparation(jail: Jail, plan: Mapping[str, object], timeout_s: float = PREPARE_S) -> Job:
    return Job(
        steps=(_step(jail, plan, compiles=True),),
        timeout_s=timeout_s,
        memory_bytes=PREPARE_MEMORY_MB * MIB,
        processes=_PROCESSES,
        output_bytes=1 << 16,
    )


def preopens(jail: Jail, *, sees_cell: bool) -> list[dict[str, object]]:
    """Return the folders of a guest; they have the same names for the guest in every kind of jail."""
    places, mounts = jail.places, has_own_disk(jail.walls.enforcer)
    given = [(grant.target if mounts else grant.source, grant.target, grant.writable) for grant in jail.walls.grants]
    root = next(((host, ROOT, writable) for host, name, writable in given if name == _ROOT_PLACE), None)
    folders = [(places.work, WORK, True), (places.work, ".", True), root or (places.work, ROOT, True)]
    folders += [(places.cell, CELL, False)] if sees_cell else []
    folders += [folder for folder in given if folder[1] != _ROOT_PLACE]
    return [{"host": host, "guest": name, "writable": writable} for host, name, writable in folders]


def run_plan(request: ExecRequest, guest: GuestRun, jail: Jail, *, asks: bool) -> dict[str, object]:
    """Return the plan for ``guest/wasm/run.py``; relative paths of the guest are in the work folder."""
    return {
        "task": "run",
        "module": guest.module if isinstance(guest.module, str) else "",
        "program": guest.program,
        "handles": guest.handles,
        "translate": guest.translate,
        "memory_exit": guest.memory_exit,
        "argv": list(guest.argv),
        "env": dict(guest.env),
        "memory": guest.memory,
        "preopens": [*preopens(jail, sees_cell=guest.sees_cell), *([guest.folder] if guest.folder else [])],
        "memory_bytes": request.memory_mb * MIB,
        "fuel": request.limits.fuel,
        "deadline_s": request.timeout,
        "asks": asks,
        "clock_ns": _repeatable(guest.env, "SANDBOX_TIME", 10**9),
        "seed": _repeatable(guest.env, "SANDBOX_SEED", 1),
        "switches": guest.switches.to_dict(),
    }


def run_job_of(request: ExecRequest, guest: GuestRun, jail: Jail, timeout_s: float, *, asks: bool = False) -> Job:
    """Return the job that runs a compiled module; with ``asks``, its standard input comes from ``on_input``."""
    given = [JobFile(root=jail.places.cell, name=name, data=data) for name, data in guest.files.items()]
    given += [
        JobFile(root=jail.places.work, name=name, data=data.encode() if isinstance(data, str) else data)
        for name, data in request.files.items()
    ]
    return Job(
        steps=(_step(jail, run_plan(request, guest, jail, asks=asks)),),
        files=given,
        descriptors=(guest.module.fileno(),) if isinstance(guest.module, SealedMemory) else (),
        stdin=request.stdin_bytes,
        timeout_s=timeout_s,
        memory_bytes=(request.memory_mb + RUNTIME_MB) * MIB,
        processes=_PROCESSES,
        cpu_seconds=request.limits.cpu_seconds,
        output_bytes=request.limits.output_bytes,
        ends_with_report=True,
    )


def check_mounts(policy: SandboxPolicy, guest: WasmLanguage) -> None:
    """Raise ``PolicyViolation`` when a folder is mounted where a language has something of its own."""
    if guest.entry not in ("command", "zig", "rustc") and any(mount.guest == ROOT for mount in policy.mounts):
        raise PolicyViolation(
            f"{guest.language} in WebAssembly has a root of its own, so nothing can be mounted at '/'; mount it "
            "elsewhere: policy.mount(…, '/data')"
        )


def check_place_is_free(policy: SandboxPolicy, place: str, owner: str) -> None:
    """Raise ``PolicyViolation`` when a folder is mounted at a place, or beneath it, that has something of ours."""
    for mount in policy.mounts:
        if f"{mount.guest}/".startswith(f"{place}/"):
            raise PolicyViolation(
                f"{place} is the place of {owner}, so nothing can be mounted at {mount.guest!r}; mount it elsewhere: "
                "policy.mount(…, '/data')"
            )


def _repeatable(env: Mapping[str, str], name: str, unit: int) -> int | None:
    """Read ``SANDBOX_TIME`` (seconds since 1970) and ``SANDBOX_SEED``, which make a run repeatable."""
    text = env.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << 62 or value * unit >= 1 << 63:
        raise InvalidRequest(f"{name} must be a whole number from 0 up, got {text!r}; for example {name}=1700000000")
    return value * unit
