"""Confines a forked process: it reaches nothing that outlives it.

A fork shares more with its parent than it seems: the places in open files, the other ends of pipes and sockets, memory that is mapped
shared, and all paths. Code of the user's that is done again there must not write to any of them, nor take anything out of them.
"""

from __future__ import annotations

import builtins
import ctypes
import fcntl
import io
import os
import platform
import resource
import stat
from typing import Any

from numscope.records.faults import suppress

_MOST_COPIED = 1 << 30  # bytes of shared memory without a file
_MOST_OF_FILES = 256 << 20  # bytes of files that may be written to; others then can't be
_HARMLESS = {(1, minor) for minor in (3, 5, 7, 8, 9)}  # /dev/null, zero, full, random, urandom
_PROT_READ_WRITE, _MAP_PRIVATE_FIXED, _MAP_ANONYMOUS = 0x3, 0x12, 0x20
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # of the kernel's packet filters
_ALLOWED, _REFUSED, _UNKNOWN = 0x7FFF0000, 0x50001, 0x50026  # the latter two with EPERM, ENOSYS
_OPENS_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CLONE_THREAD = 0x10000

# System calls by their numbers on x86_64 and aarch64, which lacks the older ones.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_REFUSED_CALLS: dict[str, tuple[int | None, int | None]] = {
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None), "linkat": (265, 37), "symlink": (88, None),
    "symlinkat": (266, 36), "unlink": (87, None), "unlinkat": (263, 35), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None),
    "mknod": (133, None), "mknodat": (259, 33), "creat": (85, None), "openat2": (437, 437), "chmod": (90, None), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "utimensat": (280, 88), "futimesat": (261, None), "truncate": (76, 45),
    "ftruncate": (77, 46), "fallocate": (285, 47), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "kill": (62, 129), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "pidfd_send_signal": (424, 424), "execve": (59, 221), "execveat": (322, 281), "fork": (57, None),
    "vfork": (58, None), "ptrace": (101, 117), "process_vm_writev": (311, 271), "socket": (41, 198), "flock": (73, 32),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "io_uring_setup": (425, 425), "mount": (165, 40),
}  # fmt: skip


def confine(*kept: int) -> None:
    """Let this process, which has been forked, reach nothing but memory of its own and these file descriptors.

    What would is an error there, ``PermissionError`` for the most part, but for writing: standard output and error, and files opened for
    writing, lead nowhere.

    Raises: OSError, MemoryError: it can't be done here.
    """
    _own_memory()
    nowhere = os.open(os.devnull, os.O_RDWR)
    _own_files({*kept}, nowhere)
    if not _refuse():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    original = builtins.open

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return original(os.dup(nowhere) if set(mode) & set("wax+") else file, mode.replace("x", "w"), *args, **kwargs)

    builtins.open = io.open = opened


def _own_files(kept: set[int], nowhere: int) -> None:
    """A place of its own in each file; nothing at the other end of anything else."""
    left = _MOST_OF_FILES
    for fd in {*map(int, os.listdir("/proc/self/fd"))} - kept - {nowhere}:
        with suppress(OSError):  # that of the listing itself
            about = os.fstat(fd)
            if stat.S_ISCHR(about.st_mode) and (os.major(about.st_rdev), os.minor(about.st_rdev)) in _HARMLESS:
                continue
            new = nowhere
            mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
            if (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)) and mode != os.O_WRONLY and fd not in (1, 2):
                with suppress(OSError):  # a file that this user may not read
                    copies = mode == os.O_RDWR and about.st_size <= left
                    left -= about.st_size if copies else 0
                    new = _own_file(fd, copies)
            os.dup2(new, fd, inheritable=False)
            if new != nowhere:
                os.close(new)


def _own_file(fd: int, copies: bool) -> int:
    """The same file or folder at the same place, to read; or a copy, which may be written to."""
    new = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    if copies:
        copy = os.memfd_create("numscope")
        while os.sendfile(copy, new, None, 1 << 20):
            pass
        os.close(new)
        new = copy
    os.lseek(new, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
    return new


def _own_memory() -> None:
    """Make shared mappings private: what is written to them is seen by nobody else."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        shared = [line.split(maxsplit=5) for line in file if line.split(maxsplit=2)[1][1::2] == "ws"]
    left = _MOST_COPIED
    for span, _, offset, _, inode, *path in shared:
        start, end = (int(part, 16) for part in span.split("-"))
        fd = _opened(path[0].rstrip("\n"), int(inode)) if path else -1
        held = b""
        if fd < 0:
            left -= end - start
            if left < 0:
                raise MemoryError(f"it shares more than {_MOST_COPIED >> 30} GiB of memory with other processes")
            held = ctypes.string_at(start, end - start)
        flags = _MAP_PRIVATE_FIXED | (_MAP_ANONYMOUS if fd < 0 else 0)
        if libc.mmap(start, end - start, _PROT_READ_WRITE, flags, fd, int(offset, 16) if fd >= 0 else 0) != start:
            raise OSError(ctypes.get_errno(), "shared memory can't be made this process's own")
        if fd >= 0:
            os.close(fd)
        else:
            ctypes.memmove(start, held, len(held))


def _opened(path: str, inode: int) -> int:
    """The file behind a mapping, if it is there still."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY)
        about = os.fstat(fd)
        if stat.S_ISREG(about.st_mode) and about.st_ino == inode:
            return fd
        os.close(fd)
    return -1


def _refuse() -> bool:
    """Have the kernel refuse what would change something outside of this process. It can't be taken back. False: it has no such filters."""
    if platform.machine() not in _MACHINES:
        return False
    architecture, column = _MACHINES[platform.machine()]
    rules = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _REFUSED), (_LOAD, 0, 0, 0)]
    for numbers in _REFUSED_CALLS.values():
        if (refused := numbers[column]) is not None:
            rules += [(_EQUAL, 0, 1, refused), (_RETURN, 0, 0, _REFUSED)]
    rules += [(_EQUAL, 0, 1, 435), (_RETURN, 0, 0, _UNKNOWN)]  # clone3, whose flags can't be read here: libraries then use clone
    for number, argument, bits in ((2, 1, _OPENS_TO_WRITE), (257, 2, _OPENS_TO_WRITE)) if column == 0 else ((56, 2, _OPENS_TO_WRITE),):
        rules += [
            (_EQUAL, 0, 3, number),
            (_LOAD, 0, 0, 16 + 8 * argument),
            (_ANY_BIT, 0, 1, bits),
            (_RETURN, 0, 0, _REFUSED),
            (_LOAD, 0, 0, 0),
        ]
    rules += [(_EQUAL, 0, 3, (56, 220)[column]), (_LOAD, 0, 0, 16), (_ANY_BIT, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, _REFUSED)]
    rules += [(_RETURN, 0, 0, _ALLOWED)]
    program = (_Rule * len(rules))(*(_Rule(*rule) for rule in rules))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(rules), program)), 0, 0) == 0)


class _Rule(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("if_true", ctypes.c_ubyte), ("if_false", ctypes.c_ubyte), ("value", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("rules", ctypes.POINTER(_Rule)))
