"""The papermill engine ``sandbox``: runs a notebook of any kernel in a jail, with limits.

``papermill in.ipynb out.ipynb --engine sandbox --execution-timeout 60 -p sandbox_memory 1G``: the first number is the
time limit of one cell. ``BY_SETTING`` lists what else can be asked for. The *Sandbox* kernel stays what it is.

papermill has no options for engines, so the engine reads parameters whose names begin with ``sandbox_``, from the
command line alone: a notebook can hold parameters of an earlier run, and must not give itself rights.
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
from sandbox_kernel.limits import GRACE_S, check_timeout
from sandbox_kernel.notebook.options import parse_cell
from sandbox_kernel.notebook.options.cell_options import policy_of
from sandbox_kernel.notebook.options.option_table import BY_SETTING, OPTIONS
from sandbox_kernel.wrapped.kernelspecs import METADATA, is_sandbox_kernel, starts_us
from sandbox_kernel.wrapped.wrap_options import LAUNCHER, from_arguments

_PREFIX = "sandbox_"
_SETTINGS = {_PREFIX + name: option for name, option in BY_SETTING.items()}
#: The settings that the Sandbox kernel has too, and its options for them.
_OF_CELLS = {option.setting: option.name for option in OPTIONS if option.setting}


def start_variables(settings: Mapping[str, object], earlier: Mapping[str, str]) -> dict[str, str]:
    """Return variables that start a locked Sandbox kernel with these settings, and ``earlier`` variables."""
    words: list[str] = []
    for name, value in settings.items():
        if name not in _OF_CELLS:
            raise InvalidRequest(f"the Sandbox kernel has no setting {name!r}; it has: {', '.join(_OF_CELLS)}")
        words += [f"{_OF_CELLS[name]}={each}" for each in (value if isinstance(value, list) else [value])]
    options = parse_cell.parse_options(words).replacing(parse_cell.first_defaults(earlier))
    policy_of(options)
    line = options.words()
    parse_cell.split_words(line, "the settings of this run")
    return {parse_cell.LINES_VARIABLE: "locked", parse_cell.OPTIONS_VARIABLE: "", parse_cell.SPEC_VARIABLE: line}


def collect(given: Mapping[str, object], limit: float | None, merged: Iterable[str] = ()) -> dict[str, object]:
    """Return the settings of a run, ``given`` by its caller or typed with ``-p``; others raise ``InvalidRequest``."""
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
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name not in _SETTINGS and name.startswith(_PREFIX):
            known = ", ".join(_SETTINGS)
            raise InvalidRequest(f"there is no setting {name!r:.80} of the engine 'sandbox'; expected: {known}")
        if option := _SETTINGS.get(name):
            found[option.setting] = [*found.get(option.setting, []), value] if option.repeats else value
    return found


PROVISIONER = "sandbox-provisioner"
#: How long nbclient waits beyond the cell's own limit: the launcher interrupts first, and says so in the notebook.
_LATER_S = int(GRACE_S["wrapped"]) + 25


class SandboxEngine(NBClientEngine):  # type: ignore[misc]
    """Runs the cells of a notebook with a kernel that the provisioner starts in a jail."""

    @classmethod
    def nb_kernel_name(cls, nb: Any, name: str | None = None) -> Any:
        """Return the kernel's name. Raises for a kernel with rights that the notebook chose, and not the caller."""
        found = super().nb_kernel_name(nb, name)
        spec = AsyncKernelManager(kernel_name=found).kernel_spec
        if not name and spec is not None and _has_rights(spec):
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
        given = {name: kwargs.pop(name) for name in BY_SETTING if name in kwargs}
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
    # Of any kernel: they may be secrets, and files that they name are shown.
    own = set(spec.env) - {parse_cell.LINES_VARIABLE}
    if own or not starts_us(spec.argv):
        return bool(own)
    if is_sandbox_kernel(spec.argv):
        return any(word.startswith("--") for word in spec.argv)
    try:
        _, options = from_arguments(spec.argv[spec.argv.index(LAUNCHER) + 1 :], spec.env)
    except InvalidRequest:
        return True
    return not all(BY_SETTING[name].harmless for name in options.settings())
