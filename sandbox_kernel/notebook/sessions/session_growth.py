"""What a running session must be given, or lose, to follow new defaults of its notebook. Pure, but for ``do``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.cell_options import NetGrant
from sandbox_kernel.policy import Mount
from sandbox_kernel.policy.network_rule import NetworkRule
from sandbox_kernel.session.session import Session

#: Options that a running session can follow.
GROWING = ("--mount", "--allow-net", "--env", "--memory")
#: Options that it cannot follow, and that change what cells see: the line is refused instead of losing variables.
_FIXED = ("--here", "--policy")


@dataclass(frozen=True)
class RightsChange:
    """One right that a session gains or loses, and the words for it."""

    words: str
    do: Callable[[Session], None]


def rights_between(
    has: Mapping[str, object], wants: Mapping[str, object], language: Language
) -> tuple[RightsChange, ...]:
    """Return what leads from the rights of a session to the new ones. Raises ``PolicyViolation`` where nothing does."""
    for name in _FIXED:
        if has.get(name) != wants.get(name):
            raise PolicyViolation(
                f"{name} cannot be changed while the {language} session runs: its working folder and walls stay as it "
                f"began; {_instead(name, has, wants, language)}"
            )
    found: list[RightsChange] = []
    # What is taken back first: a new folder may come to the place of an old one.
    for mount in _items(has, "--mount") - _items(wants, "--mount"):
        assert isinstance(mount, Mount)
        found.append(RightsChange(f"lost {mount.guest}", _revoke_mount(f"{mount.host}:{mount.guest}")))
    for mount in _items(wants, "--mount") - _items(has, "--mount"):
        assert isinstance(mount, Mount)
        text = f"{mount.host}:{mount.guest}{':rw' if mount.writable else ''}"
        found.append(
            RightsChange(
                f"{'reads and writes' if mount.writable else 'reads'} {mount.host} at {mount.guest}", _allow_mount(text)
            )
        )
    more, less = (_items(one, "--allow-net") - _items(two, "--allow-net") for one, two in ((wants, has), (has, wants)))
    found += [RightsChange(f"reaches {_domain(net)}", _allow_domain(_domain(net))) for net in more]
    found += [RightsChange(f"no longer reaches {_domain(net)}", _revoke_domain(_domain(net))) for net in less]
    new, old = dict(_pairs(wants)), dict(_pairs(has))
    env = {name: value for name, value in new.items() if old.get(name) != value}
    if env:
        found.append(RightsChange(f"has {', '.join(env)} in its environment", _allow_env(env)))
    gone = sorted(set(old) - set(new))
    if gone:
        found.append(RightsChange(f"lost {', '.join(gone)} from its environment", _revoke_env(gone)))
    memory, before = wants.get("--memory"), has.get("--memory")
    if isinstance(memory, int) and isinstance(before, int) and memory > before:
        found.append(RightsChange(f"may use {memory} MB", _allow_memory(memory)))
    return tuple(found)


def _instead(name: str, has: Mapping[str, object], wants: Mapping[str, object], language: Language) -> str:
    """Return what works instead; only Python sessions can bring their variables along."""
    value = wants.get(name)
    if value is None:
        rest = f"%sandbox reset {_option(name, has.get(name))} takes back everything else"
        return f"{rest}; %sandbox restart {language} ends it (its variables are lost, files stay), then write this line"
    if language is not Language.PYTHON:
        return f"%sandbox restart {language} ends it (its variables are lost, files stay), then write this line"
    option = _option(name, value)
    return f"%sandbox restart --keep {option} begins a new one with its variables (%sandbox restart {language} without)"


def _option(name: str, value: object) -> str:
    return name if value == "." else f"{name}={shlex.quote(str(value))}"


def _items(options: Mapping[str, object], name: str) -> set[object]:
    values = options.get(name)
    return set(values) if isinstance(values, tuple) else set()


def _pairs(options: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    values = options.get("--env")
    return values if isinstance(values, tuple) else ()


def _domain(net: object) -> str:
    assert isinstance(net, NetGrant)
    return str(NetworkRule(net.domain, (net.port,) if net.port else ()))


def _allow_mount(text: str) -> Callable[[Session], None]:
    return lambda session: session.allow(mount=text)


def _revoke_mount(text: str) -> Callable[[Session], None]:
    return lambda session: session.revoke(mount=text)


def _allow_domain(domain: str) -> Callable[[Session], None]:
    return lambda session: session.allow(domain=domain)


def _revoke_domain(domain: str) -> Callable[[Session], None]:
    return lambda session: session.revoke(domain=domain)


def _allow_env(env: dict[str, str]) -> Callable[[Session], None]:
    return lambda session: session.allow(env=env)


def _revoke_env(names: list[str]) -> Callable[[Session], None]:
    return lambda session: session.revoke(env=names)


def _allow_memory(memory_mb: int) -> Callable[[Session], None]:
    return lambda session: session.allow(memory_mb=memory_mb)
