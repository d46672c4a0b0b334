"""The papermill engine ``sandbox``: runs a notebook of any kernel in a jail, with limits.

``papermill in.ipynb out.ipynb --engine sandbox --execution-timeout 60 -p sandbox_memory 1G``: the first number is the
time limit of one cell. ``SETTINGS`` lists what else can be asked for; a notebook's metadata cannot. A notebook of the
*Sandbox* kernel keeps that kernel, and with ``-p sandbox_state NAME`` a run that failed can go on at the failed cell.

papermill's command line has no options for engines, so the engine reads parameters whose names begin with ``sandbox_``.
They are taken from the command line itself, not from the notebook: a notebook can hold parameters of an earlier run,
and must not give itself rights.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import click
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient.exceptions import CellExecutionError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine
from papermill.log import logger

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.limits import check_timeout
from sandbox_kernel.notebook.options.cell_options import policy_of
from sandbox_kernel.notebook.options.own_rights import LINES_VARIABLE, STATE_VARIABLE
from sandbox_kernel.notebook.options.parse_cell import OPTIONS_VARIABLE, parse_options, split_words
from sandbox_kernel.policy.written_folders import host_file
from sandbox_kernel.wrapped.kernelspecs import METADATA, is_sandbox_kernel, starts_us
from sandbox_kernel.wrapped.relaying.clean_outputs import OutputCleaner

# A papermill run that keeps the state before a failed cell, and goes on from there when it is started again.
#
# Only for the Sandbox kernel, whose sessions can be saved. The state file is the session's; beside it lies what the
# cells before the failed one were and what they showed, so that the next run can tell whether they are still the same.

_BESIDE = ".cells.json"
_OUTPUTS = ("stream", "display_data", "execute_result", "error")


class KeptCells:
    """The cells before a failed one, in a file beside the state; ``name`` is a file name in the present folder."""

    def __init__(self, name: str) -> None:
        self.name = os.path.abspath(name)
        self._path = self.name + _BESIDE

    def read(self, cells: list[Any]) -> list[dict[str, Any]]:
        """Return what the first cells showed, if a state was kept; empty when there is none.

        Raises ``InvalidRequest`` when these cells are no longer the same: the state would be that of other code.
        """
        if not os.path.exists(self._path) or not os.path.exists(self.name):
            return []
        try:
            with open(self._path, encoding="utf-8") as file:
                kept = [dict(each) for each in json.load(file)]
            digests = [str(each["source"]) for each in kept]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(f"{self._path!r} is not what a run of papermill left: {error}") from None
        for number, digest in enumerate(digests, 1):
            if number > len(cells) or _digest(cells[number - 1]) != digest:
                raise InvalidRequest(
                    f"cell {number} differs from the one that ran before the state in {self.name!r} was kept; "
                    "undo the change, or remove that file to run from the beginning"
                )
        return kept

    def write(self, cells: list[Any]) -> None:
        """Keep these cells and what they showed."""
        kept = [{"source": _digest(cell), "outputs": cell.get("outputs"), "count": cell.get("execution_count")}
                for cell in cells]  # fmt: skip
        descriptor = os.open(host_file(self._path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(kept, file)

    def remove(self) -> None:
        """Remove both files: the notebook has run to its end."""
        for path in (self._path, self.name):
            if os.path.exists(path):
                os.unlink(path)


class ResumingClient(PapermillNotebookClient):  # type: ignore[misc]
    """Runs a notebook in the Sandbox kernel; takes up the state before a failed cell, or keeps it."""

    def __init__(self, nb_man: Any, *, state: str, **kwargs: Any) -> None:
        super().__init__(nb_man, **kwargs)
        self._kept = KeptCells(state)
        self._done: list[dict[str, Any]] = []

    def papermill_execute_cells(self) -> None:
        """Run the cells that are left. papermill's own loop does it; cells that were run before are passed over."""
        self._done = self._kept.read(self.nb.cells)
        if self._done:
            self._command(f"%sandbox load {os.path.basename(self._kept.name)}")
            logger.info(f"Going on at cell {len(self._done) + 1} with the state in {self._kept.name}")
        super().papermill_execute_cells()
        if not any(cell.metadata.papermill.get("exception") for cell in self.nb.cells):
            self._kept.remove()

    def execute_cell(self, cell: Any, index: int, *args: Any, **kwargs: Any) -> Any:
        """Run a cell, or put back what it showed when it was run before the state was kept."""
        if index < len(self._done):
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = self._nodes(index), self._done[index].get("count")
            return cell
        try:
            return super().execute_cell(cell, index, *args, **kwargs)
        except CellExecutionError:
            # The failed cell is taken back.
            self._command("%sandbox undo")
            self._command(f"%sandbox save {os.path.basename(self._kept.name)}")
            self._kept.write(self.nb.cells[:index])
            logger.warning(
                f"Cell {index + 1} failed. The state before it is in {self._kept.name}; run again to go on there"
            )
            raise

    def _nodes(self, index: int) -> list[Any]:
        """Return what a cell showed, cleaned as outputs of a kernel are: the file may have come with the notebook."""
        from nbformat import from_dict

        cleaner = OutputCleaner()
        nodes = []
        for output in self._done[index].get("outputs") or ():
            kind = output.get("output_type")
            content = cleaner.clean(kind, output) if kind in _OUTPUTS else None
            if content is not None:
                content.pop("transient", None)
                nodes.append(from_dict({"output_type": kind, **content}))  # type: ignore[no-untyped-call]
        return nodes

    def _command(self, line: str) -> None:
        """Run a line of ours that belongs to no cell. Raises ``SessionError`` with the kernel's words if it fails."""
        content = self.wait_for_reply(self.kc.execute(line, store_history=False))["content"]
        if content["status"] != "ok":
            raise SessionError(f"{line}: {content.get('evalue', 'failed')}")


