"""The system calls that a program in a box may not make, as a filter in classic BPF, which the kernel runs.

The filter is a list of 8-byte instructions (operation, jump if true, jump if false, value) on the 64 bytes of
`struct seccomp_data`: number, architecture, instruction pointer, six arguments. A program of another architecture (or
of x86-64's 32-bit-pointer mode) is killed, since its numbers mean other calls. What the filter does not name is
allowed: namespaces, the uid and the mounts are the walls; it takes away what has opened walls before.
"""

from __future__ import annotations

import errno
import platform
import struct

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENT_0, ARGUMENT_1 = 0, 4, 16, 24
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
X32 = 0x40000000
NAMESPACES = 0x7E020000  # CLONE_NEW: user, pid, net, ipc, uts, cgroup, mount
TERMINAL = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX type into a terminal
FAMILIES = (1, 2, 10)  # local and internet sockets; others (netlink, vsock, ...) may not stop at a network namespace

MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Machine -> (the kernel's number of the architecture, the column of NUMBERS)."""

SAME = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447, "process_mrelease": 448,
    "set_mempolicy_home_node": 450, "open_tree_attr": 467,
}  # fmt: skip
DENIED = {  # name -> numbers on x86-64 and aarch64; -1: there is no such call
    **{name: (number, number) for name, number in SAME.items()},
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268),
    "unshare": (272, 97), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162), "personality": (135, 92),
    "nfsservctl": (180, 42), "lookup_dcookie": (212, 18), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "vhangup": (153, 58), "mbind": (237, 235),
    "set_mempolicy": (238, 237), "migrate_pages": (256, 238), "move_pages": (279, 239), "iopl": (172, -1),
    "ioperm": (173, -1), "modify_ldt": (154, -1), "uselib": (134, -1), "ustat": (136, -1), "sysfs": (139, -1),
    # memory that belongs to no process is not counted by a sum over processes
    "memfd_create": (319, 279), "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180),
}  # fmt: skip
CLONE, CLONE3, IOCTL, SOCKET = (56, 220), (435, 435), (16, 29), (41, 198)


def instruction(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Returns one instruction; jumps count the instructions that are left out."""
    return struct.pack("=HBBI", operation, if_true, if_false, value)


def refusal(number: int) -> bytes:
    """Returns the instruction that makes a call fail with an error number."""
    return instruction(RETURN, ERROR | number)


def filter_program(machine: str = platform.machine()) -> bytes:
    """Returns the filter for a machine; KeyError for a machine that has none."""
    architecture, column = MACHINES[machine]
    program = instruction(LOAD, ARCHITECTURE)
    program += instruction(EQUAL, architecture, if_true=1) + instruction(RETURN, KILL)
    program += instruction(LOAD, NUMBER)
    if column == 0:
        program += instruction(AT_LEAST, X32, if_false=1) + instruction(RETURN, KILL)
    for numbers in DENIED.values():
        if numbers[column] >= 0:
            program += instruction(EQUAL, numbers[column], if_false=1) + refusal(errno.EPERM)
    # its flags are in memory, where no filter reads; libraries fall back to clone
    program += instruction(EQUAL, CLONE3[column], if_false=1) + refusal(errno.ENOSYS)
    program += instruction(EQUAL, CLONE[column], if_false=4)
    program += instruction(LOAD, ARGUMENT_0) + instruction(ANY_BIT, NAMESPACES, if_false=1)
    program += refusal(errno.EPERM) + instruction(RETURN, ALLOW)
    program += instruction(EQUAL, IOCTL[column], if_false=5)
    program += instruction(LOAD, ARGUMENT_1)
    program += instruction(EQUAL, TERMINAL[0], if_true=1) + instruction(EQUAL, TERMINAL[1], if_false=1)
    program += refusal(errno.EPERM) + instruction(RETURN, ALLOW)
    program += instruction(EQUAL, SOCKET[column], if_false=5) + instruction(LOAD, ARGUMENT_0)
    for left, family in zip((3, 2, 1), FAMILIES, strict=True):
        program += instruction(EQUAL, family, if_true=left)
    program += refusal(errno.EAFNOSUPPORT)
    return program + instruction(RETURN, ALLOW)
