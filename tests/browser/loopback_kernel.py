"""A Sandbox kernel whose cells may be allowed to reach the test's own listener; started by the kernelspec of a test.

Addresses of this machine are refused even to a domain that the user allows. No option of a notebook changes that, so
the sandboxes of this kernel are made with ``allow_private_for``. Everything else is the kernel as it is.
"""

from __future__ import annotations

from sandbox_kernel import ProcessConfig, Sandbox, SandboxPolicy
from sandbox_kernel.__main__ import main
from sandbox_kernel.notebook import sandboxes
from sandbox_kernel.workspace.kept_work import KeptWork

#: Programs inside ask the proxy for it, which they do not for 127.0.0.1.
HOST = "127.0.0.2"


def _make_box(policy: SandboxPolicy, backend: str, config: ProcessConfig) -> Sandbox:
    return Sandbox(policy, backend, config=config, allow_private_for=[HOST])


class LoopbackSandboxes(sandboxes.NotebookSandboxes):
    """The sandboxes of this kernel."""

    def __init__(self, kept: KeptWork | None = None) -> None:
        super().__init__(_make_box, kept)


if __name__ == "__main__":
    sandboxes.NotebookSandboxes = LoopbackSandboxes  # type: ignore[misc]
    main()