def _digest(cell: Any) -> str:
    return hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()


#: The settings of the provisioner, and the two of them that are lists.
SETTINGS = ("policy", "memory", "timeout", "mounts", "domains", "enforcer", "record", "here")
_LISTS = ("mounts", "domains")
STATE = "state"
_PREFIX = "sandbox_"
#: What the Sandbox kernel calls these settings.
_OPTIONS = {"memory": "--memory", "timeout": "--timeout", "policy": "--policy", "mounts": "--mount",
            "domains": "--allow-net", "here": "--here"}  # fmt: skip
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def start_variables(settings: Mapping[str, object], state: str, earlier: Mapping[str, str]) -> dict[str, str]:
    """Return variables that start the Sandbox kernel with these settings beside those of the variables ``earlier``.

    Its lines are locked: a cell can neither take the settings off nor have more. Raises ``InvalidRequest`` for a
    setting that only wrapped kernels have.
    """
    words: list[str] = []
    for name, value in settings.items():
        if name not in _OPTIONS:
            raise InvalidRequest(f"the Sandbox kernel has no setting {name!r}; it has: {', '.join(_OPTIONS)}")
        words += [f"{_OPTIONS[name]}={each}" for each in (value if isinstance(value, list) else [value])]
    before = parse_options(split_words(earlier.get(OPTIONS_VARIABLE, ""), OPTIONS_VARIABLE))
    options = parse_options(words).replacing(before)
    policy_of(options)
    line = options.words()
    split_words(line, "the settings of this run")
    return {LINES_VARIABLE: "locked", STATE_VARIABLE: state, OPTIONS_VARIABLE: line}


