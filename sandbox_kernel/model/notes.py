"""The notes of a result: what each kind is, and the only place that words them.

A note is a sentence for the user and a ``NoteKind`` for programs. Code that acts on a note compares ``kind`` and never
the text, so every text here can be reworded. Each function makes the note of one kind; most have fixed words.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum, auto, unique
from typing import NamedTuple

from sandbox_kernel.util.values import dataclass


@unique
class WantedKind(StrEnum):
    """What kind of right a program lacked."""

    DOMAIN = "domain"
    FILE = "file"
    PACKAGE = "package"


@dataclass(frozen=True)
class Wanted:
    """One right that a program lacked."""

    kind: WantedKind
    #: The domain, with its port if that is unusual; the file's path, relative to the user's folder; names of packages.
    what: str


@unique
class RightAnswer(StrEnum):
    """What a user may answer when a program lacked a right."""

    ONCE = "once"
    SESSION = "session"
    NEVER = "never"


#: How many cells a note names, and how much of each.
_NAMED_CELLS, _CELL_WORDS = 3, 60


@unique
class NoteKind(StrEnum):
    """What a note is about."""

    ROLLED_BACK = auto()
    ROLLED_BACK_FURTHER = auto()
    #: Taken back, or gone to another state.
    MOVED = auto()
    RUN_AGAIN = auto()
    STATE_LOST = auto()
    #: A state is not held, or what of it does not go back: files, threads, sockets, databases, child processes.
    NOT_HELD = auto()
    LOST_CHECKPOINTS = auto()
    #: Calls of host functions that a rollback did not undo.
    CALLS_HAPPENED = auto()
    STATE_ON_GPU = auto()
    LOST_ON_GPU = auto()
    COPY_LOADED = auto()
    #: Why the worker of a session was ended, or how it ended.
    WORKER_ENDED = auto()
    WORKER_REPLACED = auto()
    CHILD_OUT_OF_MEMORY = auto()
    #: So many processes that more memory would not help.
    MANY_PROCESSES = auto()
    MORE_MEMORY = auto()
    FILES_NOT_KEPT = auto()
    #: Files of the notebook's last kernel that are there, and changes that end with this one.
    FILES_FOUND = auto()
    FILES_NOT_SHARED = auto()
    #: Part of the work folder was not looked at.
    UNSEEN_CHANGES = auto()
    COPIED_FOLDER = auto()
    #: The network was open, there was none, or the program went past the proxy.
    NETWORK = auto()
    NO_NETWORK = auto()
    #: A host that the policy allows, and that the proxy could not reach.
    UNREACHED = auto()
    COMPILE_CACHED = auto()
    STATE_OFFERED = auto()
    NOT_AUTOSAVED = auto()
    #: What the user could write to get further.
    HINT = auto()
    #: The interpreter was started from nothing, which takes longer.
    NOT_BOOTED = auto()
    #: Part of an output was not shown, because a page must not show it.
    REMOVED_OUTPUT = auto()
    #: Outputs and changes that are not shown, because they were too many, too long or too late.
    CUT_OUTPUT = auto()
    NEXT_CELL = auto()
    NO_ANSWER = auto()
    #: The cell did not run in the notebook's session.
    FRESH_SANDBOX = auto()
    NOT_RUN = auto()
    #: A note that this package did not make, or that stands for more.
    OTHER = auto()

    @property
    def of_this_run(self) -> bool:
        """Whether another run of the same program may go without it, so that it belongs to the measurements."""
        return self is NoteKind.COMPILE_CACHED


class Note(str):
    """One note of a result: its text, as a string, its ``kind``, and what the program ``wanted``, if it is about that.

    It equals and pickles like a string with an attribute, so code that only shows notes need not know this class.
    """

    kind: NoteKind
    wanted: Wanted | None

    __slots__ = ("kind", "wanted")

    def __new__(cls, text: str, kind: NoteKind = NoteKind.OTHER, wanted: Wanted | None = None) -> Note:
        """Make a note; ``kind`` is ``OTHER`` for a text of somebody else."""
        note = super().__new__(cls, text)
        note.kind = kind
        note.wanted = wanted
        return note

    def __reduce__(self) -> tuple[type[Note], tuple[str, NoteKind, Wanted | None]]:
        return Note, (str(self), self.kind, self.wanted)


def as_notes(found: Iterable[str]) -> tuple[Note, ...]:
    """The same notes; a plain string becomes a note of the kind ``OTHER``."""
    return tuple(note if isinstance(note, Note) else Note(note) for note in found)


def has_note(notes: Iterable[Note], kind: NoteKind) -> bool:
    """Whether one of the notes is of this kind."""
    return any(note.kind is kind for note in notes)


class _Number(int):
    """A number in words: ``{:cell}`` is "1 cell" or "2 cells", ``{:is|are}`` the word for one (or true) or several."""

    def __format__(self, form: str) -> str:
        one, choice, several = form.partition("|")
        if choice:
            return one if self == 1 else several
        return f"{int(self)} {one}{'' if self == 1 else 's'}" if len(one) > 1 else format(int(self), form)


class Worded(NamedTuple):
    """Makes notes of one kind in fixed words, with its arguments in the places marked ``{}``.

    ``without`` are the words where the first argument is empty or zero; the same ones by default.
    """

    kind: NoteKind
    words: str
    without: str = ""

    def __call__(self, *given: object) -> Note:
        """Return the note."""
        words = self.without if self.without and not given[0] else self.words
        return Note(words.format(*(_Number(each) if isinstance(each, int) else each for each in given)), self.kind)


# Sessions: rollback, undo and the end of a worker.
rolled_back = Worded(NoteKind.ROLLED_BACK, "rolled back to the state before this cell; {:variable} kept")
rolled_back_further = Worded(
    NoteKind.ROLLED_BACK_FURTHER,
    "rolled back to an older state: the last {0:cell} {0:is|are} taken back too; {1:variable} kept",
)


def taken_back(names: int, cells: Sequence[tuple[int, str]]) -> Note:
    """An undo of these cells, newest first: the number and the source of each."""
    word = "cell" if len(cells) == 1 else f"{len(cells)} cells"
    return Note(f"took back {word} {_named(cells)}; {_Number(names):variable} kept", NoteKind.MOVED)


moved = Worded(NoteKind.MOVED, "the session is at {1} now; {0:variable} kept")
run_again = Worded(
    NoteKind.RUN_AGAIN,
    "{2} was no longer held: {1:cell} ran again after the nearest state that was; {0} of them {0:uses|use} files, "
    "time, chance or the network, and may have made other values",
    "{2} was no longer held: {1:cell} ran again after the nearest state that was",
)
lost_files = Worded(NoteKind.NOT_HELD, "not all files in the work folder are as they were before: {}")
lost_threads = Worded(NoteKind.NOT_HELD, "{:thread} of earlier cells did not come back")


def shared_by_states(sockets: int, databases: int, children: int) -> tuple[Note, ...]:
    """What lay outside of the process when its state was kept, one note for each kind."""
    told = (
        (sockets, "{:network socket}: the same connection in every state, so what was sent or received stays"),
        (databases, "{:open sqlite database}: one file handle for all states: open it anew after going back"),
        (children, "{0} child {0:process|processes}: it goes on by itself and does not go back"),
    )
    return tuple(Worded(NoteKind.NOT_HELD, words)(count) for count, words in told if count)


not_held = Worded(NoteKind.NOT_HELD, "the state is not held: {}")
lost_checkpoints = Worded(
    NoteKind.LOST_CHECKPOINTS,
    "some checkpoints were killed, by the session itself or for memory: undo of {} {:cell|cells} is not possible",
)


states_given_up = Worded(
    NoteKind.LOST_CHECKPOINTS,
    "{0:kept state} {0:was|were} given up for memory, the oldest first: undo reaches {1:cell} back now",
)


def calls_happened(names: Sequence[str]) -> Note:
    """Host functions that the cell had called before it was rolled back; what they did outside stays."""
    counted = {name: names.count(name) for name in dict.fromkeys(names)}
    shown = _listed([name if count == 1 else f"{name} ({count} times)" for name, count in counted.items()])
    text = f"host functions had been called already, and what they did stays: {shown}"
    return Note(text, NoteKind.CALLS_HAPPENED)


def lost_names(names: Sequence[str]) -> Note:
    """Named states whose checkpoints were killed, or were given up for memory."""
    count, shown = _Number(len(names)), _listed(list(map(repr, names)))
    text = (
        f"the {count:state|states} {shown} {count:is|are} no longer held: killed by the session itself, or given up "
        "for memory; going there runs the cells again"
    )
    return Note(text, NoteKind.LOST_CHECKPOINTS)


state_lost = Worded(NoteKind.STATE_LOST, "the session's state is lost: {}; a new session was started")
state_not_saved = Worded(
    NoteKind.NOT_HELD,
    "the shell ended without leaving its state: variables and functions are as before this cell",
)
state_on_gpu = Worded(
    NoteKind.STATE_ON_GPU,
    "the session now uses a GPU, whose state cannot be copied: this cell and later ones cannot be undone, and a "
    "cell that must be ended takes the session back to before this one, or to the last %sandbox checkpoint NAME, "
    "which copies variables and tensors",
)


def lost_on_gpu(cells: Sequence[tuple[int, str]]) -> Note:
    """A rollback to before the first cell that used a GPU: these cells, newest first, are gone."""
    return Note(f"lost with the GPU's state: {_named(cells)}", NoteKind.LOST_ON_GPU)


def copy_loaded(where: str, cells: int, lost: Mapping[str, str]) -> Note:
    """The copy that was made at a named state was loaded; ``cells`` after it are gone, and ``lost`` was not in it."""
    after = f"; {_Number(cells):cell} after it must be run again" if cells else ""
    missing = f"; not in it: {', '.join(f'{name} ({why})' for name, why in list(lost.items())[:5])}" if lost else ""
    return Note(f"the copy of {where} was loaded, tensors included{after}{missing}", NoteKind.COPY_LOADED)


copy_not_loaded = Worded(NoteKind.COPY_LOADED, "the copy of {} could not be loaded: {}")
broke_protocol = Worded(NoteKind.WORKER_ENDED, "the worker was ended: {}")


def ended_itself(code: int) -> Note:
    """The cell ended its worker; ``code`` is an exit code, or a negative signal."""
    how = f"by signal {-code} ({signal_name(-code)})" if code < 0 else f"with exit code {code}"
    return Note(f"the cell ended its own process {how}", NoteKind.WORKER_ENDED)


not_begun = Worded(NoteKind.NOT_RUN, "the cell was interrupted while it waited for its session: it did not begin")
ignored_interrupt = Worded(NoteKind.WORKER_ENDED, "the cell did not end when it was interrupted")
worker_replaced = Worded(
    NoteKind.WORKER_REPLACED, "the session's process had died between cells ({}) and was brought back"
)
child_out_of_memory = Worded(
    NoteKind.CHILD_OUT_OF_MEMORY,
    "the kernel ended a process that the cell had started, for its memory; the session lives on",
)
many_processes = Worded(
    NoteKind.MANY_PROCESSES, "its processes used up the memory together, and it may start {} of them: start fewer"
)
more_memory = Worded(NoteKind.MORE_MEMORY, "the session may use {} MB from now on")


# Files.
stopped_run_keeps_no_files = Worded(
    NoteKind.FILES_NOT_KEPT, "it was stopped or met a limit, so the files that it changed were not kept"
)
no_files_kept = Worded(NoteKind.FILES_NOT_KEPT, "the files that it changed were not kept: {}")
file_not_kept = Worded(NoteKind.FILES_NOT_KEPT, "{} ({}) was not kept: {}")
files_kept_later = Worded(
    NoteKind.FILES_NOT_KEPT, "{} changed files are kept when the next cell ends: run one before you apply the changes"
)
files_stayed_on_worker = Worded(NoteKind.FILES_NOT_KEPT, "{} and later files stayed on the worker")
files_found = Worded(
    NoteKind.FILES_FOUND,
    "{0:file} of this notebook's last kernel {0:is|are} in the work folder: %sandbox files lists them, "
    "%sandbox files --clear removes them",
)
changes_not_here = Worded(
    NoteKind.FILES_FOUND,
    "{1:change} of this notebook's last kernel {1:is|are} kept, not applied: %sandbox {0} has {1:it|them} again "
    "(a running session: %sandbox restart --keep {0})",
)
not_applied = Worded(
    NoteKind.FILES_FOUND,
    "{0:change} of your folder {0:is|are} not written and {0:ends|end} with this kernel ({1}): a last cell with "
    "%sandbox apply writes {0:it|them}, in a kernel that allows it: "
    "sandbox-kernel install --name NAME --here --lines all",
)
changes_found = Worded(
    NoteKind.FILES_FOUND,
    "{1:change} of this notebook's last kernel to {0} {1:is|are} there again, not applied: "
    "%sandbox changes shows, %sandbox apply writes, %sandbox discard drops them",
)
wrapped_changes_found = Worded(
    NoteKind.FILES_FOUND,
    "{0:change} of an earlier kernel {0:is|are} there again, not applied: sandbox-kernel changes shows, applies or "
    "drops them",
)
strange_stage = Worded(
    NoteKind.FILES_FOUND,
    "{} in your folder looks like an interrupted apply, but you began none there: it is left alone, and programs do"
    " not see it; look what is in it, and remove it",
)
change_not_given = Worded(
    NoteKind.FILES_NOT_SHARED,
    "{} is kept as it was changed, and this run sees your own version: {}; more room: --disk 1G",
)
file_not_shared = Worded(NoteKind.FILES_NOT_SHARED, "{} ({}) {}: {}")
more_files_not_shared = Worded(NoteKind.FILES_NOT_SHARED, "and {} more files were not shared")
large_file_not_shared = Worded(
    NoteKind.FILES_NOT_SHARED, "{} stays in this session: files above {} MB are not shared with other runs"
)
no_files_brought_in = Worded(NoteKind.FILES_NOT_SHARED, "files of other runs could not be brought in: {}")
no_files_shared = Worded(NoteKind.FILES_NOT_SHARED, "files could not be shared with other runs: {}")
changes_unknown = Worded(NoteKind.UNSEEN_CHANGES, "changes in the work folder could not be looked at: {}")
changes_incomplete = Worded(
    NoteKind.UNSEEN_CHANGES,
    "the work folder is too large to be compared in full: changes beyond its first 5000 entries are not listed",
)
changes_cut = Worded(NoteKind.CUT_OUTPUT, "{} changed files, of which the first {} are listed")
folder_copied = Worded(
    NoteKind.COPIED_FOLDER, "it worked on a private copy of the folder, which no layer could cover: {}"
)
file_not_copied = Worded(NoteKind.FILES_NOT_SHARED, "{} is not in the private copy of the folder: {}")


def git_sees_deleted(paths: Sequence[str]) -> Note:
    """Git was used on the user's folder, and files that it tracks are hidden from programs there."""
    text = (
        f"{_listed(paths, 5)}: hidden from programs, so git inside takes what it tracks there for deleted; yours stays "
        "as it is. Commit by naming paths, without -a, and git add without -A or a dot"
    )
    return Note(text, NoteKind.HINT)


