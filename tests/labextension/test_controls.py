"""Every control that the extension draws is in one table, so that a test can press them all."""

import re
from pathlib import Path

import pytest

from tests.browser.panel.pressed import pressable
from tests.labextension.conftest import STATIC, Evaluate

SOURCES = sorted(path for path in STATIC.glob("*.js") if path.name != "dom.js")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_control_is_drawn_that_no_table_names(source: Path) -> None:
    text = source.read_text()
    assert re.findall(r"(?:element|createElement)\(\s*'(?:button|summary|select|input|textarea|a)'", text) == []
    assert re.findall(r"(?:ok|warn)Button\(\{ label: '|okLabel: '", text) == []


def test_every_name_in_the_table_is_drawn(evaluate: Evaluate) -> None:
    names = evaluate("dom.js", "Object.keys(CONTROLS)")
    assert isinstance(names, list) and names
    assert {f"control {name}" for name in names} <= pressable()
    drawn = " ".join(path.read_text() for path in STATIC.glob("*.js"))
    made = set(re.findall(r"(?:control|button)\('([\w-]+)'", drawn))
    made |= {f"tab-{name}" for name in re.findall(r"name: '(\w+)', make:", drawn)}
    made |= {f"allow-{name}" for name in re.findall(r"how: '(\w+)', again:", drawn)}
    made |= set(re.findall(r"key: '(\w+)', hint:", drawn))
    assert made == set(names)
