"""More rights for a running session, and fewer again: folders, domains, variables, memory.

A right is given to the whole session and never to one cell: processes that a cell leaves behind would keep it. What a
running session cannot be given is refused with what works instead. A worker that replaces another gets the same rights
again. Used by the thread that has the session's turn.
"""

from __future__ import annotations

import json
import shlex
import weakref
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.jail.late_grants import check_late, check_mount, listen_late, mount_late, unmount_late
from sandbox_kernel.limits import MIB, check_memory_mb, quoted
from sandbox_kernel.model import Language, check_env
from sandbox_kernel.model.notes import Wanted
from sandbox_kernel.policy import Mount, SandboxPolicy
from sandbox_kernel.policy.network_rule import NetworkRule, parse_rule
from sandbox_kernel.policy.sandbox_policy import parse_mount
from sandbox_kernel.session.worker.jailed_worker import JailedWorker
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.given_grants import GivenGrants

if TYPE_CHECKING:
    from sandbox_kernel.net.fetch_policy import FetchPolicy
    from sandbox_kernel.session.supervisor import WorkerSupervisor

_PROXY_NAMES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")


@dataclass(frozen=True)
class RightsAsked:
    """What ``allow`` or ``revoke`` was asked for, checked."""

    rule: NetworkRule | None = None
    mount: Mount | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    memory_mb: int | None = None


def asked_rights(
    domain: str | None, mount: str | Mount | None, env: Mapping[str, str] | None, memory_mb: int | None
) -> RightsAsked:
    """Check the arguments of ``allow`` and ``revoke``. Raises ``InvalidRequest`` or ``PolicyViolation``."""
    if domain is None and mount is None and not env and memory_mb is None:
        raise InvalidRequest("say what: domain='example.org', mount='data:/data', env={'K': 'V'} or memory_mb=1024")
    if env is not None and not isinstance(env, Mapping):
        raise InvalidRequest(f"env must be a mapping of names, got {quoted(env)}")
    check_env(env or {})
    given = parse_mount(mount) if isinstance(mount, str) else mount
    if given is not None and not isinstance(given, Mount):
        raise InvalidRequest(f"mount must be 'HOST:GUEST' or a Mount, got {quoted(mount)}")
    if memory_mb is not None:
        check_memory_mb(memory_mb)
    return RightsAsked(None if domain is None else parse_rule(domain), given, dict(env or {}), memory_mb)


class SessionRights:
    """What a session was given since it began."""

    def __init__(self, backend: ProcessBackend) -> None:
        self._backend = backend
        self._mounts: dict[str, GivenGrants] = {}
        #: By name; None for one that was taken back, which an earlier state of the session still has.
        self._env: dict[str, str | None] = {}
        self._rules: tuple[NetworkRule, ...] = ()
        self._worker: weakref.ref[JailedWorker] | None = None
        #: The session went to another state, which may be from before a variable was given.
        self.travelled = False

    @property
    def environment(self) -> tuple[str, ...]:
        """The names of variables that were given to the running session."""
        return tuple(self._env)

    @property
    def policy(self) -> SandboxPolicy:
        """The policy that the session began with, and the domains that it was given."""
        return self._reaching(self._rules)

    def _reaching(self, rules: tuple[NetworkRule, ...]) -> SandboxPolicy:
        began = self._backend.policy
        return replace(began, network_rules=(*began.network_rules, *rules)) if rules else began

    def allow(self, supervisor: WorkerSupervisor, live: JailedWorker, asked: RightsAsked) -> None:
        """Give the session what was asked: all of it or, where something is refused, none."""
        mount = None if asked.mount is None else GivenGrants(SandboxPolicy(mounts=(asked.mount,)))
        self._check(supervisor, live, asked, mount)
        self._worker = weakref.ref(live)
        if mount is not None:
            grant = mount.now()[0]
            mount_late(live.jail, grant, self._mounts)
            self._mounts[grant.target] = mount
        if asked.rule is not None:
            self._set_rules(supervisor, live, (*self._rules, asked.rule))
        if asked.env:
            self._env.update(asked.env)
            self._set_env(supervisor, live, asked.env)
        if asked.memory_mb is not None and asked.memory_mb > supervisor.memory_mb:
            live.limit_memory(asked.memory_mb * MIB)
            supervisor.memory_mb = asked.memory_mb

    def revoke(self, supervisor: WorkerSupervisor, live: JailedWorker, asked: RightsAsked) -> None:
        """Take back folders and variables. Raises ``PolicyViolation`` for what cannot be taken back now."""
        mount = asked.mount
        if mount is not None:
            if mount.guest not in self._mounts:
                began = any(known.guest == mount.guest for known in self._backend.policy.mounts)
                raise PolicyViolation(_not_taken(mount.guest, began))
            unmount_late(live.jail, mount.guest)
            del self._mounts[mount.guest]
        for name in asked.env.keys() - {known for known, value in self._env.items() if value is not None}:
            raise PolicyViolation(_not_taken(f"the variable {name}", name in self._backend.policy.env))
        if asked.env:
            self._env.update(dict.fromkeys(asked.env))
            self._set_env(supervisor, live, dict.fromkeys(asked.env))

    def end_domain(self, live: JailedWorker | None, rule: NetworkRule) -> None:
        """Take back a domain, and end all connections to it; ``live`` may have ended."""
        if rule not in self._rules:
            raise PolicyViolation(_not_taken(rule.domain, rule in self._backend.policy.network_rules))
        self._rules = tuple(known for known in self._rules if known != rule)
        if live is not None and live.proxy is not None:
            live.proxy.change_policy(self._fetch_policy(self._rules))

    def renew(self, supervisor: WorkerSupervisor, live: JailedWorker) -> None:
        """Give a new worker what the last one had, and a state that the session went to the variables."""
        travelled, self.travelled = self.travelled, False
        if self._worker is not None and self._worker() is not live:
            self._worker = weakref.ref(live)
            for mount in self._mounts.values():
                mount_late(live.jail, mount.now()[0])
            if self._rules:
                self._set_rules(supervisor, live, self._rules)
            if self._env:
                self._set_env(supervisor, live, self._env)
        elif travelled:
            env = {**(self._proxy_env(live) if self._rules else {}), **self._env}
            if env:
                self._set_env(supervisor, live, env)

    def _check(
        self, supervisor: WorkerSupervisor, live: JailedWorker, asked: RightsAsked, mount: GivenGrants | None
    ) -> None:
        if mount is not None:
            check_mount(live.jail, mount.now()[0], self._mounts)
        if asked.rule is not None:
            if self._backend.enforcer is not None:
                self._backend.enforcer.check_network(SandboxPolicy(network_rules=(asked.rule,)))
            check_late(live.jail)
            if self._backend.policy.network:
                raise PolicyViolation("the session reaches every public address already")
        most = supervisor.spec.cell_memory_mb
        if asked.memory_mb is not None and asked.memory_mb > max(most, supervisor.memory_mb):
            raise PolicyViolation(
                f"the session began with {supervisor.spec.memory_mb} MB and can grow to "
                f"{max(most, supervisor.memory_mb)} MB, not to {asked.memory_mb}; begin a new one with it: "
                f"%sandbox restart --keep --memory {asked.memory_mb}M, box.session(memory_mb={asked.memory_mb})"
            )

    def _set_rules(self, supervisor: WorkerSupervisor, live: JailedWorker, rules: tuple[NetworkRule, ...]) -> None:
        """Let the session reach these domains and those that it began with, and end all its connections to others."""
        fetch = self._fetch_policy(rules)
        if live.proxy is not None:
            live.proxy.change_policy(fetch)
        else:
            listener = listen_late(live.jail)
            live.proxy_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            proxy = self._backend.make_proxy(fetch)
            proxy.start(listener)
            live.proxy = proxy
        self._rules = rules
        if live.proxy_url:
            self._set_env(supervisor, live, self._proxy_env(live))

    def _fetch_policy(self, rules: tuple[NetworkRule, ...]) -> FetchPolicy:
        from sandbox_kernel.net.fetch_policy import FetchPolicy

        return FetchPolicy.from_sandbox_policy(self._reaching(rules))

    def _proxy_env(self, live: JailedWorker) -> dict[str, str]:
        if not live.proxy_url:
            return {}
        named = {rule.domain for rule in self._rules}
        own = ",".join(host for host in ("localhost", "127.0.0.1", "::1") if host not in named)
        return {**dict.fromkeys(_PROXY_NAMES, live.proxy_url), "no_proxy": own, "NO_PROXY": own}

    def _set_env(self, supervisor: WorkerSupervisor, live: JailedWorker, env: Mapping[str, str | None]) -> None:
        supervisor.quietly(live, _env_code(supervisor.spec.language, env))


