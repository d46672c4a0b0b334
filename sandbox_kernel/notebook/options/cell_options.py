"""``CellOptions``: the options of one cell, or the notebook's defaults, as one frozen value; its policy and limits."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_SESSION_MEMORY_MB, DEFAULT_TIMEOUT_S, Limits
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.option_table import OPTIONS, AtStart
from sandbox_kernel.policy import AllowedPath, Mount, SandboxPolicy
from sandbox_kernel.policy.gpu import parse_gpu
from sandbox_kernel.policy.network_rule import NetworkRule, parse_rule
from sandbox_kernel.policy.sandbox_policy import PACKAGES, policy_with
from sandbox_kernel.util.values import dataclass

if TYPE_CHECKING:
    from sandbox_kernel.workspace.kept_work import KeptWork

#: Languages whose cells share a session unless ``--fresh``. The command line does not load ``language_workers.py``.
SESSION_LANGUAGES = frozenset({Language.PYTHON, Language.JAVASCRIPT, Language.TYPESCRIPT, Language.COMMAND})
_FIELDS = ("language", *(option.field for option in OPTIONS))
_LISTS = tuple(option.field for option in OPTIONS if option.repeats)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class CellOptions:
    """The options of one cell or of a notebook. A field that is None or empty was not given."""

    language: Language | None = None
    timeout_s: float | None = None
    memory_mb: int | None = None
    cpu_seconds: float | None = None
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
    allow_net: tuple[NetworkRule, ...] = ()
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
    self_contained: bool = False

    @cached_property
    def effective_language(self) -> Language:
        """The language of the cell; Python if none was given."""
        return self.language or Language.PYTHON

    @cached_property
    def effective_timeout_s(self) -> float:
        """The time limit of the cell in seconds; the default if none was given."""
        return self.timeout_s if self.timeout_s is not None else DEFAULT_TIMEOUT_S

    @cached_property
    def keeps_state(self) -> bool:
        """Whether the cell runs in a session, and not fresh."""
        return not self.fresh and self.effective_language in SESSION_LANGUAGES

    @cached_property
    def of_session(self) -> CellOptions:
        """The options of a session that starts with these: it always has a memory limit."""
        return self if self.memory_mb is not None else replace(self, memory_mb=DEFAULT_SESSION_MEMORY_MB)

    def over(self, defaults: CellOptions) -> CellOptions:
        """Return these options combined with the notebook's defaults.

        A single value replaces the default, lists are joined, a variable replaces one of the same name. A default that
        does not fit the cell's language is left out; on the cell itself it is an error (``check_together``).
        """
        given: dict[str, Any] = {
            name: value for name in _FIELDS if (value := getattr(self, name)) is not None and value is not False
        }
        for name in _LISTS:
            given[name] = _joined(getattr(defaults, name), given[name])
        given["env"] = tuple({**dict(defaults.env), **dict(self.env)}.items())
        given["args"] = (*defaults.args, *self.args)
        merged = replace(defaults, **given)
        stateful = merged.effective_language in SESSION_LANGUAGES
        if self.session is not None:
            merged = replace(merged, fresh=False)
        elif self.fresh or not stateful:
            merged = replace(merged, session=None)
        if self.python is None and merged.effective_language is not Language.PYTHON:
            merged = replace(merged, python=None)
        if self.stdin is not None or self.stdin_var is not None:
            merged = replace(merged, stdin=self.stdin, stdin_var=self.stdin_var)
        return merged

    def replacing(self, defaults: CellOptions) -> CellOptions:
        """Return new notebook defaults: options of a ``%sandbox`` line replace the old values, lists included."""
        cleared: dict[str, Any] = {name: () for name in _LISTS if getattr(self, name)}
        return self.over(replace(defaults, **cleared))

    def reaching(self, domains: Iterable[str]) -> CellOptions:
        """Return these options with more domains allowed."""
        rules = tuple(dict.fromkeys(map(parse_rule, domains)))
        return replace(self, allow_net=_joined(self.allow_net, rules))

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
                parts += [name] if value is None else [name, value]
        return shlex.join(parts)

    def pairs(self) -> list[tuple[str, str | None]]:
        """Return each option that is given, by its name and value; the value of a flag is None."""
        found: list[tuple[str, str | None]] = []
        for option in OPTIONS:
            value = getattr(self, option.field)
            if option.is_flag:
                found += [(option.name, None)] if value else []
            elif option.repeats:
                found += [(option.name, option.write(one)) for one in value]
            elif value is not None:
                found.append((option.name, option.write(value)))
        return found

    @cached_property
    def at_start(self) -> dict[str, object]:
        """The values that a session which starts with these options has, by option name; lists as sets."""
        kept = {one.name: getattr(self, one.field) for one in OPTIONS if one.at_start is not AtStart.FREE}
        sets = {name: frozenset(value) if isinstance(value, tuple) else value for name, value in kept.items()}
        return {name: value for name, value in sets.items() if value not in (None, frozenset())}


def _joined(first: tuple[T, ...], second: tuple[T, ...]) -> tuple[T, ...]:
    return (*first, *(item for item in second if item not in first))


def policy_of(options: CellOptions) -> SandboxPolicy:
    """Return the policy, by name or from a file, with the cell's mounts and domains added. Resolves no path."""
    gpu = None if options.gpu is None else parse_gpu(options.gpu)
    return policy_with(options.policy or "standard", options.mounts, options.allow_net, gpu)


