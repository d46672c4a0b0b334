"""What the side panel makes of a reply: everything in it may come from inside a sandbox."""

from typing import Any

from tests.labextension.conftest import Evaluate


def node(number: int, parent: int | None, **more: object) -> dict[str, object]:
    told = {"number": number, "code": f"cell {number}", "alive": True, "cell": f"c{number}"}
    return {"id": number, "parent": parent, **told, **more}


def tree(evaluate: Evaluate, *nodes: object) -> list[dict[str, Any]]:
    found = evaluate("panel-facts.js", "readTree({nodes: values})", *nodes)
    assert isinstance(found, dict)
    listed: list[dict[str, Any]] = found["nodes"]
    return listed


def test_the_line_of_the_present_goes_straight_down_and_branches_stand_beside_it(evaluate: Evaluate) -> None:
    nodes = tree(evaluate, node(0, None), node(1, 0), node(2, 1), node(3, 1, present=True), node(4, 2))
    assert [(one["id"], one["depth"], one["past"]) for one in nodes] == [
        (0, 0, False),
        (1, 0, False),
        (2, 1, True),
        (4, 1, True),
        (3, 0, False),
    ]
    assert [sorted((rail["column"], rail["part"]) for rail in one["rails"]) for one in nodes] == [
        [(0, "down")],
        [(0, "down"), (0, "up")],
        [(0, "branch"), (0, "through"), (1, "down")],
        [(0, "through"), (1, "up")],
        [(0, "up")],
    ]
    past = evaluate("panel-facts.js", "[...pastCells(readTree({nodes: values})).keys()]", *(
        (node(0, None), node(1, 0, present=True), node(2, 1))
    ))  # fmt: skip
    assert past == ["c2 2"]


def test_a_tree_that_no_kernel_would_send_ends_the_walk(evaluate: Evaluate) -> None:
    circle = tree(evaluate, node(1, 2, present=True), node(2, 1), None, "x", {"id": "1"}, node(5, 5))
    assert [one["id"] for one in circle] == [5]


def test_texts_are_cut_and_invisible_characters_replaced(evaluate: Evaluate) -> None:
    (one,) = tree(evaluate, node(1, None, code="x" * 9000 + "\u202e", added=["a\u202eb", 5, "c"], files="no"))
    assert len(one["label"]) < 500
    assert one["changes"] == ["+a\ufffdb", "+c"]
    lines = evaluate("panel-facts.js", "diffLines(values[0])", "+a\u202e\n" + "-b\n" * 5000)
    assert isinstance(lines, list)
    assert lines[0] == {"kind": "add", "text": "+a\ufffd"}
    assert len(lines) == 2001


def test_only_pictures_that_the_kernel_checks_become_pictures(evaluate: Evaluate) -> None:
    for text in (
        "javascript:alert(1)",
        "data:text/html;base64,aaaa",
        "data:image/svg+xml;base64,aaaa",
        "https://x/y.png",
        5,
    ):
        assert evaluate("panel-facts.js", "pictureUrl(values[0])", text) == ""
    assert evaluate("panel-facts.js", "pictureUrl(values[0])", "data:image/png;base64,aa+/=")


def test_no_two_files_look_the_same_in_the_list_of_changes(evaluate: Evaluate) -> None:
    paths = ["a b", "a\nb", "a\x1bb", "a\u202eb", "a\tb", "a\\nb", "a\\x0ab"]
    paths += ["a  b", " a b", "a b ", "a\xa0b", "a\xadb", "a\u3164b", "a\u2800b", "a\U000e0041b", "a\ufe0fb", "ab"]
    shown = evaluate("panel-facts.js", "values.map(pathText)", *paths)
    assert isinstance(shown, list) and len(set(shown)) == len(paths)
    assert shown[:3] == ["a b", "a\\x0ab", "a\\x1bb"]


def test_a_folder_does_not_look_like_an_empty_file(evaluate: Evaluate) -> None:
    changes = [{"path": "a", "kind": "created", "type": "directory"}, {"path": "b", "kind": "created", "type": "file"}]
    shown = evaluate(
        "panel-facts.js", "readChanges({here: '/x', changes: values}).changes.map((one) => one.shown)", *changes
    )
    assert shown == ["a/", "b"]


def test_what_is_not_text_is_a_remark_and_no_line_of_a_diff(evaluate: Evaluate) -> None:
    lines = evaluate("panel-facts.js", "diffLines(values[0])", "# a.bin: modified, not shown as text, 7 bytes\n")
    assert lines == [{"kind": "remark", "text": "a.bin: modified, not shown as text, 7 bytes"}]


def test_the_report_names_its_walls_in_plain_words(evaluate: Evaluate) -> None:
    report = {"isolation": "process+sandbox", "backend": "process", "lines": []}
    assert evaluate("panel-facts.js", "readReport({report: values[0]}).isolation", report) == "isolated process"


def test_more_is_offered_to_a_running_cell_where_a_limit_is_near_and_can_be_lifted(evaluate: Evaluate) -> None:
    def offered(**known: object) -> object:
        calm = {"elapsed_s": 10, "timeout_s": 30, "memory_bytes": 10 << 20, "memory_limit_bytes": 100 << 20}
        asked = {**calm, "more_s": 30, "more_bytes": 100 << 20, **known}
        return evaluate("panel-facts.js", "readProgress(values[0]).more", asked)

    assert offered() is None
    time = {"what": "time", "text": "The time is nearly over. Give 30 s more"}
    assert offered(elapsed_s=23) == time
    memory = {"what": "memory", "text": "The memory is nearly used up. Give 100 MB more"}
    assert offered(elapsed_s=23, memory_bytes=80 << 20) == memory
    assert offered(elapsed_s=23, memory_bytes=80 << 20, more_bytes=0) == time
    assert offered(elapsed_s=23, more_s=0) is offered(elapsed_s=29, more_s="30") is None
