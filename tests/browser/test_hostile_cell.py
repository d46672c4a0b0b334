"""What a hostile cell displays runs nowhere in JupyterLab; what an honest one displays still looks right."""

import pytest
from playwright.sync_api import Request, expect

from tests.browser.conftest import ARTIFACTS
from tests.browser.lab_page import LabPage, code_cell, notebook_of

pytestmark = pytest.mark.browser

#: Each of these would run, in a page that shows it as it is, something that raises the alarm.
HOSTILE = r"""
from IPython.display import HTML, Javascript, display
alarm = "window.alarm = (window.alarm || 0) + 1"
for markup in (
    f"<script>{alarm}</script>",
    f'<img src="x" onerror="{alarm}">',
    f'<svg><script>{alarm}</script></svg>',
    f'<svg onload="{alarm}"><animate onbegin="{alarm}" attributeName="x" dur="1s"/></svg>',
    f'<iframe srcdoc="<script>parent.{alarm}</script>"></iframe>',
    f'<iframe src="javascript:parent.{alarm}"></iframe>',
    f'<details open ontoggle="{alarm}">x</details>',
    f'<input autofocus onfocus="{alarm}">',
    f'<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror={alarm}&gt;">',
    f'<a class="bait" href="javascript:{alarm}">bait</a>',
    '<meta http-equiv="refresh" content="0;url=/alarm">',
    '<link rel="stylesheet" href="/alarm"><style>@import "/alarm"; * { background: url(/alarm) }</style>',
    '<div style="background:url(/alarm)">x</div><img src="/alarm"><video src="/alarm" autoplay></video>',
    '<form action="/alarm" id="f"><button form="f" class="bait">bait</button></form><base href="/alarm/">',
    '<button class="bait" data-commandlinker-command="terminal:create-new">bait</button>',
):
    display(HTML(markup))
display(Javascript(alarm))
display({"application/javascript": alarm, "text/plain": "script"}, raw=True)
display({"application/x-javascript": alarm, "text/plain": "script"}, raw=True)
svg = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{alarm}"><script>{alarm}</script></svg>'
display({"image/svg+xml": svg}, raw=True)
display({"text/markdown": f'<img src=x onerror="{alarm}"> [bait](javascript:{alarm})', "text/plain": ""}, raw=True)
display({"text/latex": r"$\href{javascript:alarm}{x} \style{background:url(/alarm)}{y}$", "text/plain": ""}, raw=True)
print("\x1b]8;;javascript:" + alarm + "\x07bait\x1b]8;;\x07")
print("the end")
"""

HONEST = r'''
import base64
from IPython.display import HTML, SVG, Image, display
display(HTML("""<style scoped>.dataframe td { text-align: right }</style><table border="1" class="dataframe">
<thead><tr><th></th><th>a</th></tr></thead><tbody><tr><th>0</th><td>1</td></tr></tbody></table>"""))
circle = '<circle cx="30" cy="30" r="25" fill="teal"/>'
display(SVG(f'<svg xmlns="http://www.w3.org/2000/svg" width="60" height="60">{circle}</svg>'))
png = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGP4z8CAB+GTG8HSALfKY52fTcuYAAAAAElFTkSuQmCC"
display(Image(base64.b64decode(png)))
from IPython.display import Latex, Markdown, Math
display(Markdown("""## A heading

Some **bold** text, `code`, [a link](https://example.org) and $e^{i\\pi} + 1 = 0$.

| name | value |
|---|--:|
| a_b_c | 1 |

```python
for x in y: print(x)
```

1. one
   - nested

> quoted

$$
\\int_0^1 x\\,dx
$$
"""))
display(Math(r"\frac{1}{2} \left[\begin{matrix}1 & 2\\3 & 4\end{matrix}\right]"))
display(Latex(r"\begin{align} a &= b \\ c &= \sqrt{d} \end{align}"))
'''


@pytest.mark.firefox
@pytest.mark.attack("O01", "kernel")
def test_a_hostile_cell_raises_no_alarm(own_lab: LabPage) -> None:
    requests: list[Request] = []
    own_lab.page.on("request", lambda request: requests.append(request))
    own_lab.page.evaluate("() => { window.neverLeft = true }")
    own_lab.server.write_notebook("hostile-cell.ipynb", notebook_of(code_cell(HOSTILE), kernel="sandbox"))
    own_lab.open("hostile-cell.ipynb")
    own_lab.run_all()
    output = own_lab.output(0)
    expect(output).to_contain_text("the end")
    expect(own_lab.receipt(0)).to_contain_text("JavaScript was not shown")
    own_lab.page.wait_for_function("() => [...document.images].every((image) => image.complete)")
    for bait in output.get_by_text("bait").all():
        bait.click(force=True, no_wait_after=True)
    own_lab.screenshot("hostile-cell")
    assert own_lab.page.evaluate("() => window.alarm") is None
    # The browser names requests of a frame that the frame's policy stopped before they left it: those end with "csp".
    assert [request.url for request in requests if "/alarm" in request.url and request.failure != "csp"] == []
    assert own_lab.page.evaluate("() => window.neverLeft") is True
    assert (
        output.locator(
            "script, iframe:not(.jp-SandboxFrame-place > iframe), object, embed, form, meta, base, link, [data-commandlinker-command]"
        ).count()
        == 0
    )
    frames = output.locator(".jp-SandboxFrame-place > iframe").all()
    assert frames
    assert {frame.get_attribute("sandbox") for frame in frames} == {"allow-scripts"}


