"""Ruby, if the host has it. Files in the work folder can be required."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_kernel.languages.support.recipe import StepBuilder
from sandbox_kernel.languages.support.scripted import Scripted
from sandbox_kernel.model import Language


class Ruby(Scripted):
    """CRuby."""

    language = Language.RUBY
    minimum_memory_mb = 48
    script = "cell.rb"
    names = ("ruby",)
    remedy = "apt install ruby (or your system's package of it)"

    def command(self, path: str, builder: StepBuilder) -> Sequence[str]:
        """See ``Scripted``."""
        return [self.program(), f"-I{builder.places.work}", path]
