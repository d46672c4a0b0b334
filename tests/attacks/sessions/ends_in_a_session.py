"""Where hostile programs end otherwise as cells of a session than as programs, and why. All others end alike."""

from dataclasses import replace

from tests.attacks.ends_behind_landlock import Difference
from tests.attacks.harness import Attack

_ITS_OWN = "the cell ends the process that runs the cells: a checkpoint takes over"
DIFFERENCES: dict[str, Difference] = {
    "K03": Difference(_ITS_OWN, {"status": ("killed",)}),
    "F13": Difference("the worker has its channel to the host, and nothing else", {"says": ("socket:",)}),
    #: Where memory is only watched there is no memory file, and the cell goes on.
    "S11": Difference(_ITS_OWN, {"status": ("killed", "ok")}),
    "S14": Difference(_ITS_OWN, {"status": ("killed",)}),
}
#: What a row of the table must say besides, where the program is not quite the one of its title.
REMARKS = {"R14": " (with 20 000 levels)"}


def in_a_session(attack: Attack) -> Attack:
    """The same attack with what must come of it as a cell."""
    if attack.id == "R14":
        # Each attack is taken back afterwards, and a tree of 100 000 levels takes seconds to remove.
        return replace(attack, code=attack.code.replace("100000", "20000"))
    if attack.id == "R01":
        # Where no control group counts, checkpoints and their worker share the number with the cell's own processes.
        return replace(attack, code=attack.code.replace("n <= 64", "n <= 70"))
    difference = DIFFERENCES.get(attack.id)
    return replace(attack, **difference.instead) if difference is not None else attack
