"""A formula draws and does nothing else, whatever page or program reads it next."""

import re
import sys
from pathlib import Path

import pytest

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.html import _with_formulas, clean_html
from sandbox_kernel.untrusted.sanitize import MAX_WORK, sanitize_bundle
from sandbox_kernel.untrusted.tex import COMMANDS, MAX_DELIMITERS, check_latex, defused
from tests.conftest import need

ACTING = [
    "\\href{javascript:1}{x}", "\\class{jp-Dialog}{x}", "\\style{position:fixed}{x}", "\\cssId{main}{x}", "\\def\\a{b}",
    "\\gdef\\frac{y}", "\\newcommand{\\x}{y}", "\\definecolor{red}{RGB}{0,200,0}", "\\require{html}", "\\label{eq:one}", "\\ref{a}",
    "\\fcolorbox{red;position:fixed}{red}{x}", "\\color{red;x:y}{a}", "\\unicode[x]{65}", "\\bbox[x]{y}", "\\mmlToken{mi}[a=b]{x}",
    "\\raise500em{x}", "\\kern-500em", "\\llap{x}", "\\rule{9em}{9em}", "\\hspace{-500em}", "\\\\[-500em]", "^^5chref{x}{y}",
    "\\input{/etc/passwd}", "\\write18{x}", "\\csname href\\endcsname", "\\begin{filecontents}{x}", "\\lstinputlisting{/etc/passwd}",
    "\\directlua{x}", "\\toggle{x}{y}\\endtoggle", "\\ce{\\href{x}{y}}", "\\setOptions{x}", "\\newcolumntype{x}{y}", "\\unheardof",
]  # fmt: skip


@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize("command", ACTING)
def test_a_command_that_does_more_than_draw_is_not_typeset(command: str) -> None:
    shown = sanitize_bundle({"text/latex": f"${command}$", "text/plain": "x"}, {})
    assert (shown.data, "is not typeset" in shown.removed[0]) == ({"text/plain": "x"}, True)
    # An element within ends the formula for a typesetter; the reader sees the source.
    html = clean_html(f"<p>a ${command}$ b</p>")[0]
    assert command not in html
    assert "<span>\\</span>" in html or "<span>^</span>" in html
    assert clean_html(f"<p>a $&#92;{command[1:]}$ b</p>")[0].count("<span>") >= html.count("<span>\\</span>") - 1
    assert command not in defused(command)
    assert command not in sanitize_bundle({"text/markdown": f"a ${command}$ b"}, {}).data["text/html"]


@pytest.mark.attack("O01", "kernel")
@pytest.mark.parametrize(
    "hidden", ["\\hr<x-y>ef{a}{b}", "\\hr<!-- -->ef{a}{b}", "\\hr<script>1</script>ef{a}{b}", "&bsol;href{a}{b}"]
)
def test_a_command_in_pieces_is_seen_whole(hidden: str) -> None:
    assert "<span>\\</span>href{a}{b}" in clean_html(f"<p>${hidden}$</p>")[0]


@pytest.mark.parametrize(
    "text",
    [
        "$\\displaystyle \\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}$",
        "$\\left[\\begin{matrix}1 & 2\\\\3 & 4\\end{matrix}\\right]$" * 40,
        "\\begin{align*} a &= b \\\\[2ex] \\textcolor{red}{c} &\\leq \\operatorname{sinc}(d) \\end{align*}",
        "$\\sum_{i=1}^{n} \\mathbb{E}\\left[X_i\\right] \\hspace{1em} \\text{for all } \\vec{v}, \\bra{\\psi}$",
        "a\\\\b",
    ],
)
def test_honest_formulas_pass(text: str) -> None:
    assert check_latex(text) == text


@pytest.mark.parametrize("sign", ["x", "\\alpha", "{}", "\\|", "\\LaTeX"])
def test_what_a_typesetter_draws_is_counted_whatever_it_is_written_with(sign: str) -> None:
    few = 450 if sign == "\\LaTeX" else 9000
    assert check_latex(f"${f'{sign} ' * few}$")
    with pytest.raises(ContentRefused, match=r"signs and commands|longer"):
        check_latex(f"${f'{sign} ' * 3 * few}$")
    work = sanitize_bundle({"text/latex": f"${f'{sign} ' * few}$"}, {}).work
    assert work <= MAX_WORK < 3 * work


