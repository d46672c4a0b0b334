"""Figures of libraries reach the host as frames that need nothing from the network."""

import importlib.util
from collections.abc import Iterator

import pytest

from sandbox_kernel import Display, Sandbox
from sandbox_kernel.session.session import Session
from sandbox_kernel.untrusted.frames.frame_output import FRAME, LIBRARY
from tests.conftest import need


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Sandbox() as box, box.session(memory_mb=1024) as opened:
        yield opened


def shown(session: Session, code: str) -> tuple[Display, ...]:
    result = session.run(code, timeout=100)
    assert result.ok, result.stderr
    assert result.notes == ()
    return result.displays


def frames(session: Session, code: str) -> list[dict[str, object]]:
    return [display.data[FRAME] for display in shown(session, code) if FRAME in display.data]  # type: ignore[misc]


def needed(package: str) -> None:
    need(importlib.util.find_spec(package), f"{package} is not installed")


@pytest.mark.slow
def test_a_plotly_figure_is_a_frame_and_its_library_is_sent_once(session: Session) -> None:
    needed("plotly")
    first = shown(session, "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(y=[1, 2]))\nfig")
    assert [LIBRARY in display.data for display in first] == [True, False]
    # Importing a package only for its version, which nothing uses, would make the first figure slow.
    assert session.run("import sys\nprint('nbformat' in sys.modules)").stdout == "False\n"
    again = shown(session, "fig.show()")
    assert [LIBRARY in display.data for display in again] == [False]
    assert again[0].data[FRAME]["libraries"] == [first[0].data[LIBRARY]["sha256"]]  # type: ignore[index]


@pytest.mark.parametrize(
    ("packages", "code", "libraries"),
    [
        ("altair vl_convert", "import altair as alt\nalt.Chart(alt.Data(values=[{'a': 1}])).mark_bar().encode(x='a:Q')", 1),
        (
            "bokeh",
            ("from bokeh.io import output_notebook, show\nfrom bokeh.plotting import figure\noutput_notebook()\n"
            "p = figure(height=200)\np.line([1, 2], [1, 2])\nshow(p)"),
            1,
        ),
        ("itables pandas", "import pandas as pd\nfrom itables import show\nshow(pd.DataFrame({'a': [1]}))", 1),
        (
            "matplotlib xstatic.pkg.font_awesome",
            ("import matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt\nfrom matplotlib.animation import FuncAnimation\n"
            "from IPython.display import HTML\nfig, ax = plt.subplots(figsize=(2, 1))\n(line,) = ax.plot([0, 1])\n"
            "page = HTML(FuncAnimation(fig, lambda i: line.set_ydata([0, i]), frames=3).to_jshtml())\nplt.close()\npage"),
            1,
        ),
    ],
    ids=["altair", "bokeh", "itables", "animation"],
)  # fmt: skip
@pytest.mark.slow
def test_a_library_shows_its_output_in_a_frame(session: Session, packages: str, code: str, libraries: int) -> None:
    for package in packages.split():
        needed(package)
    (frame,) = frames(session, code)
    assert len(frame["libraries"]) == libraries  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("packages", "code", "sign"),
    [
        ("pandas jinja2", "import pandas as pd\npd.DataFrame({'a': [1]}).style.highlight_max()", "background-color: yellow"),
        ("sklearn", "from sklearn.linear_model import LinearRegression\nLinearRegression()", "forceTheme("),
        ("great_tables", "import pandas as pd, great_tables\ngreat_tables.GT(pd.DataFrame({'a': [1]}))", ".gt_table {"),
        ("", "import numpy as np\nfrom IPython.display import Audio\nAudio(np.arange(800), rate=8000)", "audio/wav;base64,"),
        ("", "from IPython.display import Video\nopen('f.webm', 'wb').write(b'\\x1aE\\xdf\\xa3')\nVideo('f.webm')", "webm;base64,GkXfow=="),
    ],
    ids=["styler", "sklearn", "great_tables", "audio", "video"],
)  # fmt: skip
@pytest.mark.one_case
def test_what_has_style_sheets_or_plays_is_shown_in_a_frame(
    session: Session, packages: str, code: str, sign: str
) -> None:
    for package in packages.split():
        needed(package)
    (frame,) = frames(session, code)
    assert sign in str(frame["html"])


@pytest.mark.slow
def test_a_page_in_a_file_is_shown_with_the_scripts_beside_it(session: Session) -> None:
    needed("pyvis")
    code = (
        "from pyvis.network import Network\nnet = Network(notebook=True, cdn_resources='in_line')\n"
        "net.add_node(1)\nnet.show('net.html')"
    )
    (frame,) = frames(session, code)
    assert "drawGraph" in str(frame["html"])
    (frame,) = frames(
        session,
        "open('a.js', 'w').write('let own = 1')\nopen('p.html', 'w').write('<script src=\"a.js\"></script>')\n"
        "from IPython.display import IFrame\nIFrame('p.html', 100, 200)",
    )
    assert frame["html"] == "<script>let own = 1</script>"
    assert frame["height"] == 200


def test_javascript_of_a_cell_runs_in_a_frame(session: Session) -> None:
    (made,) = frames(session, "%%javascript\nelement.textContent = '</script>'")
    assert made["libraries"] == []
    assert "element.textContent = '<\\/script>'" in str(made["html"])
    assert len(frames(session, "from IPython.display import Javascript\nJavascript('1')")) == 1


def test_code_that_a_library_sends_beside_html_makes_no_frame_of_its_own(session: Session) -> None:
    bundle = {"text/html": "<b>x</b>", "application/javascript": "1"}
    result = session.run(f"display({bundle}, raw=True)")
    (display,) = result.displays
    assert FRAME not in display.data
    assert "<b>x</b>" in str(display.data["text/html"])


def test_several_bokeh_figures_with_one_data_source_are_shown(session: Session) -> None:
    needed("bokeh")
    code = (
        "from bokeh.io import output_notebook, show\nfrom bokeh.models import ColumnDataSource\n"
        "from bokeh.plotting import figure\noutput_notebook()\nsource = ColumnDataSource({'x': [1, 2], 'y': [3, 4]})\n"
        "for height in (200, 210, 220):\n    p = figure(height=height)\n    p.line('x', 'y', source=source)\n    show(p)\n"
        "show(p)"
    )
    made = frames(session, code)
    assert [frame["height"] for frame in made] == [260, 270, 280, 280]
    # Each frame has one figure, not all that were shown before.
    assert [str(frame["html"]).count('"name":"Figure"') for frame in made] == [1, 1, 1, 1]
