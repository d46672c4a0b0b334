"""Finds the enforcer for this host: one that was tested here, by this process or by another one since the last boot."""

from __future__ import annotations

import functools
import os
import sys

from sandbox_kernel.errors import EnforcerFailed, EnforcerUnavailable, InvalidRequest, PolicyViolation, SandboxError
from sandbox_kernel.jail.bubblewrap_jail import BubblewrapJail
from sandbox_kernel.jail.gate_messages import Step
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.proof_record import proof_facts, read_fact, recall_proof, remember_proof
from sandbox_kernel.jail.root_user import CAP_SETPCAP, has_own_user, held_capabilities
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.run_job import Job, run_job
from sandbox_kernel.jail.walls import LANDLOCK, Walls, sizes
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.util.values import dataclass


def start_jail(walls: Walls) -> Jail:
    """Start a jail, for whose walls ``wait_ready`` waits. ``EnforcerFailed``: the host lacks something now."""
    try:
        if walls.enforcer == bubblewrap.NAME:
            return BubblewrapJail(walls)
        from sandbox_kernel.jail.open_jail import OpenJail  # few hosts need it

        return OpenJail(walls)
    except OSError as error:
        raise EnforcerFailed(walls.enforcer or "none", f"no sandbox can be started now: {error}") from None


#: Best first: ``auto`` takes the first that works on this host.
LADDER = (bubblewrap.NAME, LANDLOCK)
#: The enforcers of other systems, which this package does not have, and the name of each system.
MISSING = {"seatbelt": "macOS", "appcontainer": "Windows"}
NAMES = ("auto", *LADDER)
_SYSTEMS = {"darwin": "macOS", "win32": "Windows"}


@dataclass(frozen=True)
class Enforcer:
    """An enforcer that built walls on this host, with the flags of a run."""

    name: str
    version: str
    #: What these walls do not stop, one sentence each, for the report.
    weaknesses: tuple[str, ...] = ()

    @property
    def allows_network(self) -> bool:
        """Whether single domains can be allowed. That needs a network namespace."""
        return self.name == bubblewrap.NAME

    def check_network(self, policy: SandboxPolicy) -> None:
        """Raise ``PolicyViolation`` if the policy allows network that this enforcer cannot limit to what is allowed."""
        asked = "allow_network()" if policy.network else None
        if policy.network_rules:
            asked = f"allow_domain({policy.network_rules[0].domain!r})"
        if asked is not None and not self.allows_network:
            raise PolicyViolation(
                f"the policy has {asked}, which the enforcer {self.name!r} cannot enforce: without a network namespace "
                "it can only deny all or allow all; run where bubblewrap works, or fetch on the host "
                "(box.fetch) and give the file"
            )


def get_enforcer(name: str = "auto") -> Enforcer:
    """Return an enforcer, with ``auto`` the best one here; ``EnforcerUnavailable`` says why not and what to do."""
    if name in MISSING:
        raise EnforcerUnavailable(name, _no_enforcer_for(MISSING[name]))
    if name not in NAMES:
        raise InvalidRequest(f"unknown enforcer {name!r}; expected one of: {', '.join(NAMES)}, or None for no walls")
    if name == "auto" and sys.platform != "linux":
        raise EnforcerUnavailable(name, _no_enforcer_for(_SYSTEMS.get(sys.platform, sys.platform)))
    reasons = []
    for candidate in LADDER if name == "auto" else (name,):
        found = _prove(candidate)
        if isinstance(found, Enforcer):
            return found
        if name != "auto":
            raise EnforcerUnavailable(found.enforcer, found.message)
        reasons.append(f"{candidate}: {found.message}")
    raise EnforcerUnavailable("auto", "; ".join(reasons))


@functools.lru_cache(maxsize=8)
def _prove(name: str) -> Enforcer | EnforcerUnavailable:
    """Find out whether walls can be built; the result is cached until this process ends."""
    try:
        if sys.platform != "linux":
            raise EnforcerUnavailable(name, "it needs Linux; run this inside a Linux container or virtual machine")
        return _prove_bubblewrap() if name == bubblewrap.NAME else _prove_landlock()
    except EnforcerUnavailable as error:
        return EnforcerUnavailable(name, error.message)
    except EnforcerFailed as error:
        return EnforcerUnavailable(name, f"{error.message}; {_remedy(name)}")
    except SandboxError as error:
        return EnforcerUnavailable(name, str(error))
    except OSError as error:
        return EnforcerUnavailable(name, f"it cannot be started: {error}")


