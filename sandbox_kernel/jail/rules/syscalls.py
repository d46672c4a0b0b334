"""Syscall numbers: of the calls that the filter names, and of those in which a program waits for input.

``tests/jail/rules/test_syscalls.py`` compares every number with the kernel's headers for both architectures.
"""

from __future__ import annotations

#: The supported architectures, in the order of the columns below.
ARCHES = ("x86_64", "aarch64")

#: The values of ``seccomp_data.arch``: ELF machine, 64 bit, little endian.
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

#: The highest number that was reviewed (Linux 7.2, ``rseq_slice_yield``). Higher ones return ENOSYS, as on an older
#: kernel, so that a new syscall is not a new hole. The x32 numbers (bit 30) are higher too.
LAST_REVIEWED = 471

_NUMBERS: dict[str, tuple[int, int]] = {
    # mounts and roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    # namespaces and new processes
    "unshare": (272, 97),
    "setns": (308, 268),
    "listns": (470, 470),
    "clone": (56, 220),
    "clone3": (435, 435),
    # the kernel itself
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18),
    # interfaces with a large attack surface
    "seccomp": (317, 277),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_create": (319, 279),
    "vmsplice": (278, 75),
    "memfd_secret": (447, 447),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "lsm_get_self_attr": (459, 459),
    "lsm_set_self_attr": (460, 460),
    "lsm_list_modules": (461, 461),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "prlimit64": (302, 261),
    "prctl": (157, 167),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    # memory between NUMA nodes
    "mbind": (237, 235),
    "get_mempolicy": (239, 236),
    "set_mempolicy": (238, 237),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "set_mempolicy_home_node": (450, 450),
    # no code in most kernels, or only for the kernel's own use
    "rseq_slice_yield": (471, 471),
    # decided by their arguments
    "socket": (41, 198),
    "setsockopt": (54, 208),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "personality": (135, 92),
    "mknodat": (259, 33),
    # metadata of a file, by its path
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchownat": (260, 54),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "removexattrat": (466, 466),
    "file_getattr": (468, 468),
    "file_setattr": (469, 469),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    # System V and POSIX message passing between processes
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "mq_open": (240, 180),
    "mmap": (9, 222),
    "landlock_create_ruleset": (444, 444),
    "mq_unlink": (241, 181),
    # waiting for input (``input_prompts.py``)
    "read": (0, 63),
    "readv": (19, 65),
    "splice": (275, 76),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441),
}

#: Calls that only x86_64 has; newer architectures never had them.
_X86_64_ONLY = {
    "fork": 57,
    "vfork": 58,
    "mknod": 133,
    "chmod": 90,
    "chown": 92,
    "lchown": 94,
    "utime": 132,
    "utimes": 235,
    "futimesat": 261,
    "inotify_init": 253,
    "iopl": 172,
    "ioperm": 173,
    "modify_ldt": 154,
    "uselib": 134,
    "ustat": 136,
    "sysfs": 139,
    "_sysctl": 156,
    "create_module": 174,
    "get_kernel_syms": 177,
    "query_module": 178,
    "getpmsg": 181,
    "putpmsg": 182,
    "afs_syscall": 183,
    "tuxcall": 184,
    "security": 185,
    "vserver": 236,
    "uprobe": 336,
    "poll": 7,
    "select": 23,
    "epoll_wait": 232,
}

#: Every name that ``number`` accepts.
NAMES = (*_NUMBERS, *_X86_64_ONLY)


def number(name: str, arch: str) -> int | None:
    """Return the number of a syscall; None when this architecture lacks it. Raises ``KeyError`` for unknown names."""
    if name in _X86_64_ONLY:
        return _X86_64_ONLY[name] if arch == "x86_64" else None
    return _NUMBERS[name][ARCHES.index(arch)]
