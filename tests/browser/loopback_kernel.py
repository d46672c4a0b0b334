"""A Sandbox kernel whose cells may be allowed to reach the test's own listener; started by the kernelspec of a test.

Addresses of this machine are refused even to a domain that the user allows. No option of a notebook changes that, so
the sandboxes of this kernel are made with ``allow_private_for``. As ``panel/landlock_kernel.py`` its cells run behind
Landlock too, on machines that have bubblewrap. Everything else is the kernel as it is.
"""

from functools import partial

from sandbox_kernel import ProcessConfig, Sandbox, SandboxPolicy
from sandbox_kernel.__main__ import main
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.notebook import sandboxes

#: Programs inside ask the proxy for it, which they do not for 127.0.0.1.
HOST = "127.0.0.2"


def _make_box(enforcer: str, policy: SandboxPolicy, backend: str, config: ProcessConfig) -> Sandbox:
    box = Sandbox(policy, backend, config=config, allow_private_for=[HOST])
    if enforcer:
        box.backend = ProcessBackend(enforcer=enforcer, policy=policy, config=config, proxy=box._egress.proxy)
    return box


def serve(enforcer: str = "") -> None:
    """Run the kernel; ``enforcer`` names its walls, which no option of a notebook chooses."""
    sandboxes.NotebookSandboxes = partial(sandboxes.NotebookSandboxes, partial(_make_box, enforcer))  # type: ignore
    main()


if __name__ == "__main__":
    serve()
