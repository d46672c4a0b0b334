"""Constants that the kernel sends in ``kernel_info_reply``."""

from __future__ import annotations

import platform

from sandbox_kernel import __version__

#: Also in kernelspec/sandbox/kernel.json; a test compares the two.
PROTOCOL_VERSION = "5.5"

LANGUAGE_INFO: dict[str, object] = {
    "name": "python",
    "version": platform.python_version(),
    "mimetype": "text/x-python",
    "file_extension": ".py",
    "pygments_lexer": "ipython3",
    "codemirror_mode": {"name": "ipython", "version": 3},
    "nbconvert_exporter": "script",
}

HELP_LINKS: list[dict[str, str]] = [
    {"text": "Python", "url": f"https://docs.python.org/{platform.python_version().rpartition('.')[0]}"},
    {"text": "bubblewrap", "url": "https://github.com/containers/bubblewrap"},
    {"text": "WebAssembly", "url": "https://webassembly.org"},
]

BANNER = (
    f"Sandbox {__version__}: every cell runs behind walls.\n"
    "%%sandbox LANGUAGE runs a cell in another language or under other limits, %sandbox sets the notebook's defaults,\n"
    "%sandbox report shows what is held back on this machine, %sandbox help lists everything."
)

KERNEL_INFO: dict[str, object] = {
    "protocol_version": PROTOCOL_VERSION,
    "implementation": "sandbox-kernel",
    "implementation_version": __version__,
    "language_info": LANGUAGE_INFO,
    "banner": BANNER,
    "help_links": HELP_LINKS,
}