# Network.
network_open = Worded(NoteKind.NETWORK, "the network was open: every public address, on ports 80 and 443")
network_beside_proxy = Worded(
    NoteKind.NETWORK,
    "the only way out is the proxy that http_proxy and https_proxy name; a program that looks up names or connects "
    "by itself reaches nothing",
)


def no_network(domain: str = "", line: str = "") -> Note:
    """The program tried the network and has none; ``domain`` may be unknown, ``line`` stands before an option."""
    text = f"there is no network in this sandbox; to let it reach a host: {line}--allow-net {domain or 'DOMAIN'}"
    return Note(text, NoteKind.NO_NETWORK, Wanted(WantedKind.DOMAIN, domain) if domain else None)


never_network = Worded(
    NoteKind.NETWORK,
    "there is no network in this sandbox, and the walls of this machine cannot open {} alone; fetch it on the host and "
    "put the file beside the program, or install bubblewrap",
)
unreached = Worded(NoteKind.UNREACHED, "allowed, but not reached: {}")


# Compilers and packages.
compile_stopped = Worded(NoteKind.NOT_RUN, "it was stopped while it was being compiled")
compile_cached = Worded(NoteKind.COMPILE_CACHED, "this time: the compiled program came from the cache")
not_booted = Worded(NoteKind.NOT_BOOTED, "{} has no effect: Python in WebAssembly starts before it is known")