def _prove_bubblewrap() -> Enforcer:
    # Building walls takes as long as a short program. A process that did so since the last boot has proven it for all.
    facts = proof_facts([bubblewrap.find_bwrap(), find_python("python3").executable, bubblewrap.__file__])
    version = recall_proof(bubblewrap.NAME, facts)
    if version is None:
        _start(bubblewrap.NAME).destroy()
        version = bubblewrap.bwrap_version()
        remember_proof(bubblewrap.NAME, facts, version)
    return Enforcer(bubblewrap.NAME, version, bubblewrap.WEAKNESSES)


def _prove_landlock() -> Enforcer:
    from sandbox_kernel.jail.rules.landlock import landlock_abi, landlock_weaknesses

    abi = landlock_abi()
    jail = _start(LANDLOCK)
    try:
        prove_walls(jail)
    finally:
        jail.destroy()
        jail.forget()
    true_access = CAP_SETPCAP in held_capabilities()
    weak = landlock_weaknesses(abi, own_user=has_own_user(LANDLOCK), true_access=true_access)
    return Enforcer(LANDLOCK, f"ABI {abi}", weak)


def _start(name: str) -> Jail:
    python = find_python("python3")
    walls = Walls(python.executable, python.runtime, (), *sizes(Limits(), 256), preload=(), enforcer=name)
    return start_jail(walls).wait_ready()


def _no_enforcer_for(system: str) -> str:
    return (
        f"sandbox-kernel has no enforcer for {system} yet; run it inside a Linux container or virtual machine, "
        "where bubblewrap works"
    )


def _remedy(name: str) -> str:
    """Return what to do about an enforcer that failed, from settings of this host."""
    if name != bubblewrap.NAME:
        return "in a container, allow the calls that Landlock and seccomp need, or run where bubblewrap works"
    for setting in ("kernel/unprivileged_userns_clone", "user/max_user_namespaces"):
        if read_fact(f"/proc/sys/{setting}") == "0":
            return f"sysctl {setting.replace('/', '.')} is 0: set it to a number above 0"
    if os.path.exists("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"):
        return "AppArmor may restrict user namespaces: see sysctl kernel.apparmor_restrict_unprivileged_userns"
    return (
        "in a container, allow user namespaces (docker run --user 1000 --security-opt seccomp=unconfined "
        "--security-opt systempaths=unconfined), or run on the host"
    )


# Tests that a Landlock jail holds on this host: a program tries each wall once, and works normally inside.

_PROGRAM = b"""
import os, socket, sys
outside = sys.argv[1]
def refused(what, act):
    try: act()
    except OSError: return
    sys.exit(what)
with open("inside", "w") as file: file.write("x")
with open("inside") as file: file.read()
refused("a file outside could be read", lambda: open(outside).close())
refused("a file outside could be written", lambda: open(outside, "r+").close())
refused("a file could be made outside", lambda: open(outside + ".new", "x").close())
refused("a socket could be opened", lambda: socket.socket().close())
refused("a socket could be opened", lambda: socket.socket(socket.AF_UNIX).close())
"""


def prove_walls(jail: Jail) -> None:
    """Run the test program in a waiting jail. Raises ``EnforcerUnavailable`` that names the wall that did not hold."""
    import tempfile  # with `random` it takes longer than most modules; a proof is made once after a boot

    with tempfile.NamedTemporaryFile(prefix="sandbox-kernel-proof-") as outside:
        # Every user may access the file, so only Landlock can refuse it.
        os.chmod(outside.name, 0o666)
        work = jail.places.work
        step = Step(kind="python", argv=["proof.py", outside.name], env={}, rlimits={}, cwd=work, source=_PROGRAM)
        job = Job(steps=(step,), timeout_s=30.0, memory_bytes=256 * MIB, processes=16, output_bytes=4096)
        outcome = run_job(jail, job)
    if not outcome.exits or outcome.exits[-1].code != 0:
        said = outcome.stderr.text.strip() or f"the test program failed ({outcome.stopped_by or outcome.exits})"
        raise EnforcerUnavailable(LANDLOCK, f"its walls do not hold on this host: {said}")
