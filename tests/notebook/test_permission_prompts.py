"""Offers of rights: what a cell lacked, as buttons, as lines to type, and never more than that."""

from __future__ import annotations

import shlex

import pytest

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import ExecResult, Violation, notes
from sandbox_kernel.model.notes import Wanted, WantedKind
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import new_defaults, parse_line, parse_wanted, written
from sandbox_kernel.notebook.permission_prompts import (
    MIME,
    MOST_OFFERS,
    OfferAnswer,
    bundle,
    offers_of,
)
from sandbox_kernel.untrusted.sanitize import sanitize_bundle


def domain(name: str) -> Wanted:
    return Wanted(WantedKind.DOMAIN, name)


def file(path: str) -> Wanted:
    return Wanted(WantedKind.FILE, path)


def refused(subject: str, rule: str = "domain_not_allowed") -> Violation:
    return Violation(rule=rule, subject=subject, reason="it is not on the allow list")


def test_what_a_cell_lacked_is_offered_once_each() -> None:
    result = ExecResult(
        violations=(refused("a.test:443"), refused("b.test:8443", "port_not_allowed"), refused("a.test:80")),
        notes=(notes.no_network("a.test"), notes.hint_file("", "data/x.csv", "you")),
    )
    assert [offer.wanted for offer in offers_of(result)] == [
        domain("a.test"),
        domain("b.test:8443"),
        file("data/x.csv"),
    ]
    assert domain("a.test") not in [offer.wanted for offer in offers_of(result, {domain("a.test")})]


def test_what_cannot_be_given_is_not_offered() -> None:
    secret, outside = notes.hint_file("", ".env", "you"), notes.hint_file("", "../x", "you")
    private = refused("10.0.0.1:80", "private_ip_blocked")
    assert offers_of(ExecResult(notes=(secret, outside, notes.no_network()), violations=(private,))) == ()


def test_a_program_that_tries_many_hosts_gets_few_buttons() -> None:
    assert len(offers_of(ExecResult(violations=tuple(refused(f"a{n}.test:443") for n in range(99))))) == MOST_OFFERS


@pytest.mark.parametrize(
    "wanted", [domain("a.test"), domain("b.test:8443"), file("data/a b.csv"), file("x.csv"), file("it's/<b>.csv")]
)
def test_every_line_of_an_offer_means_what_its_button_says(wanted: Wanted) -> None:
    (offer,) = offers_of(ExecResult(notes=(notes.Note("x", wanted=wanted),)))
    for answer in OfferAnswer:
        assert shlex.split(offer.line(answer))[0] == "%sandbox"
        command = parse_line(offer.line(answer).removeprefix("%sandbox"))
        assert command.wanted == wanted
        assert (command.name, command.once) == ("never" if answer == "never" else "allow", answer == "once")
    assert parse_wanted(written(wanted), "allow") == wanted


def test_a_domain_for_the_session_is_added_to_the_defaults_and_one_for_a_cell_is_not() -> None:
    had = parse_line("--allow-net a.test").options
    assert new_defaults(parse_line("allow b.test:8443"), had).words() == "--allow-net a.test --allow-net b.test:8443"
    for line in ("allow once b.test", "never b.test", "allow ./data", "allow b.test --session web"):
        assert new_defaults(parse_line(line), had) == had


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("allow", "needs a domain or a path"),
        ("allow once", "needs a domain or a path"),
        ("never --session x", "needs a domain or a path"),
        ("allow a.test b.test", "b.test"),
        ("allow a.test --timeout 5s", "one domain or path"),
        ("allow https://a.test/x", "a.test"),
        ("allow ../secret", "not inside the notebook's folder"),
        ("allow /etc/passwd", "not inside the notebook's folder"),
        ("allow data_folder!", "./NAME"),
    ],
)
def test_a_line_that_names_no_right_is_refused_with_what_works(line: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words.replace(".", r"\.")):
        parse_line(line)


def test_a_page_without_buttons_shows_the_lines_as_text() -> None:
    made = bundle(offers_of(ExecResult(notes=(notes.Note("x", wanted=file("<b>/$x$.csv")),))))
    assert "<b>/" not in str(made["text/html"]) and "mathjax_ignore" in str(made["text/html"])
    assert "%sandbox allow once" in str(made["text/plain"])
    (offer,) = made[MIME]["offers"]  # type: ignore[index]
    assert offer["kind"] == "file" and set(offer["lines"]) == {"once", "session", "never"}


@pytest.mark.attack("O06", "kernel")
def test_a_program_cannot_show_buttons_of_its_own() -> None:
    forged = bundle(offers_of(ExecResult(notes=(notes.no_network("evil.test"),))))
    assert MIME not in sanitize_bundle(forged, {}).data


def test_options_reach_each_domain_once() -> None:
    assert CellOptions().reaching(["a.test", "a.test", "[2001:db8::1]:443"]).words() == (
        "--allow-net a.test --allow-net '[2001:db8::1]:443'"
    )
