"""Writes, lists and removes the kernelspecs of wrapped kernels, for front ends that ignore provisioners."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.notebook.kernelspec import write_kernelspec
from sandbox_kernel.notebook.options.option_table import BY_SETTING, parse_fields
from sandbox_kernel.policy import PRESETS
from sandbox_kernel.wrapped.needed_files import needed_files
from sandbox_kernel.wrapped.record import check_path
from sandbox_kernel.wrapped.wrap_options import INNER_FILE, LAUNCHER, START, WrapOptions, from_arguments

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpec

#: The key of our metadata in a kernelspec.
METADATA = "sandbox_kernel"
_PREFIX = "sandbox-"


@dataclass(frozen=True, kw_only=True)
class WrappedKernel:
    """One wrapped kernel of this machine: its name, what it wraps, its folder and its options."""

    name: str
    wraps: str
    display_name: str
    folder: str
    options: WrapOptions


def find_original(name: str) -> KernelSpec:
    """Return an installed kernelspec. Raises ``InvalidRequest`` with the names that are installed."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    manager = KernelSpecManager()
    try:
        spec = manager.get_kernel_spec(name)
    except NoSuchKernel:
        known = ", ".join(sorted(manager.find_kernel_specs())) or "none"
        raise InvalidRequest(f"there is no kernel {name!r}; installed here: {known}") from None
    if METADATA in spec.metadata:
        raise InvalidRequest(f"kernel {name!r} is wrapped already; unwrap it first: sandbox-kernel unwrap {name}")
    if starts_us(spec.argv):
        raise InvalidRequest(f"kernel {name!r} is the Sandbox kernel itself: its cells run in a sandbox already")
    return spec


def command_of(original: KernelSpec) -> tuple[str, ...]:
    """Return the command of a kernelspec with the path of its program, which does not depend on PATH later."""
    program, *rest = original.argv
    if program in ("python", "python3", f"python3.{sys.version_info.minor}"):
        # Jupyter replaces these names by its own interpreter; so do we.
        program = sys.executable
    else:
        program = shutil.which(program, path=original.env.get("PATH")) or program
    words = {"{connection_file}": INNER_FILE, "{resource_dir}": original.resource_dir, "{prefix}": sys.prefix}
    for mark, value in words.items():
        rest = [word.replace(mark, value) for word in rest]
    return (program, *rest)


def options_for(spec: KernelSpec, command: Sequence[str], settings: Mapping[str, object]) -> WrapOptions:
    """Return the options for settings as users write them, with absolute paths; raises where no kernel would start."""
    options = WrapOptions(
        command=tuple(command),
        env=dict(spec.env),
        resource_dir=spec.resource_dir,
        interrupt=spec.interrupt_mode,
        **parse_fields(settings, BY_SETTING),
    )
    options.sandbox_policy()
    needed_files(options.command, options.env, options.resource_dir)
    return replace(
        options,
        policy=options.policy if options.policy in ("", *PRESETS) else os.path.abspath(options.policy),
        record=check_path(options.record) if options.record else "",
    )


def wrap(
    wraps: str, options: WrapOptions, *, name: str = "", display_name: str = "", prefix: str | None = None
) -> WrappedKernel:
    """Wrap an installed kernel; replaces a wrapped one of its name. Raises ``InvalidRequest`` for another's name."""
    original, name = find_original(wraps), name or _PREFIX + wraps
    others = (known for known, folder in _installed().items() if _read(known, folder) is None)
    if name.lower() in (known.lower() for known in others):
        raise InvalidRequest(
            f"--name {name!r} is the name of a kernel that is not wrapped, which would be lost, or started in place of "
            f"the wrapped one; choose another, like {_PREFIX + wraps}"
        )
    display_name = display_name.strip() or f"{original.display_name} (sandboxed)"
    # Jupyter replaces $NAME in them.
    env = {name: value.replace("$", "$$") for name, value in options.to_variables().items()}
    spec = {
        "argv": [sys.executable, *START, "-f", "{connection_file}", *options.to_arguments()],
        "display_name": display_name,
        "language": original.language,
        **({"env": env} if env else {}),
        # The launcher turns the message into a signal where the kernel needs one.
        "interrupt_mode": "message",
        "metadata": {"debugger": False, METADATA: {"wraps": wraps}},
    }
    written = str(write_kernelspec(name, spec, Path(original.resource_dir), prefix))
    own = Path(original.resource_dir, "kernel.json")  # Jupyter's own Python has none
    if own.exists() and not own.stat().st_mode & 0o004:
        Path(written, "kernel.json").chmod(0o600)
    return WrappedKernel(name=name, wraps=wraps, display_name=display_name, folder=written, options=options)


def _installed() -> dict[str, str]:
    from jupyter_client.kernelspec import KernelSpecManager

    found: dict[str, str] = KernelSpecManager().find_kernel_specs()
    return found


def wrapped_kernels() -> list[WrappedKernel]:
    """Return every wrapped kernel that Jupyter finds here, by name."""
    found = (_read(name, folder) for name, folder in sorted(_installed().items()))
    return [kernel for kernel in found if kernel is not None]


def unwrap(name: str) -> WrappedKernel:
    """Remove a wrapped kernel by its own name or by that of the kernel that it wraps."""
    here = wrapped_kernels()
    named = [kernel for kernel in here if name in (kernel.name, kernel.wraps)]
    exact = [kernel for kernel in named if kernel.name == name] or named
    if not exact:
        known = ", ".join(kernel.name for kernel in here) or "none"
        raise InvalidRequest(f"there is no wrapped kernel {name!r}; wrapped here: {known}")
    if len(exact) > 1:
        raise InvalidRequest(f"{name!r} is wrapped {len(exact)} times; name one: {', '.join(k.name for k in exact)}")
    try:
        shutil.rmtree(exact[0].folder)
    except OSError as error:
        raise InvalidRequest(f"{exact[0].folder} cannot be removed: {error.strerror}") from None
    return exact[0]


def _read(name: str, folder: str) -> WrappedKernel | None:
    try:
        spec = json.loads(Path(folder, "kernel.json").read_text(encoding="utf-8"))
        wraps = spec["metadata"][METADATA]["wraps"]
        place = spec["argv"].index(LAUNCHER)
        try:
            variables = {name: value.replace("$$", "$") for name, value in spec.get("env", {}).items()}
            _, options = from_arguments(spec["argv"][place + 1 :], variables)
        except InvalidRequest:  # of an earlier version: it can be listed, replaced and removed
            options = WrapOptions(command=("unknown",))
        return WrappedKernel(
            name=name, wraps=str(wraps), display_name=str(spec["display_name"]), folder=folder, options=options
        )
    except (OSError, ValueError, KeyError, TypeError, InvalidRequest):
        return None


def starts_us(argv: Sequence[str]) -> bool:
    """Whether a kernelspec starts the Sandbox kernel or the launcher: its cells run in a sandbox already."""
    return is_sandbox_kernel(argv) or LAUNCHER in argv[1:4]


def is_sandbox_kernel(argv: Sequence[str]) -> bool:
    """Whether a kernelspec starts the Sandbox kernel."""
    return "sandbox_kernel" in argv[1:4]
