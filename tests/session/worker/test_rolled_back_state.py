"""What a checkpoint says of its state when it takes over: it says so before the process is set right, where it can."""

import pytest

from sandbox_kernel import Sandbox

#: A variable whose name is no plain text, so that methods of the user's own would run.
ODD = "class Odd(str): pass\nglobals()[Odd('z')] = 3"


@pytest.mark.parametrize(("more", "variables"), [("", 2), (ODD, 4)], ids=["plain names", "odd names"])
@pytest.mark.slow
def test_a_state_that_came_back_has_its_variables_and_the_number_of_them(more: str, variables: int) -> None:
    with Sandbox() as box, box.session() as session:
        assert session.run(f"x = 1\ny = 2\n{more}").ok
        back = session.run("x = 5\nwhile True: pass", timeout=1)
        assert back.rolled_back
        assert f"{variables} variables" in " ".join(str(note) for note in back.notes)
        # What the host sent while the process was set right was not lost: the checkpoint of this very state.
        assert session.run("print(x + y)").stdout == "3\n"
        assert session.run("while True: pass", timeout=1).rolled_back
        assert session.run("print(x + y)").stdout == "3\n"
