"""Perl, if the host has it. Modules in the work folder can be used."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_kernel.languages.support.recipe import StepBuilder
from sandbox_kernel.languages.support.scripted import Scripted
from sandbox_kernel.model import Language


class Perl(Scripted):
    """Perl 5."""

    language = Language.PERL
    script = "cell.pl"
    names = ("perl",)
    version_argv = ("-e", "printf '%vd', $^V")
    remedy = "apt install perl (or your system's package of it)"

    def command(self, path: str, builder: StepBuilder) -> Sequence[str]:
        """See ``Scripted``."""
        return [self.program(), f"-I{builder.places.work}", path]
