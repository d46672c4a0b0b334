"""The papermill engine ``sandbox``: runs a notebook of any kernel in a jail, with limits.

``papermill in.ipynb out.ipynb --engine sandbox --execution-timeout 60 -p sandbox_memory 1G``: the first number is the
time limit of one cell. ``SETTINGS`` lists what else can be asked for; a notebook's metadata cannot. A notebook of the
*Sandbox* kernel keeps that kernel.

papermill's command line has no options for engines, so the engine reads parameters whose names begin with ``sandbox_``.
They are taken from the command line itself, not from the notebook: a notebook can hold parameters of an earlier run,
and must not give itself rights.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import click
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient.exceptions import DeadKernelError
from papermill.engines import NBClientEngine

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import check_timeout
from sandbox_kernel.notebook.options.cell_options import policy_of
from sandbox_kernel.notebook.options.own_rights import LINES_VARIABLE
from sandbox_kernel.notebook.options.parse_cell import (
    OPTIONS_VARIABLE,
    SPEC_VARIABLE,
    first_defaults,
    parse_options,
    split_words,
)
from sandbox_kernel.wrapped.kernelspecs import METADATA, is_sandbox_kernel, starts_us
from sandbox_kernel.wrapped.wrap_options import LAUNCHER, WrapOptions, from_arguments

#: The settings of the provisioner, and the two of them that are lists.
SETTINGS = ("policy", "memory", "timeout", "mounts", "domains", "enforcer", "record", "here")
_LISTS = ("mounts", "domains")
_PREFIX = "sandbox_"
#: What the Sandbox kernel calls these settings.
_OPTIONS = {"memory": "--memory", "timeout": "--timeout", "policy": "--policy", "mounts": "--mount",
            "domains": "--allow-net", "here": "--here"}  # fmt: skip


def start_variables(settings: Mapping[str, object], earlier: Mapping[str, str]) -> dict[str, str]:
    """Return variables that start the Sandbox kernel with these settings beside those of the variables ``earlier``.

    Its lines are locked: a cell can neither take the settings off nor have more. Raises ``InvalidRequest`` for a
    setting that only wrapped kernels have.
    """
    words: list[str] = []
    for name, value in settings.items():
        if name not in _OPTIONS:
            raise InvalidRequest(f"the Sandbox kernel has no setting {name!r}; it has: {', '.join(_OPTIONS)}")
        words += [f"{_OPTIONS[name]}={each}" for each in (value if isinstance(value, list) else [value])]
    options = parse_options(words).replacing(first_defaults(earlier))
    policy_of(options)
    line = options.words()
    split_words(line, "the settings of this run")
    return {LINES_VARIABLE: "locked", OPTIONS_VARIABLE: "", SPEC_VARIABLE: line}


def collect(given: Mapping[str, object], limit: float | None, merged: Iterable[str] = ()) -> dict[str, object]:
    """Return the settings of a run: ``given`` by the caller, else typed on papermill's command line.

    ``limit`` is its ``--execution-timeout``, ``merged`` the names of all parameters. Raises ``InvalidRequest`` for a
    setting that is unknown, or was not typed with ``-p``.
    """
    context = click.get_current_context(silent=True)  # none when a program called papermill
    typed = context.params if context is not None else {}
    pairs = [*typed.get("parameters", ()), *typed.get("parameters_raw", ())]
    if any(typed.get(f"parameters_{kind}") for kind in ("yaml", "file", "base64")):
        untyped = [name for name in merged if name.startswith(_PREFIX) and name not in dict(pairs)]
        if untyped:
            raise InvalidRequest(f"{', '.join(untyped)!r:.80} came with -y, -f or -b; settings are given with -p alone")
    asked = {**from_pairs(pairs), **given}
    if limit:
        asked["timeout"] = f"{check_timeout(limit):g}s"
    return asked


def from_pairs(pairs: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Return the settings among parameters; others are the notebook's. Raises ``InvalidRequest`` for unknown ones."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if not name.startswith(_PREFIX):
            continue
        setting = name.removeprefix(_PREFIX)
        if setting in _LISTS:
            found[setting] = [*found.get(setting, []), value]  # type: ignore[misc]
        elif setting in SETTINGS:
            found[setting] = value
        else:
            known = ", ".join(_PREFIX + each for each in SETTINGS)
            raise InvalidRequest(f"there is no setting {name!r:.80} of the engine 'sandbox'; expected: {known}")
    return found


PROVISIONER = "sandbox-provisioner"
#: How long nbclient waits beyond the cell's own limit: the launcher interrupts first, and says so in the notebook.
_LATER_S = 30
#: Options of a wrapped kernel that give no rights.
_LIMITS = ("command", "memory_mb", "interrupt", "timeout_s", "resource_dir")


class SandboxEngine(NBClientEngine):  # type: ignore[misc]
    """Runs the cells of a notebook with a kernel that the provisioner starts in a jail."""

    @classmethod
    def nb_kernel_name(cls, nb: Any, name: str | None = None) -> Any:
        """Return the kernel's name. Raises for a kernel with rights that the notebook chose, and not the caller."""
        found = super().nb_kernel_name(nb, name)
        spec = AsyncKernelManager(kernel_name=found).kernel_spec
        if not name and spec is not None and starts_us(spec.argv) and _has_rights(spec):
            raise InvalidRequest(f"the notebook asks for kernel {found!r}, which has rights of its own: add -k {found}")
        return found

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> Any:
        """Run a notebook; called by papermill with what its command line or its caller gives."""
        if nb_man.nb.metadata.get(METADATA):
            raise InvalidRequest(
                f"the notebook's metadata has settings under {METADATA!r}; only who runs it sets the engine 'sandbox', "
                "with -p sandbox_memory and the like: remove them from the notebook"
            )
        given = {name: kwargs.pop(name) for name in SETTINGS if name in kwargs}
        limit = kwargs.get("execution_timeout")
        settings = collect(given, limit, nb_man.nb.metadata.get("papermill", {}).get("parameters", {}))
        if limit:
            kwargs["execution_timeout"] = limit + _LATER_S
        manager = AsyncKernelManager(kernel_name=kernel_name or nb_man.nb.metadata.kernelspec.name)
        try:
            spec = manager.kernel_spec
            if spec is not None and is_sandbox_kernel(spec.argv):
                # Its cells run in a sandbox already. Jupyter replaces $NAME in variables of a kernelspec.
                started = start_variables(settings, {**os.environ, **spec.env})
                spec.env = {**spec.env, **{name: value.replace("$", "$$") for name, value in started.items()}}
            elif spec is not None and not starts_us(spec.argv):
                config = {"provisioner_name": PROVISIONER, "config": settings}
                spec.metadata = {**spec.metadata, "kernel_provisioner": config}
            elif settings:
                raise InvalidRequest(
                    f"kernel {manager.kernel_name!r} is wrapped already, with its own {', '.join(settings)}: "
                    "wrap it again with other ones"
                )
            return super().execute_managed_notebook(nb_man, kernel_name, km=manager, **kwargs)
        except DeadKernelError:
            outputs = [output for cell in nb_man.nb.cells for output in cell.get("outputs", ())]
            if not any(output.output_type == "error" for output in outputs):
                raise
            # The failed cell says what ended the kernel; papermill raises that.
            return nb_man.nb
        finally:
            # nbclient leaves a kernel alone whose manager it did not make.
            if manager.has_kernel:
                run_sync(manager.shutdown_kernel)()


def _has_rights(spec: Any) -> bool:
    """Whether a kernel of ours was installed or wrapped with more than limits."""
    if set(spec.env) - {LINES_VARIABLE}:
        return True
    if is_sandbox_kernel(spec.argv):
        return any(word.startswith("--") for word in spec.argv)
    try:
        _, options = from_arguments(spec.argv[spec.argv.index(LAUNCHER) + 1 :], spec.env)
    except InvalidRequest:
        return True
    return options != WrapOptions(**{name: getattr(options, name) for name in _LIMITS})