# Output and input.
removed_output = Worded(NoteKind.REMOVED_OUTPUT, "{}")
clear_ignored = Worded(
    NoteKind.REMOVED_OUTPUT, "clear_output was ignored: it would take away what %sandbox has shown in this cell"
)
next_cell_written = Worded(
    NoteKind.NEXT_CELL, "the program in the sandbox wrote {:this cell|the cell below}: read it before you run it"
)
next_cell_refused = Worded(
    NoteKind.NEXT_CELL,
    "text for another cell was refused: it is too long, holds invisible characters, or a %sandbox line",
)
displays_dropped = Worded(NoteKind.CUT_OUTPUT, "{} further outputs were too many, or came too late, to be shown")
output_cut = Worded(NoteKind.CUT_OUTPUT, "{} cut at the output limit; keep more with --output 10M, or write to a file")
output_lost = Worded(
    NoteKind.CUT_OUTPUT, "its worker did not answer within {:g} s after it was asked to stop, so its output is lost"
)
no_answer = Worded(NoteKind.NO_ANSWER, "input() got no answer: {}")


# Hints: what to write, where people stumble. ``write`` is what to write at this door; empty where nothing helps.
_MORE, _NO_MORE = "; to give it more: {}", "; this door gives no more, so work on less at a time"
hint_time = Worded(NoteKind.HINT, "to give it more time: {}", "this door gives no more time, so work on less at a time")
hint_needs = Worded(NoteKind.HINT, "it needs about {1}: {0}", f"it needs about {{1}}{_NO_MORE}")
hint_memory = Worded(NoteKind.HINT, f"the memory was used up{_MORE}", f"the memory was used up{_NO_MORE}")


