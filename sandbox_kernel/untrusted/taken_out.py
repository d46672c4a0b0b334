"""Describes in words which parts of an HTML output are not shown."""

from __future__ import annotations

from collections.abc import Iterable

_KINDS = {
    "scripts": "script noscript template",
    "style sheets": "style link",
    "embedded pages": "iframe frame frameset object embed applet portal",
    "forms and buttons": "form input button select option textarea fieldset legend label datalist",
    "sound and video": "audio video source track",
    "drawings inside HTML (display them as SVG)": "svg",
    "MathML formulas": "math",
    "canvases": "canvas",
    "its start by itself (press play)": "autoplay",
}
_KIND_OF = {tag: kind for kind, tags in _KINDS.items() for tag in tags.split()}
#: Elements that are removed without a note, because their content is still shown.
_QUIET_NAMES = (
    "html body head article main header footer nav aside hgroup address font wbr optgroup big nobr time data output "
    "ruby rb rt rp rtc strike acronym dir title meta picture search meter"
)
_NOT_WORTH_A_WORD = frozenset(_QUIET_NAMES.split())
_MOST = 8


def is_worth_a_word(tag: str) -> bool:
    """Whether something is lost with the tags of an element, when its content is still shown."""
    return tag not in _NOT_WORTH_A_WORD


def in_words(tags: Iterable[str], handlers: Iterable[str], pictures: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the kinds of removed elements, and the names of removed event handlers, sorted, at most ``_MOST`` each.

    Args:
        tags: the names of removed elements.
        handlers: the names of removed event handlers.
        pictures: where removed pictures would come from: hosts, or words.

    """
    kinds = set()
    for tag in tags:
        if tag not in _NOT_WORTH_A_WORD:
            kinds.add(_KIND_OF.get(tag, f"<{tag}>"))
    names = sorted(set(handlers))
    actions = (
        [f"reactions to events ({', '.join(names[:_MOST])}{', …' if len(names) > _MOST else ''})"] if names else []
    )
    places = sorted(set(pictures))
    loaded = [f"pictures from {', '.join(places[:_MOST])}{', …' if len(places) > _MOST else ''}"] if places else []
    return (*sorted(kinds)[:_MOST], *loaded, *actions)
