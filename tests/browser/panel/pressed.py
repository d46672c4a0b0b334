"""What there is to press in the page, read from the code that draws it, and what a test has pressed of it."""

import ast
import inspect
import json
import re
from pathlib import Path

from sandbox_kernel.model import NoteKind, notes
from tests.browser.lab_page import LabPage

REPOSITORY = Path(__file__).resolve().parents[3]
EXTENSION = REPOSITORY / "labextension"

#: Writes down every press, by pointer or keys. Entries of the palette that are chosen by keys are no clicks: those that
#: the palette sends carry ``isPalette``.
_RECORD = """() => {
    window.pressed = new Set();
    const note = (kind, name) => name && window.pressed.add(`${kind} ${name}`);
    const command = (node) => node?.dataset.command?.replace('sandbox-kernel:', '');
    const press = ({ target, type, key }) => {
        if (type === 'keydown' && key !== 'Enter' && key !== ' ') return;
        note('control', target.closest('[data-control]')?.dataset.control);
        note('toolbar', command(target.closest('.jp-NotebookPanel-toolbar [data-command^="sandbox-kernel:"]')));
        note('cell', command(target.closest('.jp-cell-toolbar [data-command^="sandbox-kernel:"]')));
        note('menu', command(target.closest('.lm-Menu-item[data-command^="sandbox-kernel:"]')));
        note('dialog', target.closest('.jp-Dialog-button')?.textContent);
        note('widget', target.closest('button.jupyter-button')?.textContent);
    };
    // A button of the toolbar acts when it is pressed down: its dialog may lie above it before the pointer is let go.
    for (const kind of ['pointerdown', 'click', 'keydown', 'input', 'pointerup']) document.addEventListener(kind, press, true);
    window.jupyterapp.commands.commandExecuted.connect((_commands, { id, args }) => {
        if (args.isPalette && id.startsWith('sandbox-kernel:')) note('palette', id.replace('sandbox-kernel:', ''));
    });
}"""


def record(lab: LabPage) -> None:
    """Begin to write down what is pressed in this page."""
    lab.page.evaluate(_RECORD)


def pressed(lab: LabPage) -> set[str]:
    """What was pressed since, each as ``control apply-all``, ``menu undo``, ``dialog Drop``, ``widget Stop``."""
    return set(lab.page.evaluate("() => [...window.pressed]"))


def pressable() -> set[str]:
    """Everything that can be pressed: commands where they stand, controls, buttons of dialogs and of widgets."""
    return _commands() | _controls() | _widgets()


def _commands() -> set[str]:
    schema = json.loads((EXTENSION / "schemas" / "sandbox-kernel" / "commands.json").read_text())
    toolbars, menus = schema["jupyter.lab.toolbars"], schema["jupyter.lab.menus"]
    (submenu,) = (item["submenu"] for item in menus["main"][0]["items"] if "submenu" in item)
    table = _table("plugins.js", "const COMMANDS = [")
    entries = [item for item in [*submenu["items"], *menus["context"]] if "command" in item]
    placed = {"toolbar": toolbars["Notebook"], "cell": toolbars["Cell"], "menu": entries}
    named = {f"{place} {item['command'].split(':')[1]}" for place, items in placed.items() for item in items}
    return named | {f"palette {name}" for name in re.findall(r"name: '(\w+)'", table)}


def _controls() -> set[str]:
    controls = re.findall(r"^  '?([\w-]+)'?: ", _table("dom.js", "export const CONTROLS = {"), re.MULTILINE)
    dialogs = re.findall(r": '(.+)'", _table("dom.js", "export const DIALOG_BUTTONS = {"))
    return {f"control {name}" for name in controls} | {f"dialog {words}" for words in dialogs}


def _table(source: str, beginning: str) -> str:
    text = (EXTENSION / "static" / source).read_text()
    assert beginning in text
    return text.split(beginning, 1)[1].split("\n}" if beginning.endswith("{") else "\n]", 1)[0]


def _widgets() -> set[str]:
    found = set()
    for path in (REPOSITORY / "sandbox_kernel").rglob("*.py"):
        found |= set(re.findall(r"ipywidgets\.Button\(description=\"([^\"]+)\"", path.read_text()))
    return {f"widget {words}" for words in found}


def hint_makers() -> set[str]:
    """What writes a hint, or tells why there is no network: functions, and names of fixed words."""
    kinds = {NoteKind.HINT.name, NoteKind.NETWORK.name, NoteKind.NO_NETWORK.name}
    found = set()
    for made in ast.parse(inspect.getsource(notes)).body:
        if any(isinstance(node, ast.Attribute) and node.attr in kinds for node in ast.walk(made)):
            if isinstance(made, ast.FunctionDef):
                found.add(made.name)
            elif isinstance(made, ast.Assign) and isinstance(made.targets[0], ast.Name):
                found.add(made.targets[0].id)
    return found