def collect(given: Mapping[str, object], limit: float | None) -> tuple[dict[str, object], str]:
    """Return the settings of a run and the name of its state file: ``given`` by the caller, else typed on papermill's
    command line. ``limit`` is its ``--execution-timeout``. Raises ``InvalidRequest`` for one that is unknown.
    """
    context = click.get_current_context(silent=True)  # none when a program called papermill
    typed = context.params if context is not None else {}
    pairs = [*typed.get("parameters", ()), *typed.get("parameters_raw", ())]
    asked = {**from_pairs(pairs), **given}
    if limit:
        asked["timeout"] = f"{check_timeout(limit):g}s"
    state = str(asked.pop(STATE, ""))
    if state and not _FILE_NAME.fullmatch(state):
        raise InvalidRequest(f"{_PREFIX}{STATE} {state!r:.120} must be a plain file name, like {STATE}.bin")
    return asked, state


def from_pairs(pairs: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Return the settings among parameters; others are the notebook's. Raises ``InvalidRequest`` for unknown ones."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if not name.startswith(_PREFIX):
            continue
        setting = name.removeprefix(_PREFIX)
        if setting in _LISTS:
            found[setting] = [*found.get(setting, []), value]  # type: ignore[misc]
        elif setting in (*SETTINGS, STATE):
            found[setting] = value
        else:
            known = ", ".join(_PREFIX + each for each in (*SETTINGS, STATE))
            raise InvalidRequest(f"there is no setting {name!r:.80} of the engine 'sandbox'; expected: {known}")
    return found


PROVISIONER = "sandbox-provisioner"
#: How long nbclient waits beyond the cell's own limit: the launcher interrupts first, and says so in the notebook.
_LATER_S = 30
#: Options of a wrapped kernel that give no rights.
_LIMITS = frozenset(("--memory-mb", "--interrupt", "--timeout-s", "--resource-dir"))


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
        given = {name: kwargs.pop(name) for name in (*SETTINGS, STATE) if name in kwargs}
        limit = kwargs.get("execution_timeout")
        settings, state = collect(given, limit)
        if limit:
            kwargs["execution_timeout"] = limit + _LATER_S
        manager = AsyncKernelManager(kernel_name=kernel_name or nb_man.nb.metadata.kernelspec.name)
        try:
            spec = manager.kernel_spec
            if spec is not None and is_sandbox_kernel(spec.argv):
                # Its cells run in a sandbox already. Jupyter replaces $NAME in variables of a kernelspec.
                started = start_variables(settings, state, {**os.environ, **spec.env})
                spec.env = {**spec.env, **{name: value.replace("$", "$$") for name, value in started.items()}}
            else:
                _wall(manager, settings, state)
            if state:
                client = ResumingClient(
                    nb_man,
                    km=manager,
                    state=state,
                    timeout=kwargs.get("execution_timeout"),
                    startup_timeout=kwargs.get("start_timeout") or 60,
                    kernel_name=manager.kernel_name,
                    log=logger,
                    **{name: kwargs.get(name) for name in ("log_output", "stdout_file", "stderr_file")},
                )
                return client.execute()
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
    words = spec.argv[: spec.argv.index("--")] if "--" in spec.argv else spec.argv
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    return bool(options - _LIMITS) or bool(set(spec.env) - {LINES_VARIABLE})


def _wall(manager: AsyncKernelManager, settings: Mapping[str, object], state: str) -> None:
    """Let the provisioner start the kernel. Raises ``InvalidRequest`` for what this kernel cannot do."""
    name, spec = manager.kernel_name, manager.kernel_spec
    if state:
        raise InvalidRequest(
            f"sandbox_state: kernel {name!r} cannot save its state; the Sandbox kernel can: papermill --kernel sandbox"
        )
    if spec is not None and not starts_us(spec.argv):
        config = {"provisioner_name": PROVISIONER, "config": dict(settings)}
        spec.metadata = {**spec.metadata, "kernel_provisioner": config}
    elif settings:
        asked = ", ".join(settings)
        raise InvalidRequest(f"kernel {name!r} is wrapped already, with its own {asked}: wrap it again with other ones")