def hint_file(write: str, path: str, where: str, running: str = "", absolute: bool = False) -> Note:
    """A file that the program missed is on the host, beside ``where``.

    ``running`` is what a running session takes; ``absolute``: the program named the file by its full path.
    """
    also = f" (a running session: {running})" if running else ""
    named = f"; inside, open it as {path}" if absolute else ""
    text = f"{path} is beside {where} and not shown to the sandbox: {write}{also}{named}"
    return Note(text, NoteKind.HINT, Wanted(WantedKind.FILE, path))


hint_missing = Worded(NoteKind.HINT, "the program has a work folder of its own, without {}; to work on yours: {}")
hint_domain = Worded(NoteKind.HINT, "the program wanted to reach {}; to allow it: {}")
hint_place = Worded(
    NoteKind.HINT,
    "{1} is closed to the program, or can only be read; use the working folder, or show it: {0}",
    "{1} is closed to the program, or can only be read; use the working folder",
)
hint_hidden = Worded(
    NoteKind.HINT,
    "programs see no {1}, as it has a name under which secrets are kept; give it the value: {0}, or use a file of "
    "another name",
    "programs see no {1}, as it has a name under which secrets are kept; use a file of another name",
)


def hint_install(line: str, names: str) -> Note:
    """Packages that a cell lacked; ``line`` begins the line that installs them."""
    text = f"to install it for this notebook, if you know and trust it: {line}install {names}"
    return Note(text, NoteKind.HINT, Wanted(WantedKind.PACKAGE, names))


