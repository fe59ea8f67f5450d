"""The filter of system calls, run instruction by instruction for both machines."""

from __future__ import annotations

import errno
import struct

import pytest

from assay.sandbox import seccomp

ALLOW, KILL = seccomp.ALLOW, seccomp.KILL


def verdict(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter of a machine returns for a call, as the kernel computes it."""
    given = [*arguments, 0, 0][:2]
    kind = seccomp.MACHINES[machine][0] if architecture is None else architecture
    content = struct.pack("=IIQQQ", number, kind, 0, *given)
    program = list(struct.iter_unpack("=HBBI", seccomp.filter_program(machine)))
    place, register = 0, 0
    while True:
        operation, if_true, if_false, value = program[place]
        place += 1
        if operation == seccomp.RETURN:
            return value
        if operation == seccomp.LOAD:
            (register,) = struct.unpack_from("=I", content, value)
            continue
        tests = {
            seccomp.EQUAL: register == value,
            seccomp.AT_LEAST: register >= value,
            seccomp.ANY_BIT: register & value,
        }
        place += if_true if tests[operation] else if_false


def refused(number: int) -> int:
    return seccomp.ERROR | number


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_the_filter_refuses_what_it_names_and_nothing_else(machine: str, column: int) -> None:
    denied = {numbers[column]: name for name, numbers in seccomp.DENIED.items() if numbers[column] >= 0}
    special = {one[column] for one in (seccomp.CLONE, seccomp.CLONE3, seccomp.IOCTL, seccomp.SOCKET)}
    assert len(denied) >= 60
    for number in set(range(480)) - special:
        assert verdict(machine, number) == (refused(errno.EPERM) if number in denied else ALLOW), number


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_arguments_decide_for_four_calls(machine: str, column: int) -> None:
    clone, clone3, ioctl, socket = (
        one[column] for one in (seccomp.CLONE, seccomp.CLONE3, seccomp.IOCTL, seccomp.SOCKET)
    )
    assert verdict(machine, clone3) == refused(errno.ENOSYS)
    for bit in (0x20000, *(1 << shift for shift in range(25, 31))):
        assert verdict(machine, clone, bit | 17) == refused(errno.EPERM)
    assert verdict(machine, clone, 0x3D0F00) == ALLOW  # a thread
    assert verdict(machine, ioctl, 0, 0x5412) == verdict(machine, ioctl, 0, 0x541C) == refused(errno.EPERM)
    assert verdict(machine, ioctl, 0, 0x5413) == ALLOW
    assert [family for family in range(64) if verdict(machine, socket, family) == ALLOW] == [1, 2, 10]


def test_programs_of_another_machine_are_killed() -> None:
    assert verdict("x86_64", 1, architecture=0x40000003) == KILL  # 32 bits
    assert verdict("aarch64", 1, architecture=0xC000003E) == KILL
    assert verdict("x86_64", seccomp.X32 | 1) == KILL