def policy_rows(policy: SandboxPolicy) -> list[tuple[str, str]]:
    """Return what a policy gives: names and words, for a table. A field without a name here has a row too."""
    nothing = type(policy)()
    all_fields = {one.name: getattr(policy, one.name) for one in fields(policy)}
    given = {name: _words(value) for name, value in all_fields.items() if value != getattr(nothing, name)}
    network = ("every public address" if given.pop("network", "") else "", given.pop("network_rules", ""))
    return [
        ("files", given.pop("allowed_paths", "no host files")),
        ("mounts", given.pop("mounts", "none")),
        ("network", ", ".join(filter(None, network)) or "none"),
        ("processes", "may be started" if given.pop("process_spawn", "") else "may not be started"),
        ("environment", given.pop("env", "no host variables")),
        *given.items(),
    ]


def _words(value: object) -> str:
    match value:
        case tuple() | Mapping():  # of variables the names
            return ", ".join(map(_words, value))
        case AllowedPath():
            return f"{value.path} ({value.mode})"
        case Mount():
            return f"{value.host} at {value.guest}{' (rw)' if value.writable else ''}"
        case NetworkRule():
            return value.domain + "".join(f":{port}" for port in value.ports)
    return str(value)


def may_share(one: SandboxPolicy, other: SandboxPolicy) -> bool:
    """Whether cells under these two policies may share the work folder: they see the same host files and variables.

    Else a cell could copy a mounted file or a variable into it, and another one, which has the network, send it away.
    """
    return _seen(one) == _seen(other)


def changes_place(kept: KeptWork | None, here: str, policy: SandboxPolicy, options: str = "--here") -> str | None:
    """Return where changes to a folder of the user stay for the next kernel; None where nothing is kept.

    Cells that see other files have another place. ``options`` is what the user writes to have the changes.
    """
    return None if kept is None else kept.place_of_changes(os.path.realpath(here), repr(_seen(policy)), options)


def _seen(policy: SandboxPolicy) -> tuple[object, ...]:
    """Return what cells under a policy see of the host beside the work folder; installed packages are no secret."""
    return policy.allowed_paths, tuple(mount for mount in policy.mounts if not is_packages(mount)), policy.env


def is_packages(mount: Mount) -> bool:
    """Whether a mount shows packages that the user had installed."""
    name = f"{PACKAGES}/{os.path.basename(mount.guest)}"
    return mount.guest == f"/opt/{name}" and mount.host.endswith(f"/{name}") and not mount.writable


def without_packages(options: CellOptions) -> CellOptions:
    """Return the options as a user gave them, without the mounts of installed packages."""
    return replace(options, mounts=tuple(mount for mount in options.mounts if not is_packages(mount)))


def limits_of(options: CellOptions) -> Limits:
    """Return the limits besides time and memory; safe defaults for options that were not given."""
    given: dict[str, Any] = {one.name: getattr(options, one.name, None) for one in fields(Limits)}
    return Limits(**{name: value for name, value in given.items() if value is not None})


def config_of(options: CellOptions) -> ProcessConfig:
    """Return which programs run the cell: another Python, and whether TypeScript is type-checked."""
    config = ProcessConfig(check_types=options.check)
    return config if options.python is None else replace(config, python_path=options.python)
