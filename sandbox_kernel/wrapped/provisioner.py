"""``SandboxProvisioner``: Jupyter servers start any kernel inside a jail through it, with limits from the kernelspec.

A kernelspec names it in its metadata::

    "metadata": {"kernel_provisioner": {"provisioner_name": "sandbox-provisioner",
                                        "config": {"memory": "1G", "timeout": "60s", "policy": "data"}}}

A server can use it for every kernel that names no other: ``JUPYTER_DEFAULT_PROVISIONER_NAME=sandbox``, or the setting
``KernelProvisionerFactory.default_provisioner_name``. Limits then come from the server's configuration, for example
``c.SandboxProvisioner.memory = "1G"``. It only replaces the kernel's command by the launcher (``launcher.py``).
"""

from __future__ import annotations

import os
import sys
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import List, Unicode

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.notebook.options.option_table import BY_SETTING
from sandbox_kernel.workspace.overlay.project import ProjectFolder
from sandbox_kernel.wrapped.kernelspecs import options_for, starts_us
from sandbox_kernel.wrapped.wrap_options import INNER_FILE, START


def _trait(setting: str) -> Any:
    """Return a trait for a setting of the one table. An empty value is none."""
    option = BY_SETTING[setting]
    made = List(Unicode(), help=option.help) if option.repeats else Unicode("", help=f"{option.help}: {option.form}")
    return made.tag(config=True)


class SandboxProvisioner(LocalProvisioner):
    """Starts a kernel in a jail. Its settings come from the kernelspec, else from the server's configuration."""

    policy = _trait("policy")
    memory = _trait("memory")
    timeout = _trait("timeout")
    mounts = _trait("mounts")
    domains = _trait("domains")
    enforcer = _trait("enforcer")
    record = _trait("record")
    here = _trait("here")

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Replace the kernel's command by the launcher. Raises ``RuntimeError``, whose words the front end shows."""
        kwargs = await super().pre_launch(**kwargs)
        if starts_us(self.kernel_spec.argv) and "kernel_provisioner" not in self.kernel_spec.metadata:
            # The server's default for every kernel. This one has walls of its own.
            return kwargs
        assert self.parent is not None
        file = self.parent.connection_file
        command = [word.replace(file, INNER_FILE) for word in kwargs["cmd"]]
        try:
            if starts_us(command):
                raise InvalidRequest("this kernel runs in a sandbox already: its kernelspec needs no provisioner")
            given = {name: getattr(self, name) or None for name in BY_SETTING}
            options = options_for(self.kernel_spec, command, given)
            if self.here:
                ProjectFolder(os.path.join(kwargs.get("cwd") or os.getcwd(), self.here))
        except SandboxError as error:
            raise RuntimeError(str(error)) from None
        # The variables of the kernelspec are the kernel's, and are given to it inside.
        own = set(self.kernel_spec.env) - set(os.environ)
        kwargs["env"] = {name: value for name, value in kwargs.get("env", os.environ).items() if name not in own}
        kwargs["env"].update({name: os.environ[name] for name in self.kernel_spec.env if name in os.environ})
        kwargs["env"].update(options.to_variables())
        kwargs["cmd"] = [sys.executable, *START, "-f", file, *options.to_arguments()]
        return kwargs
