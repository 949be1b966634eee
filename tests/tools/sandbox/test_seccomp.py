"""The filter of every machine we know, run by an interpreter of its own."""

import errno
import struct

import pytest

from tools.sandbox.seccomp import MACHINES, RET_ALLOW, RET_ERRNO, UnknownMachine, program

NUMBERS = {
    "x86_64": {
        "openat": 257, "open": 2, "read": 0, "chmod": 90, "fchmod": 91, "fchmodat": 268, "mknodat": 259,
        "clone": 56, "ioctl": 16, "socket": 41, "mount": 165, "unshare": 272, "ptrace": 101, "execve": 59,
    },
    "aarch64": {
        "openat": 56, "read": 63, "fchmod": 52, "fchmodat": 53, "mknodat": 33, "clone": 220, "ioctl": 29,
        "socket": 198, "mount": 40, "unshare": 97, "ptrace": 117, "execve": 221,
    },
}  # fmt: skip
ALLOWED = "allowed"


def decide(machine: str, call: int, *arguments: int, audit: int | None = None) -> str:
    """What the kernel would do with a call: `allowed`, or the name of the error."""
    data = struct.pack(
        "<iIQ6Q", call, audit or MACHINES[machine].audit, 0, *(arguments + (0,) * (6 - len(arguments)))
    )
    code = [
        struct.unpack("<HBBI", program(machine)[at : at + 8]) for at in range(0, len(program(machine)), 8)
    ]
    at, register = 0, 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x06:
            return ALLOWED if value == RET_ALLOW else errno.errorcode[value & ~RET_ERRNO]
        if operation == 0x20:
            register = struct.unpack_from("<I", data, value)[0]
            continue
        holds = {0x15: register == value, 0x25: register > value, 0x45: bool(register & value)}[operation]
        at += if_true if holds else if_false


@pytest.fixture(params=sorted(MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def test_ordinary_calls_pass(machine: str) -> None:
    calls = NUMBERS[machine]
    for name in ("read", "execve"):
        assert decide(machine, calls[name]) == ALLOWED
    assert decide(machine, 439) == ALLOWED  # faccessat2
    assert decide(machine, 436) == ALLOWED  # close_range


def test_everything_denied_is_denied(machine: str) -> None:
    table = MACHINES[machine]
    assert {decide(machine, call) for call in table.denied} == {"EPERM"}
    assert {decide(machine, call) for call in table.absent} == {"ENOSYS"}
    for name in ("mount", "unshare", "ptrace"):
        assert decide(machine, NUMBERS[machine][name]) == "EPERM"


def test_calls_newer_than_the_table_do_not_exist(machine: str) -> None:
    for call in (MACHINES[machine].last + 1, 500, 0x40000000 + 2, 0x7FFFFFFF):
        assert decide(machine, call) == "ENOSYS"
    assert decide(machine, 0, audit=0x40000003) == "ENOSYS"  # a 32-bit program


def test_modes_with_set_id_bits_are_refused_everywhere(machine: str) -> None:
    calls = NUMBERS[machine]
    places = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "mknodat": 2}
    for name, index in places.items():
        if name in calls:
            for mode, expected in ((0o755, ALLOWED), (0o1777, ALLOWED), (0o4755, "EPERM"), (0o2755, "EPERM")):
                arguments = [0] * index + [mode]
                assert decide(machine, calls[name], *arguments) == expected, (name, oct(mode))


def test_an_open_is_refused_only_when_it_creates(machine: str) -> None:
    calls = NUMBERS[machine]
    for name, index in (("openat", 2), ("open", 1)):
        if name in calls:
            before = [0] * index
            assert decide(machine, calls[name], *before, 0o100, 0o644) == ALLOWED
            assert decide(machine, calls[name], *before, 0o100, 0o4644) == "EPERM"
            assert decide(machine, calls[name], *before, 0o20200000, 0o4644) == "EPERM"
            assert decide(machine, calls[name], *before, 0o2, 0o7777) == ALLOWED  # its mode is not read


def test_arguments_of_the_other_calls(machine: str) -> None:
    calls = NUMBERS[machine]
    assert decide(machine, calls["clone"], 0x3D0F00) == ALLOWED  # a thread
    for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x02000000):
        assert decide(machine, calls["clone"], flag | 17) == "EPERM"
    assert decide(machine, calls["ioctl"], 0, 0x5401) == ALLOWED
    for request in (0x5412, 0x541C):
        assert decide(machine, calls["ioctl"], 0, request) == "EPERM"
        assert decide(machine, calls["ioctl"], 0, (1 << 32) | request) == "EPERM"  # the kernel reads 32 bits
    for family in (1, 2, 10):
        assert decide(machine, calls["socket"], family, 1, 0) == ALLOWED
    assert decide(machine, calls["socket"], 16, 3, 0) == ALLOWED
    assert decide(machine, calls["socket"], 16, 3, 9) == "EAFNOSUPPORT"
    for family in (17, 31, 38, 40, 44):
        assert decide(machine, calls["socket"], family, 1, 0) == "EAFNOSUPPORT"


def test_an_unknown_machine_is_said() -> None:
    with pytest.raises(UnknownMachine, match="'vax'"):
        program("vax")
