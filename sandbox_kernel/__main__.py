"""``python -m sandbox_kernel``: starts the kernel when it gets a connection file, else the command line."""

from __future__ import annotations

import os
import sys

from sandbox_kernel.util.late_import import import_late, leave_present_folder


def main() -> None:
    """Start the kernel or the command line. Called by the kernelspec (``-f FILE``) and from a shell."""
    for_kernel = ("-f=", "--f=", "--ConnectionFileMixin", "--IPKernelApp")
    words = sys.argv[1:]
    # When a command comes first, as in ``run FILE -- -f``, the option belongs to the user's program.
    if words and words[0].startswith("-") and any(word == "-f" or word.startswith(for_kernel) for word in words):
        # We use two of its modules; the package itself would import every client and manager: 15 of 188 ms.
        import_late("jupyter_client")

        # Imported here, because the command line needs none of them.
        from sandbox_kernel.notebook.first_jail import begin_first_jail

        # The walls come up while the kernel is imported, and the first session starts while the protocol is.
        begin_first_jail()
        from sandbox_kernel.notebook.kernel import SandboxKernel

        kernel = SandboxKernel(_connection_file(words))

        from sandbox_kernel.notebook.protocol.kernel_app import KernelApp

        KernelApp().serve(kernel, words)
    from sandbox_kernel.cli import enter

    enter()


def _connection_file(words: list[str]) -> str:
    """Return the absolute path of the connection file that these words name; the protocol reads all of them later."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == "-f":
            return os.path.abspath(after)
        name, _, value = word.partition("=")
        if value and (name in ("-f", "--f") or name.endswith(".connection_file")):
            return os.path.abspath(value)
    return ""


if __name__ == "__main__":
    leave_present_folder()
    main()
