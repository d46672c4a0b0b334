"""C++, as GNU C++20: the whole cell is one file with a ``main``."""

from __future__ import annotations

from sandbox_kernel.languages.support.c_family import CFamily
from sandbox_kernel.languages.support.recipe import ProcessConfig
from sandbox_kernel.model import Language


class Cpp(CFamily):
    """The system's C++ compiler, or Zig's."""

    language = Language.CPP
    minimum_memory_mb = 128
    script = "cell.cpp"
    names = ("c++", "g++", "clang++")
    flags = ("-std=gnu++20", "-O1")
    zig_command = "c++"

    def compiler_path(self, config: ProcessConfig) -> str:
        """See ``CFamily``."""
        return config.cxx_path
