"""SQL cells: tables, statements that are not cut at the wrong semicolon, and a database that stays."""

from sandbox_kernel import Sandbox, Status


def test_a_selection_is_a_table(box: Sandbox) -> None:
    code = "create table t (name, n);\ninsert into t values ('one', 1), ('fourteen', null);\nselect * from t;"
    assert box.run(code, "sql").stdout == "name      n\n--------  ----\none       1\nfourteen  NULL\n"


def test_a_semicolon_in_a_string_or_a_trigger_ends_nothing(box: Sandbox) -> None:
    code = (
        "create table t (a); -- one; two\n"
        "create trigger r after insert on t begin update t set a = 'x;y'; end;\n"
        "insert into t values ('z;'); select * from t"
    )
    result = box.run(code, "sql")
    assert (result.status, result.stdout) == (Status.OK, "a\n---\nx;y\n"), result.stderr


def test_an_error_names_the_line_where_its_statement_begins_and_keeps_what_came_before(box: Sandbox) -> None:
    result = box.run("select 1 as one;\n\n-- now the mistake\nselect\n  nope;", "sql")
    assert (result.status, result.exit_code) == (Status.FAILED, 1)
    assert result.stdout == "one\n---\n1\n"
    assert result.stderr == "/cell/cell.sql:4: OperationalError: no such column: nope\n"


def test_the_first_argument_is_the_database_in_the_work_folder(box: Sandbox) -> None:
    import sqlite3
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.db")
        connection = sqlite3.connect(path)
        connection.execute("create table t as select 7 as seven")
        connection.commit()
        connection.close()
        data = path.read_bytes()
    result = box.run("select seven, arg(1) as word from t", "sql", args=["data.db", "hey"], files={"data.db": data})
    assert result.stdout.splitlines()[-1] == "7      hey", result.stderr


def test_the_hosts_files_are_not_there(box: Sandbox) -> None:
    result = box.run("select readfile('/etc/shadow')", "sql")
    assert result.status is Status.FAILED
    assert "root:" not in result.stdout


def test_rows_beyond_the_first_look_are_printed_too(box: Sandbox) -> None:
    code = "with recursive c(n) as (select 1 union all select n + 1 from c where n < 2500) select n from c"
    assert box.run(code, "sql").stdout.splitlines()[-1] == "2500"


def test_a_table_of_an_earlier_program_is_missed_with_the_way_to_keep_it(box: Sandbox) -> None:
    box.run("create table t (a);", "sql")
    missed = box.run("select * from t;", "sql")
    assert "OperationalError: no such table: t\n" in missed.stderr
    assert "--arg data.db" in missed.stderr
    assert box.run("create table t (a); insert into t values (7);", "sql", args=["data.db"]).ok
    assert box.run("select * from t;", "sql", args=["data.db"]).stdout == "a\n-\n7\n"
    assert "--arg" not in box.run("select * from nope;", "sql", args=["data.db"]).stderr
