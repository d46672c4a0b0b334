"""Sets up libraries so that their figures reach ``convert.py``: called when a library has been imported."""

from __future__ import annotations

import importlib
import sys
import traceback
from types import SimpleNamespace

from IPython.core.getipython import get_ipython

from .convert import bokeh
from .frame import FRAME
from .widgets import COMMS, catch_outputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Mapping

    Hook = Callable[[Any], None]


def plotly_imports(module: Any) -> None:
    """Let Plotly not import nbformat, which takes seconds: it asks for the version only, and our pages take data."""
    get = module.get_module

    def get_module(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "nbformat" and name not in sys.modules:
            return SimpleNamespace(__version__="4.2.0")
        return get(name, *args, **kwargs)

    module.get_module = get_module


def bokeh_notebook(module: Any) -> None:
    """Show Bokeh figures with ``show`` after ``output_notebook``, as its documentation says."""

    def load_notebook(*args: Any, **kwargs: Any) -> None:
        """Load nothing: each frame has the library already."""

    def show_doc(obj: Any, state: Any, notebook_handle: Any = None) -> None:
        if notebook_handle:
            raise RuntimeError("notebook_handle=True needs a connection to the page, which a sandbox does not give it")
        if obj not in state.document.roots:
            state.document.add_root(obj)
        shell: Any = get_ipython()
        shell.display_pub.publish({FRAME: bokeh(obj), "text/plain": repr(obj)})

    module.load_notebook, module.show_doc = load_notebook, show_doc


def itables_offline(module: Any) -> None:
    """Draw tables without the network; each frame gets the library, so the page needs no cell that prepares it."""

    def init_notebook_mode(all_interactive: bool = True, *args: Any, **kwargs: Any) -> None:
        module.set_itables_repr_html_methods(all_interactive)

    module._CONNECTED, module.init_notebook_mode = False, init_notebook_mode


def rich_pages(module: Any) -> None:
    """Let rich show colours and tables as HTML where a notebook shows the cell, as text elsewhere."""
    module._is_jupyter = lambda: screen_of_cells().has_pager()


def tqdm_bars(module: Any) -> None:
    """Let ``tqdm.auto`` show a widget where a notebook runs the cell; it looks for ipykernel, which is not here."""
    if not screen_of_cells().has_pager():
        return
    notebook = importlib.import_module("tqdm.notebook")
    if notebook.IProgress is not None:
        module.tqdm, module.trange = notebook.tqdm, notebook.trange


def screen_of_cells() -> Any:
    """Return where displays of cells go."""
    from ..display import SCREEN

    return SCREEN


#: Libraries of figures and tables, and what sets each of them up when it has been imported.
FIGURES = {
    "_plotly_utils.optional_imports": plotly_imports,
    # As data: a page would otherwise get markup that loads the libraries from the network.
    "plotly.io._renderers": lambda module: setattr(module.renderers, "default", "plotly_mimetype"),
    "altair": lambda module: module.renderers.enable("mimetype"),
    "bokeh.io.notebook": bokeh_notebook,
    "itables.javascript": itables_offline,
}


def install() -> None:
    """Watch for imports of the libraries that are set up here."""
    hooks = {
        **FIGURES,
        "rich.console": rich_pages,
        "tqdm.autonotebook": tqdm_bars,
        "comm": COMMS.install,
        "ipywidgets.widgets.widget_output": lambda module: catch_outputs(module, screen_of_cells()),
    }
    sys.meta_path.insert(0, AfterImport(hooks))


# Calls a function when a module has been imported, so that a library is set up only in sessions that use it.


class AfterImport:
    """A finder that finds nothing itself: it adds the call of a hook to the loader that another finder returns."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = hooks

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See ``importlib.abc.MetaPathFinder``."""
        if name not in self._hooks:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                self._add(name, spec)
                return spec
        return None

    def _add(self, name: str, spec: Any) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            try:
                self._hooks[name](module)
            except Exception:  # the library works without us, only less well
                traceback.print_exc()

        try:
            loader.exec_module = exec_module
        except AttributeError:
            return
