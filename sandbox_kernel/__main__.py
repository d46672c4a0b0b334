"""``python -m sandbox_kernel``: the kernel when Jupyter hands over a connection file, else the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Called by the kernelspec (``-f FILE``) and by people."""
    for_kernel = ("-f=", "--f=", "--ConnectionFileMixin", "--IPKernelApp")
    words = sys.argv[1:]
    # Where a command comes first, as in ``run FILE -- -f``, the option is the program's own.
    if words and words[0].startswith("-") and any(word == "-f" or word.startswith(for_kernel) for word in words):
        from ipykernel.kernelapp import IPKernelApp  # only here: the command line must not pay for it

        from sandbox_kernel.notebook.kernel import SandboxKernel

        # No cell prints in this process. Streams that are sent to the page would be flushed twice a cell, and each
        # flush waits for another thread; what a library says here belongs into the server's log.
        IPKernelApp.launch_instance(kernel_class=SandboxKernel, outstream_class=None)
        return
    from sandbox_kernel.cli import main as command_line

    sys.exit(command_line())


if __name__ == "__main__":
    main()