def _not_taken(what: str, began: bool) -> str:
    """Say why a right cannot be taken back: the session ``began`` with it, or never had it."""
    if not began:
        return f"{what} was not given to the running session"
    return (
        f"{what} cannot be taken from the running session, which has it from its start. Without it and with the "
        "variables: %sandbox save NAME, %sandbox restart, %sandbox reset, %sandbox load NAME; in Python: "
        "session.save(path), then load_session(path) of a sandbox without it"
    )


def _env_code(language: Language, env: Mapping[str, str | None]) -> str:
    """Return a line of a language that sets these variables; None takes one away."""
    given = dict(env)
    if language is Language.PYTHON:
        # urllib remembers the proxies of its first request.
        return (
            f"[__import__('os').environ.pop(k, None) if v is None else __import__('os').environ.update({{k: v}}) "
            f"for k, v in {given!r}.items()]; "
            "setattr(__import__('sys').modules.get('urllib.request'), '_opener', None) "
            "if 'urllib.request' in __import__('sys').modules else None"
        )
    if language is Language.COMMAND:
        return "\n".join(f"unset {k}" if v is None else f"export {k}={shlex.quote(v)}" for k, v in given.items())
    one = "v === null ? delete process.env[k] : process.env[k] = v"
    return f"void Object.entries({json.dumps(given)}).forEach(([k, v]) => {{ {one} }})"


class RightAnswers:
    """What the user of one kernel or server has answered, until it ends. Needs no lock: each step is one of Python."""

    def __init__(self) -> None:
        #: What the user never wants to give.
        self.never: set[Wanted] = set()
        self._once: dict[Wanted, None] = {}
        #: Files of the work folder that are copies which the user allowed, by the right that brought them.
        self.copied: dict[Wanted, tuple[str, ...]] = {}

    def refuse(self, wanted: Wanted) -> None:
        """Offer this no more."""
        self.never.add(wanted)
        self._once.pop(wanted, None)

    def allow(self, wanted: Wanted, *, once: bool) -> None:
        """Forget an earlier ``refuse``; with ``once``, give the right to the next cell."""
        self.never.discard(wanted)
        if once:
            self._once[wanted] = None

    def take_once(self) -> tuple[Wanted, ...]:
        """Return the rights of the cell that begins now. The cell after it does not have them."""
        found, self._once = self._once, {}
        return tuple(found)

    def copies(self) -> tuple[str, ...]:
        """Return the paths of all copies."""
        return tuple(path for paths in self.copied.values() for path in paths)
