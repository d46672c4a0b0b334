"""Parses the words of an option line into ``CellOptions``. Pure; each error quotes the option and its accepted form.

One small function for each option checks its value and returns the options with it added. ``option_table`` lists the
options; a test checks that both files have the same ones.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from sandbox_kernel.backends.choice import BACKENDS
from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SandboxError
from sandbox_kernel.limits import MIB, Limits, check_memory_mb, check_timeout
from sandbox_kernel.model import Language, check_env
from sandbox_kernel.notebook.options.cell_options import CellOptions, NetGrant
from sandbox_kernel.notebook.options.did_you_mean import meant
from sandbox_kernel.notebook.options.option_table import BY_NAME
from sandbox_kernel.notebook.options.units import parse_bytes, parse_count, parse_duration, parse_megabytes
from sandbox_kernel.policy.gpu import parse_gpu
from sandbox_kernel.policy.network_rule import parse_rule
from sandbox_kernel.policy.places import path_text
from sandbox_kernel.policy.sandbox_policy import parse_mount

#: The environment variable that names the folder that cells of a new notebook work on; see ``--here``.
HERE_VARIABLE = "SANDBOX_KERNEL_HERE"
GPU_VARIABLE = "SANDBOX_KERNEL_GPU"
#: Further options of a new notebook, as on a ``%sandbox`` line: ``sandbox-kernel install --mount``.
OPTIONS_VARIABLE = "SANDBOX_KERNEL_OPTIONS"
MEMORY_VARIABLE, TIMEOUT_VARIABLE = "SANDBOX_KERNEL_MEMORY", "SANDBOX_KERNEL_TIMEOUT"
#: Most characters of an option line, for data belongs into the cell, and how often an option may stand in it. Lines are
#: read on the loop that also hears Stop, and each value is compared with all others.
MAX_LINE, MAX_REPEATS = 4096, 64
#: Most bytes of ``--output``: the kernel holds them all.
MAX_OUTPUT = 16 * MIB

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


def split_words(line: str, magic: str) -> list[str]:
    """Split an option line into words. Quotes and backslashes work as in a shell."""
    if len(line) > MAX_LINE:
        raise InvalidRequest(
            f"{magic}: the option line has {len(line)} characters, at most {MAX_LINE} are read; put data into the cell"
        )
    try:
        return shlex.split(line)
    except ValueError as error:
        raise InvalidRequest(
            f"{magic} {_short(line)!r}: {str(error).lower()}; close the quote, or write \\ before it"
        ) from None


def parse_options(words: list[str], commands: tuple[str, ...] = ()) -> CellOptions:
    """Parse at most one language and any options, in any order. ``--name value`` and ``--name=value`` are the same.

    Args:
        words: The words of the line, as ``split_words`` returns them.
        commands: The line commands that could stand at the same place; an error then mentions them.

    """
    options = CellOptions()
    given: Counter[str] = Counter()
    queue = list(reversed(words))
    while queue:
        word = queue.pop()
        if not word.startswith("-"):
            options = _with_language(options, word, queue[-1] if queue else None, commands)
            continue
        name, equals, value = word.partition("=")
        option = BY_NAME.get(name)
        if option is None:
            raise InvalidRequest(_unknown(name, line=bool(commands)))
        if name in given and not option.repeats:
            raise InvalidRequest(f"{name} is given twice; keep one")
        given[name] += 1
        if given[name] > MAX_REPEATS:
            raise InvalidRequest(f"{name} is given more than {MAX_REPEATS} times on one line; give fewer")
        if option.is_flag and equals:
            raise InvalidRequest(f"{name} takes no value, got {_short(word)!r}; write {name} alone")
        if option.optional and not equals:
            value = queue.pop() if queue and _is_value(queue[-1], commands) else ""
        elif not option.is_flag and not equals:
            if not queue:
                raise InvalidRequest(f"{name} needs a value: {option.form}")
            value = queue.pop()
        options = _APPLY[name](options, value)
    for one, other in (("--fresh", "--session"), ("--stdin", "--stdin-var")):
        if one in given and other in given:
            raise InvalidRequest(f"{one} and {other} exclude each other; keep one")
    return options


def first_defaults() -> CellOptions:
    """Return the defaults of a new notebook: none, but for a folder, cards or limits that the environment names.

    ``sandbox-kernel install --here`` and ``--gpu`` write such variables into the kernelspec; a JupyterHub sets limits.
    The folder ``1`` is the notebook's own. Raises ``InvalidRequest`` when a limit or an option is none.
    """
    given = parse_options(split_words(os.environ.get(OPTIONS_VARIABLE, ""), OPTIONS_VARIABLE))
    here, gpu = os.environ.get(HERE_VARIABLE, "").strip(), os.environ.get(GPU_VARIABLE, "").strip()
    memory, timeout = os.environ.get(MEMORY_VARIABLE, "").strip(), os.environ.get(TIMEOUT_VARIABLE, "").strip()
    settings = CellOptions(
        here=None if here in ("", "0") else "." if here == "1" else here,
        gpu=gpu or None,
        memory_mb=parse_megabytes(memory, MEMORY_VARIABLE) if memory else None,
        timeout_s=parse_duration(timeout, TIMEOUT_VARIABLE) if timeout else None,
    )
    return settings.over(given)


def parse_name(word: str, what: str) -> str:
    """Return a session or file name that is safe to print and to use as a file name, or raise ``InvalidRequest``."""
    if not _NAME.match(word):
        raise InvalidRequest(f"{what} {_short(word)!r} is not a name; use letters, digits, _ . - (at most 64)")
    return word


def _is_value(word: str, commands: tuple[str, ...]) -> bool:
    """Whether a word after an option whose value may be left out is that value: no option, language or command."""
    return not word.startswith("-") and word not in (*Language.names(), *commands)


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:80] + "…"


def _unknown(name: str, *, line: bool) -> str:
    near = meant(_short(name), None, line=line)
    hint = f"did you mean {near}?" if near else f"known options: {' '.join(BY_NAME)}"
    return f"unknown option {_short(name)!r}; {hint}"


def _with_language(
    options: CellOptions, word: str, following: str | None, commands: tuple[str, ...] = ()
) -> CellOptions:
    if word in commands:
        raise InvalidRequest(f"{word!r} is a command: it stands first on a line of its own, %sandbox {word}")
    if options.language is not None:
        hint = f"did you mean --{word} {following or ''}".rstrip() + "?" if f"--{word}" in BY_NAME else ""
        raise InvalidRequest(
            f"{_short(word)!r} is one word too many: the language is already {options.language}; "
            f"{hint or 'options begin with --'}"
        )
    try:
        return replace(options, language=Language.parse(_short(word)))
    except InvalidRequest as error:
        near = meant(_short(word), None if following is None else _short(following), line=bool(commands))
        if near:
            what = "neither a command nor a language" if commands else "not a language"
            raise InvalidRequest(f"{_short(word)!r} is {what}; did you mean {near}?") from None
        if commands:
            raise InvalidRequest(
                f"{_short(word)!r} is neither a command ({', '.join(commands)}) nor a language ({', '.join(Language)})"
            ) from None
        raise InvalidRequest(str(error)) from None


@contextmanager
def _quoting(option: str, value: str) -> Iterator[None]:
    """Turn a ``SandboxError`` raised inside into an ``InvalidRequest`` that quotes the option, value and form."""
    try:
        yield
    except SandboxError as error:
        text = str(error)
        prefix = "" if text.startswith(option) else f"{option} {_short(value)!r}: "
        form = "" if prefix == "" else f"; give {BY_NAME[option].form}"
        raise InvalidRequest(f"{prefix}{text}{form}") from None


def _variable(option: str, value: str) -> str:
    if not _VARIABLE.match(value):
        raise InvalidRequest(f"{option} {_short(value)!r} is not the name of a variable; letters, digits and _ only")
    return value


def _added(option: str, values: tuple[str, ...], value: str) -> tuple[str, ...]:
    if value in values:
        raise InvalidRequest(f"{option} {_short(value)!r} is given twice; keep one")
    return (*values, value)


def _timeout(options: CellOptions, value: str) -> CellOptions:
    with _quoting("--timeout", value):
        return replace(options, timeout_s=check_timeout(parse_duration(value, "--timeout")))


def _memory(options: CellOptions, value: str) -> CellOptions:
    with _quoting("--memory", value):
        return replace(options, memory_mb=check_memory_mb(parse_megabytes(value, "--memory")))


def _cpu(options: CellOptions, value: str) -> CellOptions:
    with _quoting("--cpu", value):
        return replace(options, cpu_s=check_timeout(parse_duration(value, "--cpu")))


def _processes(options: CellOptions, value: str) -> CellOptions:
    with _quoting("--processes", value):
        return replace(options, processes=Limits(processes=parse_count(value, "--processes", 1)).processes)


def _disk(options: CellOptions, value: str) -> CellOptions:
    with _quoting("--disk", value):
        return replace(options, disk_mb=Limits(disk_mb=parse_megabytes(value, "--disk")).disk_mb)


def _output(options: CellOptions, value: str) -> CellOptions:
    with _quoting("--output", value):
        output_bytes = parse_bytes(value, "--output")
        if output_bytes > MAX_OUTPUT:
            raise InvalidRequest(f"--output {_short(value)!r}: at most 16M are kept; write more into a file")
        return replace(options, output_bytes=output_bytes)


def _backend(options: CellOptions, value: str) -> CellOptions:
    if value not in BACKENDS:
        raise InvalidRequest(f"--backend {_short(value)!r} is unknown; give {BY_NAME['--backend'].form}")
    return replace(options, backend=value)


def _env(options: CellOptions, value: str) -> CellOptions:
    name, equals, content = value.partition("=")
    if not equals:
        raise InvalidRequest(f"--env {_short(value)!r} has no '='; give {BY_NAME['--env'].form}")
    with _quoting("--env", value):
        check_env({name: content})
    _added("--env", tuple(known for known, _ in options.env), name)
    return replace(options, env=(*options.env, (name, content)))


def _allow_net(options: CellOptions, value: str) -> CellOptions:
    try:
        rule = parse_rule(value)
    except PolicyViolation as error:
        raise InvalidRequest(f"--allow-net {error}") from None
    grant = NetGrant(rule.domain, rule.ports[0] if rule.ports else None)
    if grant in options.allow_net:
        raise InvalidRequest(f"--allow-net {_short(value)!r} is given twice; keep one")
    return replace(options, allow_net=(*options.allow_net, grant))


def _mount(options: CellOptions, value: str) -> CellOptions:
    with _quoting("--mount", value):
        mount = parse_mount(value)
    _added("--mount", tuple(known.guest for known in options.mounts), mount.guest)
    return replace(options, mounts=(*options.mounts, mount))


def _gpu(options: CellOptions, value: str) -> CellOptions:
    try:
        return replace(options, gpu=str(parse_gpu(value)))
    except PolicyViolation as error:
        raise InvalidRequest(f"--gpu {error}") from None


def _gpu_memory(options: CellOptions, value: str) -> CellOptions:
    with _quoting("--gpu-memory", value):
        limit = Limits(gpu_memory_mb=parse_megabytes(value, "--gpu-memory"))
        return replace(options, gpu_memory_mb=limit.gpu_memory_mb)


def _here(options: CellOptions, value: str) -> CellOptions:
    with _quoting("--here", value):
        path_text(value or ".")
    return replace(options, here=value or ".")


def _policy(options: CellOptions, value: str) -> CellOptions:
    if not value:
        raise InvalidRequest(f"--policy {value!r} is empty; give {BY_NAME['--policy'].form}")
    return replace(options, policy=value)


def _python(options: CellOptions, value: str) -> CellOptions:
    if not value:
        raise InvalidRequest(f"--python {value!r} is empty; give {BY_NAME['--python'].form}")
    return replace(options, python=value)


_APPLY: dict[str, Callable[[CellOptions, str], CellOptions]] = {
    "--timeout": _timeout,
    "--memory": _memory,
    "--cpu": _cpu,
    "--processes": _processes,
    "--disk": _disk,
    "--output": _output,
    "--backend": _backend,
    "--fresh": lambda options, _: replace(options, fresh=True),
    "--session": lambda options, value: replace(options, session=parse_name(value, "--session")),
    "--stdin": lambda options, value: replace(options, stdin=value),
    "--stdin-var": lambda options, value: replace(options, stdin_var=_variable("--stdin-var", value)),
    "--env": _env,
    "--arg": lambda options, value: replace(options, args=(*options.args, value)),
    "--allow-net": _allow_net,
    "--mount": _mount,
    "--gpu": _gpu,
    "--gpu-memory": _gpu_memory,
    "--here": _here,
    "-i": lambda options, value: replace(options, inputs=_added("-i", options.inputs, _variable("-i", value))),
    "-o": lambda options, value: replace(options, outputs=_added("-o", options.outputs, _variable("-o", value))),
    "--policy": _policy,
    "--python": _python,
    "--check": lambda options, _: replace(options, check=True),
    "--checkpoints": lambda options, value: replace(options, checkpoints=parse_count(value, "--checkpoints", 0)),
    "--quiet": lambda options, _: replace(options, quiet=True),
}
