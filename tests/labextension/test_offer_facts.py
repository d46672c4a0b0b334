"""The buttons of an offer send lines that are made of what the user sees, whatever a notebook file holds."""

import pytest

from tests.labextension.conftest import Evaluate


def offer(what: object, kind: str = "domain", session: str = "") -> dict[str, object]:
    lines = {"once": "%sandbox --policy none", "session": f"%sandbox allow x{session}", "never": "import os"}
    return {"kind": kind, "what": what, "once_means": "Gone after it.", "lines": lines}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (offer("example.org"), "example.org"),
        (offer("example.org:8443"), "example.org:8443"),
        (offer("data/a b.csv", "file"), "'data/a b.csv'"),
        (offer("it's.csv", "file"), "'./it'\"'\"'s.csv'"),
        (offer("sales.csv", "file"), "./sales.csv"),
    ],
)
def test_lines_are_made_here_and_never_taken_from_the_file(evaluate: Evaluate, given: object, word: str) -> None:
    (read,) = evaluate("permission-prompts.js", "readOffers({offers: values})", given)  # type: ignore[misc,attr-defined]
    assert read["lines"] == {  # type: ignore[index]
        "once": f"%sandbox allow once {word}",
        "session": f"%sandbox allow {word}",
        "never": f"%sandbox never {word}",
        **({"folder": "%sandbox restart --keep --here"} if given["kind"] == "file" else {}),  # type: ignore[index]
    }


def test_the_sentence_of_an_offer_names_the_domain_of_its_buttons(evaluate: Evaluate) -> None:
    given = {**offer("evil.org"), "sentence": "The program wanted to reach good.org."}
    (read,) = evaluate("permission-prompts.js", "readOffers({offers: values})", given)  # type: ignore[misc,attr-defined]
    assert "good.org" not in str(read)
    assert read["before"] + read["what"] + read["after"] == "The program wanted to reach evil.org."  # type: ignore[index]


def test_a_named_session_is_kept(evaluate: Evaluate) -> None:
    (read,) = evaluate(
        "permission-prompts.js", "readOffers({offers: values})", offer("a.org", session=" --session web")
    )  # type: ignore[misc,attr-defined]
    assert read["lines"]["session"] == "%sandbox allow a.org --session web"  # type: ignore[index]


@pytest.mark.parametrize(
    "given",
    [
        *(None, 5, {}, offer(""), offer("a\n%sandbox reset"), offer("a\u202eb"), offer("x" * 500), offer("--mount")),
        *(offer("once"), offer("/etc"), offer(7), offer(" a.org")),
        *(offer(what, "package") for what in ("six -e .", "six --pre", "./six", "six.tar.gz", "a-1.0.WHL", "a;b")),
    ],
)
@pytest.mark.one_case
def test_what_cannot_be_shown_as_it_is_is_not_offered(evaluate: Evaluate, given: object) -> None:
    assert evaluate("permission-prompts.js", "readOffers({offers: values})", given) == []
