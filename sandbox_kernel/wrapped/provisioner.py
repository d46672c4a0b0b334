"""``SandboxProvisioner``: Jupyter servers start any kernel inside a jail through it, with limits from the kernelspec.

A kernelspec names it in its metadata::

    "metadata": {"kernel_provisioner": {"provisioner_name": "sandbox-provisioner",
                                        "config": {"memory": "1G", "timeout": "60s", "policy": "data"}}}

A server can use it for every kernel that names no other: ``JUPYTER_DEFAULT_PROVISIONER_NAME=sandbox``, or the setting
``KernelProvisionerFactory.default_provisioner_name``. Limits then come from the server's configuration, for example
``c.SandboxProvisioner.memory = "1G"``. It replaces the kernel's command by the launcher (``launcher.py``) and leaves
everything else to the base class.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import List, Unicode

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.model.units import parse_duration, parse_megabytes
from sandbox_kernel.policy import PRESETS
from sandbox_kernel.policy.sandbox_policy import make_policy
from sandbox_kernel.workspace.overlay.project import ProjectFolder
from sandbox_kernel.wrapped.kernelspecs import starts_us
from sandbox_kernel.wrapped.needed_files import needed_files
from sandbox_kernel.wrapped.record import check_path
from sandbox_kernel.wrapped.wrap_options import INNER_FILE, START, WrapOptions


class SandboxProvisioner(LocalProvisioner):
    """Starts a kernel in a jail. Its settings come from the kernelspec, else from the server's configuration."""

    policy = Unicode("", help="policy file or preset; empty for 'standard'").tag(config=True)
    memory = Unicode("2G", help="memory limit of a kernel, like 512M or 2G").tag(config=True)
    timeout = Unicode("", help="time limit of one cell, like 30s; empty for none").tag(config=True)
    mounts = List(Unicode(), help="host paths to show, as HOST:GUEST[:rw]").tag(config=True)
    domains = List(Unicode(), help="domains that a kernel may reach, as DOMAIN[:PORT]").tag(config=True)
    enforcer = Unicode("auto", help="auto or bubblewrap").tag(config=True)
    record = Unicode("", help="file to which what each kernel did is added; empty for none").tag(config=True)
    here = Unicode(
        "", help="folder that a kernel works on, copy-on-write; '.' for the notebook's own, empty for none"
    ).tag(config=True)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Replace the kernel's command by the launcher. This method is called from ``KernelManager.pre_start_kernel``.

        Raises ``RuntimeError`` with our message when a setting is wrong: the front end shows it.
        """
        kwargs = await super().pre_launch(**kwargs)
        if starts_us(self.kernel_spec.argv) and "kernel_provisioner" not in self.kernel_spec.metadata:
            # The server's default for every kernel. This one has walls of its own.
            return kwargs
        try:
            options = self._options(kwargs["cmd"])
            if self.here:
                ProjectFolder(os.path.join(kwargs.get("cwd") or os.getcwd(), self.here))
        except SandboxError as error:
            raise RuntimeError(str(error)) from None
        # The variables of the kernelspec are the kernel's, and are given to it inside.
        own = set(self.kernel_spec.env) - set(os.environ)
        kwargs["env"] = {name: value for name, value in kwargs.get("env", os.environ).items() if name not in own}
        kwargs["env"].update({name: os.environ[name] for name in self.kernel_spec.env if name in os.environ})
        kwargs["env"].update(options.to_variables())
        assert self.parent is not None
        kwargs["cmd"] = [sys.executable, *START, "-f", self.parent.connection_file, *options.to_arguments()]
        return kwargs

    def _options(self, command: list[str]) -> WrapOptions:
        assert self.parent is not None
        file = self.parent.connection_file
        options = WrapOptions(
            command=tuple(word.replace(file, INNER_FILE) for word in command),
            env=dict(self.kernel_spec.env),
            resource_dir=self.kernel_spec.resource_dir,
            interrupt="message" if self.kernel_spec.interrupt_mode == "message" else "signal",
            policy=self.policy if self.policy in ("", *PRESETS) else os.path.abspath(self.policy),
            mounts=tuple(self.mounts),
            domains=tuple(self.domains),
            memory_mb=parse_megabytes(self.memory, "memory"),
            timeout_s=parse_duration(self.timeout, "timeout") if self.timeout else None,
            enforcer=self.enforcer,
            record=check_path(self.record) if self.record else "",
            here=self.here,
        )
        if starts_us(command):
            raise InvalidRequest("this kernel runs in a sandbox already: its kernelspec needs no provisioner")
        make_policy(options.policy or None, options.mounts, options.domains)
        needed_files(options.command, options.env, options.resource_dir)
        return options
