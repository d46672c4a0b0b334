"""What running sessions must be given, or lose, to follow new defaults of a notebook. Pure, but for ``change_all``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
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
    """One right that a session gains or loses, the words for it, and what takes the change back, if anything does."""

    words: str
    do: Callable[[Session], None]
    undo: Callable[[Session], None] | None = None


def change_all(changes: Sequence[tuple[Session, RightsChange]]) -> None:
    """Make all changes or, when a session refuses one, none: those made before it are taken back."""
    done: list[tuple[Session, Callable[[Session], None]]] = []
    try:
        # What cannot be taken back comes last.
        for session, change in sorted(changes, key=lambda each: each[1].undo is None):
            change.do(session)
            if change.undo is not None:
                done.append((session, change.undo))
    except BaseException:
        for session, undo in reversed(done):
            undo(session)
        raise


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
    # What is taken back first: a new folder may come to the place of an old one.
    more, less = (_items(one, "--mount") - _items(two, "--mount") for one, two in ((wants, has), (has, wants)))
    found = [RightsChange(f"lost {_mount(one).guest}", _revoke_mount(one), _allow_mount(one)) for one in less]
    found += [RightsChange(_mount_words(_mount(one)), _allow_mount(one), _revoke_mount(one)) for one in more]
    more, less = (_items(one, "--allow-net") - _items(two, "--allow-net") for one, two in ((wants, has), (has, wants)))
    found += [RightsChange(f"reaches {net}", _allow_domain(net), _revoke_domain(net)) for net in map(_domain, more)]
    found += [
        RightsChange(f"no longer reaches {net}", _revoke_domain(net), _allow_domain(net)) for net in map(_domain, less)
    ]
    found += _env_changes(dict(_pairs(has)), dict(_pairs(wants)))
    memory, before = wants.get("--memory"), has.get("--memory")
    if isinstance(memory, int) and isinstance(before, int) and memory > before:
        found.append(RightsChange(f"may use {memory} MB", _allow_memory(memory)))
    return tuple(found)


def _env_changes(old: dict[str, str], new: dict[str, str]) -> list[RightsChange]:
    """Return the changes of the environment; what was set before is set again when they are taken back."""
    found = []
    env = {name: value for name, value in new.items() if old.get(name) != value}
    before = {name: old[name] for name in env if name in old}
    added = sorted(set(env) - set(old))
    gone = sorted(set(old) - set(new))

    def as_before(session: Session) -> None:
        if before:
            session.allow(env=before)
        if added:
            session.revoke(env=added)

    if env:
        found.append(RightsChange(f"has {', '.join(env)} in its environment", _allow_env(env), as_before))
    if gone:
        again = _allow_env({name: old[name] for name in gone})
        found.append(RightsChange(f"lost {', '.join(gone)} from its environment", _revoke_env(gone), again))
    return found


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


def _mount(value: object) -> Mount:
    assert isinstance(value, Mount)
    return value


def _mount_words(mount: Mount) -> str:
    return f"{'reads and writes' if mount.writable else 'reads'} {mount.host} at {mount.guest}"


def _allow_mount(value: object) -> Callable[[Session], None]:
    mount = _mount(value)
    text = f"{mount.host}:{mount.guest}{':rw' if mount.writable else ''}"
    return lambda session: session.allow(mount=text)


def _revoke_mount(value: object) -> Callable[[Session], None]:
    text = f"{_mount(value).host}:{_mount(value).guest}"
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
