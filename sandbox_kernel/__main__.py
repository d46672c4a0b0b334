"""``python -m sandbox_kernel``: starts the kernel when it gets a connection file, else the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Start the kernel or the command line. Called by the kernelspec (``-f FILE``) and from a shell."""
    for_kernel = ("-f=", "--f=", "--ConnectionFileMixin", "--IPKernelApp")
    words = sys.argv[1:]
    # When a command comes first, as in ``run FILE -- -f``, the option belongs to the user's program.
    if words and words[0].startswith("-") and any(word == "-f" or word.startswith(for_kernel) for word in words):
        from ipykernel.kernelapp import IPKernelApp  # imported here, because the command line does not need it

        from sandbox_kernel.notebook.kernel import SandboxKernel

        # No cell prints in this process. Streams that go to the page would be flushed twice for each cell, and each
        # flush waits for another thread. What a library prints here belongs in the server's log.
        IPKernelApp.launch_instance(kernel_class=SandboxKernel, outstream_class=None)
        return
    from sandbox_kernel.cli import enter

    enter()


if __name__ == "__main__":
    main()
