"""``CellOptions``: the options of one cell, or the notebook's defaults, as one frozen value.

A field that is None or empty was not given. ``over`` combines a cell's options with the notebook's defaults; for fields
that are still None, ``Sandbox`` has defaults. Made by ``parse_options.py``, used by ``sandboxes``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, TypeVar

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, MIB
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.units import duration_text, size_text
from sandbox_kernel.policy import Mount
from sandbox_kernel.policy.network_rule import NetworkRule, parse_rule

#: Languages whose cells share a session unless they are ``--fresh``.
SESSION_LANGUAGES = frozenset({Language.PYTHON, Language.JAVASCRIPT, Language.TYPESCRIPT, Language.COMMAND})


@dataclass(frozen=True)
class NetGrant:
    """One ``--allow-net``: a domain, and a port if one was given."""

    domain: str
    port: int | None = None


@dataclass(frozen=True, kw_only=True)
class CellOptions:
    """The options of one cell or of a notebook. List options of a cell are added to those of the notebook."""

    language: Language | None = None
    timeout_s: float | None = None
    memory_mb: int | None = None
    cpu_s: float | None = None
    processes: int | None = None
    disk_mb: int | None = None
    output_bytes: int | None = None
    backend: str | None = None
    fresh: bool = False
    session: str | None = None
    stdin: str | None = None
    stdin_var: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    args: tuple[str, ...] = ()
    allow_net: tuple[NetGrant, ...] = ()
    mounts: tuple[Mount, ...] = ()
    here: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    gpu: str | None = None
    gpu_memory_mb: int | None = None
    policy: str | None = None
    python: str | None = None
    check: bool = False
    checkpoints: int | None = None
    quiet: bool = False

    @property
    def effective_language(self) -> Language:
        """The language of the cell; Python if none was given."""
        return self.language or Language.PYTHON

    @property
    def effective_timeout_s(self) -> float:
        """The time limit of the cell in seconds; the default if none was given."""
        return self.timeout_s if self.timeout_s is not None else DEFAULT_TIMEOUT_S

    @property
    def keeps_state(self) -> bool:
        """Whether the cell runs in a session, and not fresh."""
        return not self.fresh and self.effective_language in SESSION_LANGUAGES

    def over(self, defaults: CellOptions) -> CellOptions:
        """Return these options combined with the notebook's defaults.

        A single value replaces the default, list values are added to it, a variable replaces one of the same name.
        A default that does not fit the cell's language (a session for Rust, ``--python`` for JavaScript) is left out;
        on the cell itself it is an error, which ``check_together`` raises.
        """
        single: dict[str, Any] = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in _LISTS and getattr(self, f.name) is not None and getattr(self, f.name) is not False
        }
        merged = replace(
            replace(defaults, **single),
            env=tuple({**dict(defaults.env), **dict(self.env)}.items()),
            args=(*defaults.args, *self.args),
            allow_net=_joined(defaults.allow_net, self.allow_net),
            mounts=_joined(defaults.mounts, self.mounts),
            inputs=_joined(defaults.inputs, self.inputs),
            outputs=_joined(defaults.outputs, self.outputs),
        )
        stateful = merged.effective_language in SESSION_LANGUAGES
        if self.session is not None:
            merged = replace(merged, fresh=False)
        elif self.fresh or not stateful:
            merged = replace(merged, session=None)
        if self.python is None and merged.effective_language is not Language.PYTHON:
            merged = replace(merged, python=None)
        if self.stdin is not None:
            merged = replace(merged, stdin_var=None)
        if self.stdin_var is not None:
            merged = replace(merged, stdin=None)
        return merged

    def replacing(self, defaults: CellOptions) -> CellOptions:
        """Return new notebook defaults: options of a ``%sandbox`` line replace the old values, lists included."""
        cleared: dict[str, Any] = {name: () for name in _LISTS if getattr(self, name)}
        return self.over(replace(defaults, **cleared))

    def reaching(self, domains: Iterable[str]) -> CellOptions:
        """Return these options with more domains allowed."""
        rules = map(parse_rule, domains)
        grants = tuple(NetGrant(rule.domain, rule.ports[0] if rule.ports else None) for rule in rules)
        return replace(self, allow_net=_joined(self.allow_net, tuple(dict.fromkeys(grants))))

    def check_together(self) -> CellOptions:
        """Return self, or raise ``InvalidRequest`` if an option does not fit the language."""
        if self.session is not None and self.effective_language not in SESSION_LANGUAGES:
            raise InvalidRequest(
                f"--session {self.session!r}: {self.effective_language} has no sessions: each of its cells runs fresh; "
                f"sessions exist for {', '.join(sorted(SESSION_LANGUAGES))}"
            )
        if self.python is not None and self.effective_language is not Language.PYTHON:
            raise InvalidRequest(f"--python {self.python!r} does not fit a {self.effective_language} cell; remove it")
        return self

    def words(self) -> str:
        """Return the options as text, as a user writes them. ``%sandbox`` alone shows it."""
        parts: list[str] = [self.language] if self.language else []
        for name, value in self.pairs():
            if name == "--here":
                parts.append("--here" if value == "." else f"--here={value}")
            else:
                parts += [name] if name in _FLAGS else [name, value]
        return shlex.join(parts)

    def pairs(self) -> list[tuple[str, str]]:
        """Return each option that is given, by its name and value; the value of a flag is empty."""
        found: list[tuple[str, str]] = []
        for name, seconds in (("--timeout", self.timeout_s), ("--cpu", self.cpu_s)):
            found += [] if seconds is None else [(name, duration_text(seconds))]
        sizes = (
            ("--memory", self.memory_mb, MIB),
            ("--disk", self.disk_mb, MIB),
            ("--output", self.output_bytes, 1),
            ("--gpu-memory", self.gpu_memory_mb, MIB),
        )
        found += [(name, size_text(number * unit)) for name, number, unit in sizes if number is not None]
        counts = (("--processes", self.processes), ("--checkpoints", self.checkpoints))
        found += [(name, str(count)) for name, count in counts if count is not None]
        texts = (
            ("--backend", self.backend),
            ("--session", self.session),
            ("--stdin", self.stdin),
            ("--stdin-var", self.stdin_var),
            ("--gpu", self.gpu),
            ("--policy", self.policy),
            ("--python", self.python),
        )
        found += [(name, text) for name, text in texts if text is not None]
        for name, items in (("--arg", self.args), ("-i", self.inputs), ("-o", self.outputs)):
            found += [(name, item) for item in items]
        found += [("--env", f"{key}={value}") for key, value in self.env]
        rules = (NetworkRule(grant.domain, (grant.port,) if grant.port else ()) for grant in self.allow_net)
        found += [("--allow-net", str(rule)) for rule in rules]
        found += [("--mount", f"{one.host}:{one.guest}{':rw' if one.writable else ''}") for one in self.mounts]
        found += [] if self.here is None else [("--here", self.here)]
        flags = (("--fresh", self.fresh), ("--check", self.check), ("--quiet", self.quiet))
        return found + [(name, "") for name, flag in flags if flag]


T = TypeVar("T")
_FLAGS = ("--fresh", "--check", "--quiet")
_LISTS = ("env", "args", "allow_net", "mounts", "inputs", "outputs")


def _joined(first: tuple[T, ...], second: tuple[T, ...]) -> tuple[T, ...]:
    return (*first, *(item for item in second if item not in first))