def test_no_command_is_one_of_which_a_typesetter_makes_copies_of_what_it_is_given() -> None:
    # Nested thirty times, such a command (pmb) is drawn 2^30 times.
    macro = re.compile(r'(\w+):\["Macro",("(?:[^"\\]|\\.)*")')
    files = Path(sys.prefix, "share/jupyter/lab/static").glob("*.js")
    found = [each for file in files for each in macro.findall(file.read_text("utf-8"))]
    copied = {name for name, text in found for number in "123" if text.count(f"#{number}") > 1}
    need("pmb" in copied, "JupyterLab with MathJax 3 is not installed in this environment")
    assert not (copied | {"overbracket", "underbracket"}) & COMMANDS


def test_many_formulas_without_an_end_are_no_formulas() -> None:
    html = clean_html("${" * MAX_DELIMITERS)[0]
    assert html.count("<span>$</span>") == MAX_DELIMITERS
    assert clean_html("&dollar;{" * 1000)[0].count("<span>$</span>") == 1000
    with pytest.raises(ContentRefused, match="signs of formulas"):
        clean_html("$" * 50_000)
    tables = r"\begin{matrix}" * 30 + r"\end{matrix}" * 30
    arrows = [f"\\{name}{{" * 9 + "}" * 9 for name in ("xmapsto", "xLeftarrow", "xtofrom")]
    for deep in ("{" * 1000, r"\left(" * 30 + r"\right)" * 30, r"{\}" * 30, "{%}\n" * 30, tables, *arrows):
        with pytest.raises(ContentRefused, match="braces"):
            check_latex(deep)
    assert check_latex(arrows[0].replace("xmapsto", "xi ")) and check_latex(f"{arrows[0][:36]}x{'}' * 4}")


@pytest.mark.parametrize(("size", "fits"), [(100, True), (200, False)])
@pytest.mark.parametrize("row", [r"\\", r"\cr "])
def test_tables_of_formulas_have_a_bounded_number_of_places(size: int, fits: bool, row: str) -> None:
    table = r"\begin{matrix}" + "&" * size + f"{row}a" * size + r"\end{matrix}"
    if fits:
        assert check_latex(f"${table}$") == f"${table}$"
    else:
        with pytest.raises(ContentRefused, match="places"):
            check_latex(f"${table}$")
    assert ("<span>" not in clean_html(f"<p>$${table}$$</p>")[0]) == fits


def test_places_of_tables_count_as_work_of_the_page() -> None:
    table = r"$\begin{matrix}" + "&" * 100 + r"\\a" * 100 + r"\end{matrix}$"
    assert sanitize_bundle({"text/latex": table}, {}).work > 10_000


@pytest.mark.parametrize(
    "far", [r"\\[999em]", r"\\ [ 9.9pt ]", r"\genfrac{}{}{9pt}{}{n}{k}", r"\genfrac{(}{)}{}{}{n}{k}"]
)
def test_a_space_or_a_line_is_as_high_as_it_says_up_to_a_page(far: str) -> None:
    assert check_latex(f"${far}$") == f"${far}$"


@pytest.mark.parametrize(
    "far",
    [r"\\[9999em]", r"\\[ 0999em]", r"\above 9000pt", r"\abovewithdelims() 9000pt", r"\genfrac{}{}{9000pt}{}{n}{k}"],
)
def test_a_space_or_a_line_is_never_higher_than_a_page(far: str) -> None:
    with pytest.raises(ContentRefused):
        check_latex(f"${far}$")


@pytest.mark.parametrize("value", ["&gt; &quot; &#111;nload=x() ", "> &quot; onload=x() ", "&lt;i&gt; $y$ &quot; a=b"])
def test_formulas_are_looked_for_in_texts_and_never_in_the_value_of_an_attribute(value: str) -> None:
    # Older versions of nh3 write < and > in values as they are.
    html = f'<img alt="{value}">$x$<b>b</b>'
    assert _with_formulas(html).startswith(f'<img alt="{value}">')
