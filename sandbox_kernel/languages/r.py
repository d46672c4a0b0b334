"""R, if the host has it. Values of top-level expressions are printed, and errors name the line of the cell."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sandbox_kernel.jail.core.interpreter import runtime_grants
from sandbox_kernel.languages.support.recipe import ProcessConfig, StepBuilder
from sandbox_kernel.languages.support.scripted import Scripted
from sandbox_kernel.model import Language
from sandbox_kernel.policy import Grant

#: Where Debian keeps the configuration of R, with links from R's own folder.
_CONFIGURATION = "/etc/R"


class R(Scripted):
    """Rscript, without profiles and saved workspaces."""

    language = Language.R
    minimum_memory_mb = 128
    script = "cell.R"
    names = ("Rscript",)
    remedy = "apt install r-base-core (or your system's package of it)"

    def runtime(self, config: ProcessConfig) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        own = runtime_grants([_CONFIGURATION]) if os.path.isdir(_CONFIGURATION) else ()
        return (*super().runtime(config), *own)

    def command(self, path: str, builder: StepBuilder) -> Sequence[str]:
        """See ``Scripted``. Run as a plain file, R would not print values and not say where an error was."""
        start = f"local({{ cell <- '{path}'; source('{builder.places.guest}/scripts/r_run.R', local = TRUE) }})"
        return [self.program(), "--vanilla", "-e", start]
