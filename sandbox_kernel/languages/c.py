"""C, as GNU C17: the whole cell is one file with a ``main``."""

from __future__ import annotations

from sandbox_kernel.languages.support.c_family import CFamily
from sandbox_kernel.languages.support.recipe import ProcessConfig
from sandbox_kernel.model import Language


class C(CFamily):
    """The system's C compiler, or Zig's."""

    language = Language.C
    minimum_memory_mb = 64
    script = "cell.c"
    names = ("cc", "gcc", "clang")
    flags = ("-std=gnu17", "-O1")
    libraries = ("-lm",)
    zig_command = "cc"

    def compiler_path(self, config: ProcessConfig) -> str:
        """See ``CFamily``."""
        return config.cc_path
