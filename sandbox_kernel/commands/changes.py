"""``sandbox-kernel changes``: show, apply or drop what wrapped kernels changed in a folder (``wrap --here``)."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from dataclasses import asdict

from sandbox_kernel.commands.shared import say, show_patch
from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.wrapped.folder_changes import ChangesAnswer, ChangesAsked, ChangesPlace, Wish, ask, found_places


def add_changes_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``changes``."""
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="only these files, folders or patterns")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--diff", action="store_true", help="print them as a patch")
    what.add_argument("--apply", action="store_true", help="write them to the folder, all or none")
    what.add_argument("--discard", action="store_true", help="drop them")
    add("--folder", default=".", metavar="DIR", help="the folder that the kernel works on (this one)")
    add("--of", default="", metavar="NAME", help="the kernel, as the list names it, when several changed the folder")
    add("--all", action="store_true", help="list the changes to every folder")
    add("--json", action="store_true", help="print the list as JSON")


def changes(options: argparse.Namespace) -> int:
    """List the changes, or do what was asked with those of one kernel."""
    asks_one = options.diff or options.apply or options.discard
    if options.all and (asks_one or options.paths):
        raise InvalidRequest("--all only lists; give --folder DIR with --diff, --apply, --discard or a path")
    places = _places(options)
    if not asks_one:
        return _list(places, options)
    if not options.of:
        # What is applied is what was shown: no new look for it.
        look = Wish.KNOWN if options.apply else Wish.LIST
        places = [place for place in places if _is_changed(place, look)]
    if not places:
        raise InvalidRequest(f"no wrapped kernel changed {os.path.realpath(options.folder)!r}; see them all: --all")
    if len(places) > 1:
        names = ", ".join(_title(place) for place in places)
        raise InvalidRequest(f"{len(places)} kernels changed this folder; name one with --of: {names}")
    wish = Wish.PATCH if options.diff else Wish.APPLY if options.apply else Wish.DISCARD
    place = places[0]
    said = ask(place, ChangesAsked(wish, tuple(options.paths), place.shown))
    if said.digest:
        # Else the user knows no other state of all changes than before: that one alone is applied.
        place.note_shown(said.digest)
    if options.diff:
        show_patch(said.patch, sys.stdout)
        return 0
    done = "written to" if options.apply else "dropped; as before:"
    say(f"{len(said.changes)} {done} {place.facts.folder}", to=sys.stdout)
    _show(said)
    return 0


def _places(options: argparse.Namespace) -> list[ChangesPlace]:
    folder = os.path.realpath(os.path.expanduser(options.folder))
    found = [place for place in found_places() if options.all or place.facts.folder == folder]
    if not options.of:
        return found
    named = [place for place in found if options.of in (place.name, os.path.basename(place.facts.notebook))]
    if not named:
        known = ", ".join(_title(place) for place in found) or "none"
        raise InvalidRequest(f"there is no kernel {options.of!r} with changes to this folder; known: {known}")
    return named


def _is_changed(place: ChangesPlace, look: Wish) -> bool:
    """Whether a place has changes, or cannot say so: then it is not left out in silence."""
    try:
        return bool(ask(place, ChangesAsked(look)).changes)
    except SandboxError:
        return True


def _list(places: list[ChangesPlace], options: argparse.Namespace) -> int:
    facts: list[dict[str, object]] = []
    for place in places:
        own: dict[str, object] = {"name": place.name, **asdict(place.facts)}
        try:
            said = ask(place, ChangesAsked(Wish.LIST, tuple(options.paths)))
        except SandboxError as error:
            facts.append({**own, "problem": str(error)})
            if not options.json:
                say(f"{_title(place)}: {error}", to=sys.stdout)
            continue
        if not said.changes and not (options.all or options.of):
            continue
        facts.append({**own, "changes": [asdict(change) for change in said.changes], "left_out": list(said.left_out)})
        if said.changes and not options.json:
            say(f"{_title(place)}: {len(said.changes)} not written to {place.facts.folder}", to=sys.stdout)
            _show(said)
    if options.json:
        print(json.dumps(facts, indent=2))
    elif not any(each.get("changes") or "problem" in each for each in facts):
        say("nothing: every change of wrapped kernels is written or dropped", to=sys.stdout)
    return 0


def _title(place: ChangesPlace) -> str:
    of = os.path.basename(place.facts.notebook) or place.facts.program
    return f"{place.name} ({of})"


def _show(said: ChangesAnswer) -> None:
    for change in said.changes:
        say(f"  {change.kind} {display_name(change.path)}", to=sys.stdout)
    if said.left_out:  # a program chose the names: none of them is an option
        names = " ".join(shlex.quote(display_name(f"./{path}" if path[0] == "-" else path)) for path in said.left_out)
        say(f"  written only when they are named: sandbox-kernel changes --apply {names}", to=sys.stdout)
    if said.why:
        say(f"  {said.why}: sandbox-kernel changes --apply .", to=sys.stdout)
