"""How programs make a system call that their library has no name for."""

#: Calls a syscall by its number on this machine and prints the errno.
SYSCALL = """
import ctypes, os, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
ARM = platform.machine() == 'aarch64'
def call(name, x86, arm, *args):
    number = arm if ARM else x86
    if number is None: print(name, 'ENOSYS'); return
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    print(name, 'OPEN' if result >= 0 else errno.errorcode.get(ctypes.get_errno()))
"""
