"""PHP, if the host has it. The opening tag may be left out, and errors go to stderr."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_kernel.languages.support.recipe import StepBuilder
from sandbox_kernel.languages.support.scripted import Scripted
from sandbox_kernel.model import ExecRequest, Language


class Php(Scripted):
    """The PHP command line interpreter, without the host's php.ini."""

    language = Language.PHP
    minimum_memory_mb = 32
    script = "cell.php"
    names = ("php",)
    remedy = "apt install php-cli (or your system's package of it)"

    def command(self, path: str, builder: StepBuilder) -> Sequence[str]:
        """See ``Scripted``. PHP's own memory limit is off, because the jail limits memory."""
        settings = ("display_errors=stderr", "log_errors=0", "html_errors=0", "memory_limit=-1")
        return [self.program(), "-n", *(part for name in settings for part in ("-d", name)), path]

    def source(self, request: ExecRequest) -> bytes:
        """See ``Scripted``."""
        return request.source if b"<?" in request.source else b"<?php " + request.source