def test_the_same_cell_raises_it_in_a_kernel_that_shows_everything(own_lab: LabPage) -> None:
    """The control: these attacks do work on this page when nobody makes them inert."""
    own_lab.page.on("dialog", lambda dialog: dialog.dismiss())
    # Only what runs at once: the others lead away from the page.
    source = HOSTILE.replace("'<meta", "# '<meta")
    own_lab.server.write_notebook("hostile-control.ipynb", notebook_of(code_cell(source)))
    own_lab.open("hostile-control.ipynb")
    own_lab.start_all()
    own_lab.page.wait_for_function("() => window.alarm >= 3")


def test_an_honest_cell_looks_right(lab: LabPage) -> None:
    lab.server.write_notebook("honest.ipynb", notebook_of(code_cell(HONEST), kernel="sandbox"))
    lab.open("honest.ipynb")
    lab.run_all()
    output = lab.output(0)
    expect(output.locator("table.dataframe td")).to_have_text("1")
    pictures = output.locator(".jp-RenderedSVG img, .jp-RenderedSVG svg, .jp-RenderedImage img")
    expect(pictures).to_have_count(2)
    for picture in pictures.all():
        box = picture.bounding_box()
        assert box is not None and box["width"] >= 10
    expect(output.locator("h2")).to_have_text("A heading")
    expect(output.locator("table:not(.dataframe) td")).to_have_text(["a_b_c", "1"])
    expect(output.locator("pre code")).to_have_text("for x in y: print(x)\n")
    expect(output.locator("ol > li > ul > li")).to_have_text("nested")
    expect(output.locator("mjx-container")).to_have_count(4)
    expect(output.locator("mjx-merror")).to_have_count(0)
    output.screenshot(path=ARTIFACTS / "honest-output.png")
    lab.screenshot("honest-cell")


#: Outputs just below what the cleaner allows: each would hang a page if it were a hundred times as much.
HEAVY = r"""
from IPython.display import HTML, SVG, Latex, display
shapes = '<rect width="300" height="200" fill="red" fill-opacity="0.5"/>' * 490
display(SVG(f'<svg xmlns="http://www.w3.org/2000/svg" width="300" height="200">{shapes}</svg>'))
display(HTML("<table><tr>" + "<td rowspan=900 colspan=10>x</td>" * 11 + "</tr>" + "<tr><td>y</td></tr>" * 900 + "</table>"))
display(Latex("$" + "a+b-" * 2000 + "$"))
print("".join(f"\x1b[3{n % 7}m{n % 9}" for n in range(9900)))
print("\u05d0a1 " * 200000)
print("the end")
"""


def test_a_page_answers_while_it_shows_what_is_just_allowed(own_lab: LabPage) -> None:
    lab = own_lab
    lab.server.write_notebook("heavy.ipynb", notebook_of(code_cell(HEAVY), kernel="sandbox"))
    lab.open("heavy.ipynb")
    lab.run_all()
    expect(lab.output(0)).to_contain_text("the end")
    expect(lab.output(0).locator("img")).to_have_count(1)
    expect(lab.output(0).locator("td[rowspan]")).to_have_count(11)
    expect(lab.output(0)).not_to_contain_text("was not shown")
    # A frame is drawn, and scripts go on.
    lab.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")


def test_the_receipt_and_the_error_of_a_cell_with_many_outputs_are_drawn(lab: LabPage) -> None:
    codes = [f"for i in range({count}): display(i)" for count in (60, 2500, 60)]
    lab.server.write_notebook(
        "many.ipynb", notebook_of(*map(code_cell, codes[:2]), code_cell(f"{codes[2]}\n1/0"), kernel="sandbox")
    )
    lab.open("many.ipynb")
    lab.run_all()
    for index in (0, 1):
        expect(lab.output(index).locator(".jp-SandboxReceipt")).to_have_count(1)
    expect(lab.output(2)).to_contain_text("ZeroDivisionError")
