"""A test that needs a second try in two commits in a row is named, for each part of CI."""

from pathlib import Path

import pytest

from tests.second_tries import commit, record


def test_a_second_try_in_two_commits_in_a_row_is_named_however_often_each_ran(tmp_path: Path) -> None:
    assert record({"a", "b"}, tmp_path, "one") == []
    assert record({"b", "c"}, tmp_path, "one") == [], "the same commit again is not two in a row"
    assert record({"c"}, tmp_path, "two") == ["c"]
    assert record({"c"}, tmp_path, "two") == ["c"], "a second run does not forget the commit before"
    assert record(set(), tmp_path, "two") == []
    assert record({"c"}, tmp_path, "three") == ["c"], "the first run of the commit before needed it"
    assert record(set(), tmp_path, "four") == []
    assert record({"c"}, tmp_path, "five") == [], "the commit between them did not need one"


def test_each_part_has_a_record_of_its_own(tmp_path: Path) -> None:
    record({"a"}, tmp_path, "one", "all")
    record(set(), tmp_path, "one", "ordinary-user")
    assert record({"a"}, tmp_path, "two", "ordinary-user") == []
    assert record({"a"}, tmp_path, "two", "all") == ["a"]


def test_a_copy_without_a_repository_is_told_its_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SANDBOX_KERNEL_COMMIT", "abc")
    assert commit() == "abc"
