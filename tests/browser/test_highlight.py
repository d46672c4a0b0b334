"""Cells are coloured by the language of their %%sandbox line, checked by the colour of a keyword on the page."""

import pytest

from tests.browser.lab_page import LabPage, code_cell, notebook_of

pytestmark = pytest.mark.browser

#: What stands after %%sandbox, a program, a keyword in it.
SAMPLES = [
    ("python", "def f():\n    return 1", "return"),
    ("js", "const a = 1;", "const"),
    ("ts", "interface A { b: string }", "interface"),
    ("rust --timeout 5s", 'fn main() { println!("hi"); }', "fn"),
    ("c --mount /data/*:/data", "int main(void) { return 0; }", "return"),
    ("c++", "class A { public: int b; };", "class"),
    ("zig", "pub fn main() void { return; }", "fn"),
    ("go", "package main\nfunc main() {}", "func"),
    ("ruby", "def f\n  1\nend", "def"),
    ("lua --stdin 'it", "local x = 1", "local"),
    ("r", "f <- function(x) x", "function"),
    ("perl", "if ($x) { print 1; }", "if"),
    ("php", "<?php function f() { return 1; }", "function"),
    ("sql", "SELECT 1;", "SELECT"),
    ("bash", "if true; then echo hi; fi", "then"),
    ("wat", '(module (func (export "f")))', "func"),
]


def test_every_language_is_drawn_with_its_own_keywords(lab: LabPage) -> None:
    cells = [code_cell(f"%%sandbox {name}\n{code}") for name, code, _ in SAMPLES]
    lab.server.write_notebook("languages.ipynb", notebook_of(*cells))
    lab.open("languages.ipynb")
    keyword = lab.theme_colour("--jp-mirror-editor-keyword-color")
    for index, (_, _, word) in enumerate(SAMPLES):
        lab.cell(index).scroll_into_view_if_needed()
        lab.wait_for_colour(index, word, keyword)
    lab.cell(0).scroll_into_view_if_needed()
    lab.screenshot("highlighting")


def test_the_colours_follow_the_language_while_it_is_typed_and_go_with_the_magic(lab: LabPage) -> None:
    lab.server.write_notebook("typing.ipynb", notebook_of(code_cell("def fn(): pass")))
    lab.open("typing.ipynb")
    keyword = lab.theme_colour("--jp-mirror-editor-keyword-color")
    lab.wait_for_colour(0, "def", keyword)
    for source, word in (
        ("%%sandbox rust\nfn def", "fn"),
        ("%%sandbox python\ndef fn", "def"),
        ("import fn", "import"),
    ):
        lab.edit_cell(0, source)
        lab.wait_for_colour(0, word, keyword)


def test_an_unknown_language_and_the_magic_line_have_no_keywords(lab: LabPage) -> None:
    lab.server.write_notebook("unknown.ipynb", notebook_of(code_cell("%%sandbox klingon import\nimport import")))
    lab.open("unknown.ipynb")
    lab.wait_for_colour(0, "%%sandbox", lab.theme_colour("--jp-mirror-editor-meta-color"))
    assert lab.cell(0).locator(".cm-line").nth(1).locator("span").count() == 0


def test_a_restarted_kernel_leaves_the_colours(lab: LabPage) -> None:
    lab.server.write_notebook("restart.ipynb", notebook_of(code_cell("%%sandbox rust\nfn main() {}")))
    lab.open("restart.ipynb")
    lab.restart_kernel()
    lab.wait_for_colour(0, "fn", lab.theme_colour("--jp-mirror-editor-keyword-color"))
