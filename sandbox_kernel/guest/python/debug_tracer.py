"""pydevd, the tracer of debugpy, in this process. It speaks the Debug Adapter Protocol on a socket pair.

debugpy would start an adapter as a second process and listen on a TCP port, which behind Landlock other programs of
the machine could reach. Nothing of that is needed: pydevd understands the protocol itself.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

from .cell_names import CELL_FOLDER
from .interactive.frame import bundle, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


class Tracer:
    """Traces this process. ``__init__``, ``clear`` and ``forget`` run on the main thread, between cells."""

    def __init__(self) -> None:
        """Begin to trace; raises ``ImportError`` when this Python has no debugpy."""
        hook = sys.breakpointhook
        # It would print that breakpoints in frozen modules of the standard library are not seen.
        told = os.environ.get("PYDEVD_DISABLE_FILE_VALIDATION")
        os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
        try:
            import debugpy
            from debugpy._vendored import force_pydevd  # noqa: F401
        finally:
            sys.breakpointhook = hook
            if told is None:
                del os.environ["PYDEVD_DISABLE_FILE_VALIDATION"]
        import pydevd
        import pydevd_file_utils
        from _pydevd_bundle._debug_adapter.pydevd_base_schema import BaseSchema

        # JupyterLab calls the main thread 1, also when it is not the first debugger of this process.
        BaseSchema.initialize_ids_translation()
        on_disk = pydevd_file_utils.os_path_exists
        pydevd_file_utils.exists = lambda path: path.startswith(CELL_FOLDER) or on_disk(path)
        self._pydevd: Any = pydevd
        self._hook = hook
        self.socket, theirs = socket.socketpair()
        for each in (self.socket, theirs):
            each.settimeout(None)  # the program may have set a default for all sockets
        pydevd.SetupHolder.setup = None
        connect = pydevd.start_client
        pydevd.start_client = lambda host, port: theirs
        try:
            pydevd.settrace(
                host="sandbox",
                port=1,
                suspend=False,
                wait_for_ready_to_run=False,
                patch_multiprocessing=False,
                notify_stdin=False,
                dont_trace_start_patterns=(os.path.dirname(os.path.abspath(debugpy.__file__)),),
                dont_trace_end_patterns=("debugpy_launcher.py",),
            )
        finally:
            pydevd.start_client = connect
        self._theirs = theirs
        self._debugger = pydevd.get_global_debugger()
        sys.breakpointhook = self._stop_here

    def _stop_here(self, *args: Any, **named: Any) -> None:
        """``breakpoint()`` while a debugger is attached: stop in it."""
        frame = sys._getframe(1)
        self._pydevd.settrace(
            suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame
        )

    def threads(self) -> int:
        """Return how many threads of the tracer run."""
        return sum(1 for thread in self._debugger.created_pydb_daemon_threads if thread.is_alive())

    def traces(self) -> bool:
        """Whether the main thread is traced; from Python 3.12 on nothing can take that away."""
        return sys.version_info >= (3, 12) or sys.gettrace() is not None

    def renew(self) -> None:
        """Trace the main thread again, which stands nowhere now."""
        from _pydevd_bundle.pydevd_additional_thread_info import set_additional_thread_info

        info = set_additional_thread_info(threading.main_thread())
        info.pydev_state, info.pydev_step_cmd, info.pydev_step_stop, info.is_tracing = 1, -1, None, 0
        self._pydevd.settrace(suspend=False, patch_multiprocessing=False)

    def clear(self) -> None:
        """End the tracing, and the tracer's threads."""
        sys.breakpointhook = self._hook
        self._pydevd.stoptrace()
        self._close()

    def forget(self) -> None:
        """End the tracing in a fork, which has no threads of the tracer."""
        from _pydevd_bundle.pydevd_constants import set_global_debugger

        sys.breakpointhook = self._hook
        debugger = self._debugger
        debugger.pydb_disposed = True
        debugger.created_pydb_daemon_threads.clear()
        set_global_debugger(None)
        self._pydevd.stoptrace()
        self._close()

    def _close(self) -> None:
        for end in (self.socket, self._theirs):
            end.close()


# Looks at values for a debugger: the variables between cells, and one value in the form in which a cell shows it.


class _Parts:
    """Has what the tracer's classes need of a frame, of its code or of a debugger."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class Explorer:
    """The variables of a session as they are now, in the form that a stopped frame has."""

    def __init__(self, space: Dict[str, Any]) -> None:
        from _pydevd_bundle import pydevd_frame_utils
        from _pydevd_bundle.pydevd_api import PyDevdAPI
        from _pydevd_bundle.pydevd_suspended_frames import SuspendedFramesManager, _FramesTracker

        code = _Parts(co_filename="<module>", co_name="<module>")
        self._frame = _Parts(f_code=code, f_globals=space, f_locals=space, f_back=None)
        self._frames = SuspendedFramesManager()
        settings = _Parts(variable_presentation=PyDevdAPI.VariablePresentation())
        self._tracker = _FramesTracker(self._frames, settings)
        self._tracker.track("thread1", pydevd_frame_utils.create_frames_list_from_frame(self._frame))

    def children(self, reference: int) -> List[Dict[str, Any]]:
        """Return the parts of a value that was listed before; 0 for the variables themselves."""
        found = self._frames.get_variable(reference or id(self._frame))
        return [item.get_var_data() for item in found.get_children_variables()]


def rich(value: Any) -> Dict[str, Any]:
    """Return the MIME bundle of a value and its metadata, as JSON can hold them."""
    from IPython.core.getipython import get_ipython

    data, metadata = get_ipython().display_formatter.format(value)  # type: ignore[union-attr]
    return {"data": bundle(data), "metadata": plain(metadata)}
