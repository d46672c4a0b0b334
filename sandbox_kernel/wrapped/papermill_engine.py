"""The papermill engine ``sandbox``: runs a notebook of any kernel in a jail, with limits.

``papermill in.ipynb out.ipynb --engine sandbox --execution-timeout 60``; ``--execution-timeout`` is the time limit of
one cell. Memory, policy, mounts and domains are arguments of ``papermill.execute_notebook(engine_name="sandbox",
memory="1G", …)``. A notebook's metadata may set its memory and time: ``{"sandbox_kernel": {"memory": "1G"}}``.
A notebook of the *Sandbox* kernel keeps that kernel: its cells run in a sandbox already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from papermill.engines import NBClientEngine

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import check_timeout
from sandbox_kernel.wrapped.kernelspecs import METADATA, starts_us

PROVISIONER = "sandbox-provisioner"
SETTINGS = ("policy", "memory", "timeout", "mounts", "domains", "enforcer", "record")
#: How long nbclient waits beyond the cell's own limit: the launcher interrupts first, and says so in the notebook.
_LATER_S = 30


class SandboxEngine(NBClientEngine):  # type: ignore[misc]
    """Runs the cells of a notebook with a kernel that the provisioner starts in a jail."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> Any:
        """Run a notebook; called by papermill with what its command line or its caller gives."""
        given = {name: kwargs.pop(name) for name in SETTINGS if name in kwargs}
        settings = {**_of_notebook(nb_man.nb.metadata), **given}
        limit = kwargs.get("execution_timeout")
        if limit:
            settings["timeout"] = f"{check_timeout(limit):g}s"
            kwargs["execution_timeout"] = limit + _LATER_S
        manager = walled_manager(kernel_name or nb_man.nb.metadata.kernelspec.name, settings)
        try:
            return super().execute_managed_notebook(nb_man, kernel_name, km=manager, **kwargs)
        except DeadKernelError:
            if not _has_error(nb_man.nb):
                raise
            # The failed cell says what ended the kernel; papermill raises that.
            return nb_man.nb


def walled_manager(kernel_name: str, settings: Mapping[str, object]) -> AsyncKernelManager:
    """Return a manager that starts a kernel through the provisioner, with these settings."""
    manager = AsyncKernelManager(kernel_name=kernel_name)
    spec = manager.kernel_spec
    if spec is not None and not starts_us(spec.argv):
        spec.metadata = {
            **spec.metadata,
            "kernel_provisioner": {"provisioner_name": PROVISIONER, "config": dict(settings)},
        }
    return manager


def _has_error(notebook: Any) -> bool:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return any(output.output_type == "error" for output in outputs)


def _of_notebook(metadata: Mapping[str, Any]) -> dict[str, object]:
    """Return the settings in a notebook's metadata. Raises ``InvalidRequest`` for unknown ones."""
    settings = metadata.get(METADATA) or {}
    unknown = [name for name in settings if name not in ("memory", "timeout")]
    if unknown:
        raise InvalidRequest(
            f"the notebook's metadata sets {', '.join(map(repr, unknown))}; it may only set memory and timeout: "
            "what it may touch is said by who runs it"
        )
    return dict(settings)
