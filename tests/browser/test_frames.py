"""Interactive output of a sandbox in real pages: drawn in frames, and nothing reaches the network."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

PLOTLY = "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(x=['a', 'b'], y=[3, 5]))\nfig"


@pytest.mark.firefox
def test_the_next_figure_is_drawn_in_a_frame_that_has_the_library_already(own_lab: LabPage) -> None:
    lab = own_lab
    lab.server.write_notebook("spare.ipynb", notebook_of(code_cell(PLOTLY), code_cell("fig"), kernel="sandbox"))
    lab.open("spare.ipynb")
    lab.select_cell(0)
    lab.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-cell')")
    inner = lab.output(0).frame_locator("iframe").frame_locator("iframe")
    expect(inner.locator(".bars path")).to_have_count(2)
    spare = lab.page.locator(".jp-SandboxFrame-spares iframe[data-loaded]")
    expect(spare).to_have_count(1)
    inside = spare.element_handle().content_frame().child_frames[0]
    # Plotly makes this place when it draws: the frame that waits has drawn a figure, and has removed it.
    expect(inside.locator("#js-plotly-tester")).to_have_count(1)
    expect(inside.locator(".js-plotly-plot")).to_have_count(0)
    lab.page.evaluate(
        "() => { window.waited = document.querySelector('.jp-SandboxFrame-spares').shadowRoot.querySelector('iframe'); }"
    )
    # A busy page calls its observers late. What is in view does not wait for them.
    lab.page.evaluate("() => { IntersectionObserver.prototype.observe = () => undefined; }")
    lab.select_cell(1)
    lab.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-cell')")
    inner = lab.output(1).frame_locator("iframe").frame_locator("iframe")
    expect(inner.locator(".bars path")).to_have_count(2)
    assert lab.page.evaluate("() => window.waited.getRootNode().host.closest('.jp-SandboxFrame') !== null")
    assert inside.evaluate("() => document.querySelectorAll('.bars path').length") == 2  # it was not loaded again


JAVASCRIPT = """%%javascript
element.textContent = 'drawn';
try { parent.parent.document.title = 'taken'; } catch (error) { element.textContent += ` ${error.name}`; }"""


ADDED = """%%javascript
const outer = document.createElement('div'), inner = document.createElement('div');
element.append(outer);
outer.append(inner);
inner.innerHTML = "<button onclick='this.textContent += 1'>pressed </button>";"""


MARKUP = """from IPython.display import HTML
HTML('''<form oninput="sum.value = Number(a.value) + Number(b.value)">
<input name=a value=1> <input name=b value=2> <output name=sum></output></form>
<form><input name=getAttributeNames><input name=querySelectorAll><input name=attributes></form>
<button onclick="this is no program">wrong</button>
<button class=set>set</button><i></i>
<script>document.currentScript.previousElementSibling.textContent = 'placed';
document.querySelector('.set').setAttribute('onclick', "this.textContent = 'first'");
document.querySelector('.set').setAttribute('onclick', "this.textContent += ' second'");</script>
<p><a href="https://elsewhere.example/">elsewhere</a> <a href="#below">below</a> <a href="">empty</a>
<a href="#" onclick="this.textContent = 'answered'; return false">handler</a>
<span onclick="event.stopPropagation()"><a href="https://elsewhere.example/">held</a></span>
<a href="javascript:void(document.querySelector('h4').textContent = 'changed')">program</a></p><h4 id=below>heading</h4>''')"""


def test_links_handlers_and_programs_of_outputs_do_what_they_do_in_a_page_and_reach_none(lab: LabPage) -> None:
    cells = map(code_cell, (MARKUP, JAVASCRIPT, ADDED))
    lab.server.write_notebook("markup.ipynb", notebook_of(*cells, kernel="sandbox"))
    lab.open("markup.ipynb")
    lab.run_all()
    inner = lab.output(1).frame_locator("iframe").frame_locator("iframe")
    expect(inner.locator("#element")).to_have_text("drawn SecurityError")
    assert "taken" not in lab.page.title()
    button = lab.output(2).frame_locator("iframe").frame_locator("iframe").locator("button")
    expect(button).to_have_text("pressed ")
    button.click()
    expect(button).to_have_text("pressed 1")  # in nodes that were added one into the other
    inner = lab.output(0).frame_locator("iframe").frame_locator("iframe")
    expect(inner.locator("i")).to_have_text("placed")
    # A click and keys, as of a user: the focus that Playwright's `fill` takes without a press is taken back.
    inner.locator("[name=a]").dblclick()
    lab.page.keyboard.type("5")
    expect(inner.locator("output")).to_have_text("7")
    inner.locator(".set").click()
    expect(inner.locator(".set")).to_have_text("set second")
    for name in ("below", "empty", "handler", "held", "program", "elsewhere"):
        inner.locator("a", has_text=name).click()
    expect(inner.locator("a", has_text="answered")).to_be_visible()
    expect(inner.locator("h4")).to_have_text("changed")
    expect(lab.output(0)).to_contain_text("This output wanted to load something from elsewhere.example: blocked")
    expect(inner.locator("i")).to_have_text("placed")


FILES = """from IPython.display import HTML
HTML('''<a download="../table.csv" href="data:text/csv,a%2Cb%0A1%2C2">table</a> <button>picture</button><script>
const save = (name, text, type) => {
  const link = document.createElementNS('http://www.w3.org/1999/xhtml', 'a');
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.dispatchEvent(new MouseEvent('click'));
  URL.revokeObjectURL(link.href);
};
save('unasked.txt', 'unasked');
document.querySelector('button').onclick = () => save(prompt('Enter filename', 'picture'), '<svg/>', 'image/svg+xml');</script>''')"""


def test_a_file_that_an_output_wants_to_save_is_saved_when_the_user_says_so(lab: LabPage) -> None:
    lab.server.write_notebook("files.ipynb", notebook_of(code_cell(FILES), code_cell(PLOTLY), kernel="sandbox"))
    lab.open("files.ipynb")
    lab.run_all()
    inner = lab.output(0).frame_locator("iframe").frame_locator("iframe")
    bar = lab.output(0).locator(".jp-SandboxFrame-bar")
    for press, said, saved, text in (
        ("a", "table.csv (7 bytes)", "table.csv", "a,b\n1,2"),
        ("button", "picture.svg (6 bytes)", "picture.svg", "<svg/>"),
    ):
        inner.locator(press).click()
        expect(bar).to_contain_text(f"This output wants to save a file: {said}.")
        expect(bar).not_to_contain_text("unasked")
        with lab.page.expect_download() as download:
            bar.locator("button").click()
        assert download.value.suggested_filename == saved
        assert download.value.path().read_text() == text
        expect(bar).to_have_count(0)
    # Plotly's camera.
    inner = lab.output(1).frame_locator("iframe").frame_locator("iframe")
    inner.locator(".nsewdrag").first.hover()
    inner.locator(".modebar-btn[data-title*='ownload plot']").click()
    expect(lab.output(1).locator(".jp-SandboxFrame-bar")).to_contain_text(
        re.compile(r"wants to save a file: [\w-]+\.png")
    )


LOOP = """from IPython.display import HTML
HTML('''<p>here</p><script>setTimeout(() => { const end = Date.now() + 40000; while (Date.now() < end); }, 1000)</script>''')"""


def test_a_frame_that_loops_gets_a_button_that_stops_it(own_lab: LabPage) -> None:
    """The loop ends by itself: its process may outlive the frame."""
    lab = own_lab
    lab.server.write_notebook("loop.ipynb", notebook_of(code_cell(LOOP), kernel="sandbox"))
    lab.open("loop.ipynb")
    lab.run_all()
    bar = lab.output(0).locator(".jp-SandboxFrame-bar")
    expect(bar).to_contain_text("This output stopped answering.")
    bar.locator("button").click()
    expect(lab.output(0)).to_contain_text("This output was stopped")
    expect(lab.output(0).locator("iframe")).to_have_count(0)
