"""Lua, if the host has it. Lua also finds modules in the work folder."""

from __future__ import annotations

from sandbox_kernel.languages.support.scripted import Scripted
from sandbox_kernel.model import Language


class Lua(Scripted):
    """PUC Lua, or LuaJIT."""

    language = Language.LUA
    script = "cell.lua"
    names = ("lua5.4", "lua", "lua5.3", "luajit")
    version_argv = ("-v",)
    remedy = "apt install lua5.4 (or your system's package of it)"