hint_rename = Worded(NoteKind.HINT, "{1} cannot be renamed in one step here, only copied and removed: {0}")
hint_package = Worded(
    NoteKind.HINT,
    "{1} is not installed in this Python; if you know and trust it: {0}",
    "{1} is not installed in this Python; use what is installed",
)
_NOT_IN_WASM = (
    "{1} is not in the Python inside WebAssembly: packages of pure Python by %pip install {1} in a session; numpy and "
    "pandas in sessions after sandbox-kernel prepare science"
)
hint_package_in_wasm = Worded(NoteKind.HINT, f"{_NOT_IN_WASM}, or {{0}}", _NOT_IN_WASM)


# Notebooks.
state_offered = Worded(
    NoteKind.STATE_OFFERED, "the kernel before this one left its state, saved {}: %sandbox recover goes on with it"
)
not_autosaved = Worded(NoteKind.NOT_AUTOSAVED, "autosave could not save the state: {}")
fresh_sandbox = Worded(NoteKind.FRESH_SANDBOX, "ran in a fresh sandbox: {}")
not_prepared = Worded(
    NoteKind.NOT_RUN, "nothing was run: its language is still being made ready, which goes on in the background"
)
more_notes = Worded(NoteKind.OTHER, "and {} more notes like these")


def signal_name(number: int) -> str:
    """SIGSEGV rather than 11; real-time signals have no name and keep their number."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _first_line(code: str) -> str:
    """The first line of a cell that says something, cut to what somebody recognises it by."""
    line = next((line.strip() for line in code.splitlines() if line.strip()), "")
    shown = "".join(char if char.isprintable() else " " for char in line)
    return shown if len(shown) <= _CELL_WORDS else f"{shown[:_CELL_WORDS]}…"


def _named(cells: Sequence[tuple[int, str]]) -> str:
    return _listed([f"[{number}]: {_first_line(code)}" for number, code in cells], _NAMED_CELLS)


def _listed(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
