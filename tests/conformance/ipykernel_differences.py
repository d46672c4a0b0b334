"""Tests of ipykernel that the Sandbox kernel does not pass, each with its reason.

For the files that it runs, ``test_ipykernel_tests.py`` holds the kernel to this list: a test that fails and is not here
fails ours, and so does one that is in ``DIFFERENCES`` and passes. ``docs/ipykernel.md`` shows the list; ``python docs/generate.py`` writes it there.
"""

#: Reason, then the tests that differ for it.
DIFFERENCES: dict[str, tuple[str, ...]] = {
    "A receipt stands below each cell; the test expects no output of a cell that prints nothing.": (
        "test_kernel.py::test_print_to_correct_cell_from_thread[global]",
    ),
    "Output of a thread belongs to the cell that started it, also after that cell has ended, and after "
    "reset_thread_parent. In ipykernel it goes to the cell that runs at that moment.": (
        "test_kernel.py::test_print_to_correct_cell_from_thread[thread-local]",
        "test_kernel.py::test_print_to_correct_cell_from_thread[none]",
    ),
    'A prompt of a program begins with "sandbox asks:", so that it does not pass for one of Jupyter.': (
        "test_kernel.py::test_raw_input",
    ),
    "The test's temporary folder is on the host, and a session sees no folder of the host: %hist -f cannot write there.": (
        "test_kernel.py::test_save_history",
    ),
    "An interrupt at a debugger's prompt ends the debugger and fails the cell (BdbQuit), so that waiting cells are "
    "aborted, as after any error; ipykernel's debugger asks again.": (
        "test_kernel.py::test_interrupt_during_pdb_set_trace",
    ),
    "The kernel makes no IPython profile on the host; sessions have one inside. The test looks for that of the host.": (
        "test_kernel.py::test_sys_path_profile_dir",
    ),
    "The kernel object lives outside of the sandbox: get_ipython().kernel does not exist inside.": (
        "test_kernel.py::test_parent_header_and_ident",
    ),
    "Comms of a session pass the kernel's gate for widgets, and no other targets.": (
        "test_kernel.py::test_async_cell_waiting_for_comm_reply",
        "test_subshells.py::test_comm_reply_follows_requesting_subshell",
    ),
    "A session runs one cell at a time, because each cell is a transaction; cells of subshells wait for their turn. "
    "Cells of different sessions run at once.": (
        "test_subshells.py::test_thread_counts",
        "test_subshells.py::test_thread_ids",
        *(
            f"test_subshells.py::test_run_concurrently_sequence[{same}-are_subshells{n}]"
            for same in ("True", "False")
            for n in range(3)
        ),
    ),
}

#: Reason, then the tests that pass or fail for it, as the time of the machine has it.
BY_TIMING: dict[str, tuple[str, ...]] = {
    "A kernel_info_request or comm_info_request that comes while a cell runs is answered at once, so that a page which "
    "connects shows the running cell. The test expects all replies in the order of the requests.": (
        "test_message_spec.py::test_non_execute_stop_on_error",
    ),
}


def reasons() -> dict[str, str]:
    """The reason of each test, by its name (``test_kernel.py::test_raw_input``)."""
    return {name: reason for reason, names in DIFFERENCES.items() for name in names}
