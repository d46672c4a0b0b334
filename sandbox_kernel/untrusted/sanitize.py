"""Cleans displays: takes a MIME bundle from a sandbox and returns one that a page may show. All displays pass here.

The input is hostile: any value may have any type. The only markup that a page gets is HTML and SVG that were written
anew here, and checked LaTeX; Markdown is converted to HTML. Every check takes time linear in its input, and input that
would take more than a fraction of a second is refused. ``removed`` lists what is not shown; a bundle of which nothing
is left becomes one line of text that says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from sandbox_kernel.receipt import unmarked
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.ansi import MAX_TURNS, few_colours, only_colours, turns
from sandbox_kernel.untrusted.json_value import check_json
from sandbox_kernel.untrusted.media import IMAGE_TYPES, MAX_SIDE, check_image, picture_work, pictures_work
from sandbox_kernel.untrusted.tex import MAX_TOKENS, TAG, check_latex, places, tokens, tokens_of_formulas
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import encodable

MAX_TEXT = 1 << 20
MAX_TYPES = 32
#: Most characters of all lines of one error.
MAX_ERROR = 256 << 10
#: Most characters of one form of a docstring, and of all its forms.
MAX_DOCSTRING, _MAX_FORMS = 256 << 10, 1 << 20
#: The most work of a page with all displays of one cell.
MAX_WORK = 400_000
#: The work for a box that may scroll, which is drawn apart.
_SCROLLER = 100
#: The work for a letter beyond ASCII at its first place, which may need a font; and how many are usual.
_STRANGE, _USUAL = 20, 500
#: How many letters of text are as much work as an element: each may be a line.
_LETTERS = 8
#: The work for a sign of a formula: all formulas of a cell may have as many signs as one.
_SIGN = MAX_WORK // MAX_TOKENS
#: Most characters of JSON that a page shows unfolded, and the work for each value of its tree.
_MOST_UNFOLDED, _VALUE = 20_000, 20
_SCRIPTS = "scripts of a sandbox do not run in the page"
_PAGE = "it would run in the page, with the rights of the page"
_OTHER = "it is not of a type that is shown; text, tables, pictures, SVG and HTML are"
#: What the types are called that a page gets, cleaned; and those that it never gets, with the reason.
_NAMES = {
    "text/plain": "text",
    "text/html": "HTML",
    "text/markdown": "Markdown",
    "text/latex": "LaTeX",
    "application/json": "JSON",
    "image/svg+xml": "an SVG drawing",
    "image/png": "a PNG picture",
    "image/jpeg": "a JPEG picture",
    "image/gif": "a GIF picture",
    "image/webp": "a WebP picture",
}
_NEVER = {
    **dict.fromkeys(
        ("application/javascript", "text/javascript", "application/x-javascript"), ("JavaScript", _SCRIPTS)
    ),
    "application/vnd.jupyter.widget-view+json": ("a widget", _PAGE),
    "application/vnd.jupyter.widget-state+json": ("the state of widgets", _PAGE),
}
#: Tags between which text is a block of its own.
_BLOCK = re.compile(r"</?(?:p|div|td|th|li|dt|dd|h[1-6]|pre|blockquote|caption|table|ul|ol|dl)\b[^>]*>")
#: The text that IPython sends for objects without a text form.
_NO_TEXT = re.compile(r"<IPython\.core\.display\.\w+ object>\Z")


@dataclass(frozen=True)
class SanitizedBundle:
    """A bundle that is safe to publish. ``removed`` describes in words what was left out."""

    data: Mapping[str, object]
    metadata: Mapping[str, object]
    removed: tuple[str, ...] = ()
    #: The work of its drawing, in simple shapes.
    drawn: int = 0

    @property
    def work(self) -> int:
        """About how many elements, shapes, colours and commands of formulas a page draws; frames count nothing."""
        if any(mime.startswith("application/vnd.sandbox-kernel.") for mime in self.data):
            return 0
        texts = {mime: text for mime, text in self.data.items() if isinstance(text, str)}
        latex, html, one = texts.get("text/latex", ""), texts.get("text/html", ""), "".join(texts.values())
        signs = (tokens(latex) if latex else 0) + tokens_of_formulas(html)
        drawn = one.count("<") + one.count("\x1b") + _SCROLLER * html.count("overflow")
        laid_out = (sum(map(len, TAG.split(html)[::2])) if html else len(texts.get("text/plain", ""))) // _LETTERS
        if not one.isascii():
            turned = sum(_turned(mime, text) for mime, text in texts.items())
            laid_out = max(laid_out, turned * MAX_WORK // MAX_TURNS**2)
            drawn += _STRANGE * max(0, len({letter for letter in set(one) if letter > "\x7f"}) - _USUAL)
        table = places(latex) + (places(html) if signs else 0)
        return self.drawn + _SIGN * signs + table + drawn + laid_out


def sanitize_bundle(data: object, metadata: object) -> SanitizedBundle:
    """Clean each representation of a bundle. Never raises, whatever the input is."""
    if not isinstance(data, Mapping):
        why = "an output was not shown: it is no MIME bundle"
        return SanitizedBundle({"text/plain": f"[{why}]"}, {}, (why,))
    removed: list[str] = []
    kept: dict[str, object] = {}
    drawn = 0
    seen: set[str] = set()
    for number, (mime, value) in enumerate(data.items()):
        if number >= MAX_TYPES:
            removed.append(f"{len(data) - MAX_TYPES} more forms of an output were not shown: {MAX_TYPES} are enough")
            break
        name = _name(mime)
        if name in seen:  # the same type in other upper and lower case
            continue
        seen.add(name)
        try:
            clean, taken, work = _clean(name, value)
            drawn += work
        except ContentRefused as reason:
            if name not in _READABLE or "text/html" not in data:
                # Beside HTML a page shows neither LaTeX nor Markdown; R sends all three for every value.
                removed.append(f"{_in_words(name)} was not shown: {reason}")
            if name in _READABLE and isinstance(value, str) and _says_nothing(kept.get("text/plain")):
                kept["text/plain"] = safe_text(value)  # its source
            continue
        if taken:
            removed.append(f"{_in_words(name)} was shown without {', '.join(taken)}")
        if name == "text/markdown":
            # If the output has HTML too, that is kept: a page would prefer it to Markdown.
            kept.setdefault("text/html", clean)
        elif not (name == "text/plain" and name in kept and _says_nothing(clean)):
            kept[name] = clean
    if not kept and data:
        kept = {"text/plain": f"[{'; '.join(removed)}]"}
    return SanitizedBundle(kept, _metadata(metadata, kept), tuple(removed), drawn)


def sanitize_docstring(data: object) -> SanitizedBundle:
    """Clean a docstring from a session. The limit is lower than for outputs, as tooltips are short."""
    if isinstance(data, Mapping):
        short: dict[object, str] = {}
        left = _MAX_FORMS
        for mime, text in data.items():
            if isinstance(text, str) and len(text) <= min(MAX_DOCSTRING, left):
                short[mime] = text
                left -= len(text)
        data = short or {"text/plain": f"[not shown: it is no text, or longer than {MAX_DOCSTRING >> 10} KB]"}
    return sanitize_bundle(data, {})


#: Types whose source is shown as text when they are refused.
_READABLE = frozenset(("text/markdown", "text/latex"))


def _says_nothing(text: object) -> bool:
    return text is None or bool(_NO_TEXT.match(str(text)[:200]))


def _in_words(mime: str) -> str:
    return _NEVER[mime][0] if mime in _NEVER else _NAMES.get(mime, mime)


def safe_text(text: object, limit: int = MAX_TEXT) -> str:
    """Clean plain text: keep colours, remove other escape sequences and our mark, cut what is too long."""
    if not isinstance(text, str):
        raise ContentRefused(f"it is {type(text).__name__}, not text")
    if len(text) > limit:
        text = f"{text[:limit]}\n[… {len(text) - limit} more characters are not shown]"
    # Markdown, into which notebooks are converted, ends lines at a return too, and with them the indented text.
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return unmarked(only_colours(encodable(text)))


def safe_lines(lines: Sequence[str], limit: int) -> list[str]:
    """Clean the lines of one error; together they have a bound."""
    kept: list[str] = []
    left = MAX_ERROR
    for line in lines:
        if left <= 0:
            kept.append("[… the rest of the error is not shown]")
            break
        kept.append(safe_text(line, min(limit, left)))
        # A line costs a page more than a letter: an error may have fewer than ``MAX_LINES``.
        left -= min(limit, len(line)) + 3 * line.count("\n", 0, limit)
    return few_colours(kept)


def _name(mime: object) -> str:
    """Return a MIME type that is safe to print; a fixed text for anything that cannot be a MIME type."""
    if not isinstance(mime, str) or len(mime) > 100 or not mime.isascii() or not mime.isprintable():
        return "an output of an unreadable type"
    return mime.lower()


def joined(value: object) -> object:
    """Return a text that nbformat allows as a list of lines."""
    is_lines = isinstance(value, list) and len(value) <= 1_000_000 and all(isinstance(line, str) for line in value)
    return "".join(value) if isinstance(value, list) and is_lines else value


def _clean(mime: str, value: object) -> tuple[object, tuple[str, ...], int]:
    """Return what is shown of a value, what was taken out, and the work of drawing it beside its elements."""
    if mime == "application/json":
        written = json.dumps(check_json(value), ensure_ascii=False)
        if turns(written) > MAX_TURNS:
            raise ContentRefused(f"its direction of writing changes more than {MAX_TURNS} times")
        values = sum(map(written.count, ",[{"))  # of a folded tree the first hundred are drawn, and one for a hundred
        shown = values if len(written) <= _MOST_UNFOLDED else min(values, 100 + values // 100)
        return json.loads(unmarked(written)), (), _VALUE * shown
    if mime not in _NAMES:
        raise ContentRefused(_NEVER.get(mime, ("", _OTHER))[1])
    value = joined(value)
    if not isinstance(value, str):
        raise ContentRefused(f"it is {type(value).__name__}, not text")
    if mime in IMAGE_TYPES:
        picture = check_image(mime, value)
        return picture, (), picture_work(mime, picture)
    try:
        clean, taken, work = _clean_text(mime, encodable(value))
    except ContentRefused:
        raise
    except Exception as error:  # a library that does not cope with it must not end the cell
        raise ContentRefused(f"it could not be checked ({type(error).__name__})") from None
    if mime != "text/plain" and _turned(mime, clean) > MAX_TURNS**2:
        raise ContentRefused(f"its direction of writing changes more than {MAX_TURNS} times")
    return unmarked(clean), taken, work  # the last step: references and escapes of characters are resolved


def _turned(mime: str, text: str) -> int:
    """Return the squared changes of direction of each block of a text: a page lays out each by itself."""
    if text.isascii():
        return 0
    # A style can join blocks.
    blocks = _BLOCK.split(text) if mime in ("text/html", "text/markdown") and "display" not in text else [text]
    return sum(turns(block) ** 2 for block in blocks)


def _clean_text(mime: str, text: str) -> tuple[str, tuple[str, ...], int]:
    """Clean a text of one of ``_NAMES``. Parsers (nh3 and others) are loaded by the first cell that needs them."""
    if mime == "text/html":
        from sandbox_kernel.untrusted.html import clean_html

        clean, taken = clean_html(text)
        return clean, taken, pictures_work(clean)
    if mime == "text/markdown":
        from sandbox_kernel.untrusted.markdown import markdown_to_html

        clean, taken = markdown_to_html(text)
        return clean, taken, pictures_work(clean)
    if mime == "image/svg+xml":
        from sandbox_kernel.untrusted.svg import clean_svg

        clean, work = clean_svg(text)
        return clean, (), work
    return check_latex(text) if mime == "text/latex" else safe_text(text), (), 0


def _metadata(metadata: object, kept: Mapping[str, object]) -> dict[str, object]:
    """Return the sizes and backgrounds of pictures, and how JSON is folded; all other metadata is dropped."""
    if not isinstance(metadata, Mapping):
        return {}
    result: dict[str, object] = {}
    for mime in kept:
        entry = metadata.get(mime)
        if not isinstance(entry, Mapping):
            continue
        fields: dict[str, object] = {}
        if mime == "application/json":
            # A page draws every value of an unfolded tree at once.
            if isinstance(entry.get("expanded"), bool) and len(json.dumps(kept[mime])) <= _MOST_UNFOLDED:
                fields["expanded"] = entry["expanded"]
            if isinstance(root := entry.get("root"), str):
                fields["root"] = unmarked(encodable(root[:200]))
        elif not mime.startswith("image/"):
            continue
        for side in ("width", "height"):
            number = entry.get(side)
            if isinstance(number, int | float) and not isinstance(number, bool) and 0 < number <= MAX_SIDE:
                fields[side] = number
        if entry.get("needs_background") in ("light", "dark"):
            fields["needs_background"] = entry["needs_background"]
        if fields:
            result[mime] = fields
    return result
