"""A Sandbox kernel whose cells run behind Landlock, on machines that have bubblewrap too; started by a kernelspec of a test.

No option of a notebook chooses the walls: the strongest that the machine has are taken. Its cells may be allowed to reach
the test's own listener, as those of ``loopback_kernel``.
"""

from __future__ import annotations

from sandbox_kernel import ProcessConfig, Sandbox, SandboxPolicy
from sandbox_kernel.__main__ import main
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.notebook import sandboxes
from sandbox_kernel.workspace.kept_work import KeptWork
from tests.browser.loopback_kernel import HOST


def _make_box(policy: SandboxPolicy, backend: str, config: ProcessConfig) -> Sandbox:
    box = Sandbox(policy, backend, config=config, allow_private_for=[HOST])
    box.backend = ProcessBackend(enforcer="landlock", policy=policy, config=config, proxy=box._egress.proxy)
    return box


class LandlockSandboxes(sandboxes.NotebookSandboxes):
    """The sandboxes of this kernel."""

    def __init__(self, kept: KeptWork | None = None) -> None:
        super().__init__(_make_box, kept)


if __name__ == "__main__":
    sandboxes.NotebookSandboxes = LandlockSandboxes  # type: ignore[misc]
    main()
