"""Looks at values for a debugger: the variables between cells, and one value in the form in which a cell shows it."""

from __future__ import annotations

from ..interactive.bundles import bundle, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


class _Code:
    co_filename, co_name = "<module>", "<module>"


class _Frame:
    """What the tracer's classes need of a frame; it stands for the variables of the session."""

    def __init__(self, space: Dict[str, Any]) -> None:
        self.f_code = _Code()
        self.f_globals = self.f_locals = space
        self.f_back = None


class _Settings:
    """What the tracer's classes need of a debugger."""

    def __init__(self) -> None:
        from _pydevd_bundle.pydevd_api import PyDevdAPI

        self.variable_presentation = PyDevdAPI.VariablePresentation()


class Explorer:
    """The variables of a session as they are now, in the form that a stopped frame has."""

    def __init__(self, space: Dict[str, Any]) -> None:
        from _pydevd_bundle import pydevd_frame_utils
        from _pydevd_bundle.pydevd_suspended_frames import SuspendedFramesManager, _FramesTracker

        self._frames = SuspendedFramesManager()
        self._frame = _Frame(space)
        self._tracker = _FramesTracker(self._frames, _Settings())
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
