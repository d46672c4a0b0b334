"""Interactive output of ipykernel in a jail: its figures and widgets become frames, as those of our own cells do.

Run by a startup file of IPython (``wrapped/inner_kernel.py`` on the host writes it). Comms stay those of ipykernel: the
relay on the host reads them. All that is sent from here is checked there like any other output of the kernel.
"""

from __future__ import annotations

import sys

from . import renderers
from .convert import converted, in_output
from .frame import LIBRARIES
from .renderers import AfterImport
from .widgets import COMMS, catch_outputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


class KernelScreen:
    """Where displays of an IPython shell go: to an ``Output`` widget that is entered, else to the page."""

    def __init__(self, shell: Any) -> None:
        #: ``Output`` widgets that catch displays, innermost last.
        self.catchers: List[Any] = []
        self._publish, self._clear = shell.display_pub.publish, shell.display_pub.clear_output
        self._show_value = shell.displayhook.write_format_data
        self._shell, self._show_error = shell, shell._showtraceback
        shell._showtraceback = self.show_error
        shell.display_pub.publish, shell.display_pub.clear_output = self.publish, self.clear_output
        shell.displayhook.write_format_data = self.show_value

    def publish(self, data: Dict[str, Any], metadata: Any = None, *args: Any, **kwargs: Any) -> None:
        """``display()`` and ``update_display()``."""
        if not self._is_caught(data):
            self._publish(converted(data), metadata, *args, **kwargs)

    def show_value(self, data: Dict[str, Any], metadata: Any = None) -> None:
        """Show the value of a cell's last expression."""
        if not self._is_caught(data):
            self._show_value(converted(data), metadata)

    def show_error(self, etype: type, error: Any, lines: Any) -> None:
        """Show a traceback that IPython has formatted."""
        if self.catchers:
            self.catchers[-1]._sandbox_error(etype.__name__, error, [str(line) for line in lines])
        else:
            self._show_error(etype, error, lines)

    def show_traceback(self, raised: Any) -> None:
        """Show the traceback of what an ``Output`` widget caught."""
        self._shell.showtraceback(raised, tb_offset=0)

    def clear_output(self, wait: bool = False) -> None:
        """``clear_output()``."""
        if self.catchers:
            self.catchers[-1]._sandbox_clear_now(wait)
        else:
            self._clear(wait)

    def _is_caught(self, data: Dict[str, Any]) -> bool:
        if not self.catchers:
            return False
        self.catchers[-1]._sandbox_add(in_output(data))
        return True


def install(shell: Any) -> None:
    """Set up the shell of a kernel."""
    publish = shell.display_pub.publish
    screen = KernelScreen(shell)
    LIBRARIES.send = lambda data: publish(data, {}) or True
    kind = __import__("ipykernel.comm.comm", fromlist=["BaseComm"]).BaseComm
    usual = kind.publish_msg

    def publish_msg(self: Any, msg_type: str, data: Any = None, *args: Any, **kwargs: Any) -> None:
        COMMS.note_modules(data or {})  # a frame needs the code of its widgets
        usual(self, msg_type, data, *args, **kwargs)

    kind.publish_msg = publish_msg
    hooks = {**renderers.FIGURES, "ipywidgets.widgets.widget_output": lambda module: catch_outputs(module, screen)}
    sys.meta_path.insert(0, AfterImport(hooks))
