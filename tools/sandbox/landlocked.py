"""Starts commands under Landlock and a system-call filter, where no namespaces can be had.

Run as a program of its own (`python -I -S landlocked.py ORDER`), because what it gives up it can never have
again. ORDER is a descriptor of one marshalled object: `{"server": pid, "handled": [files, network, scopes],
"rules": [[path, rights]], "filter": descriptor, "block": descriptor, "user": [uid, gid] or None,
"program": [...]}`. The rights are bits of the kernel's; a path that is gone by then is left out. This process
stays outside and ends everything when the server does; what it starts is inside for ever.
"""

import ctypes
import marshal
import os
import struct
import sys

CANNOT_CONFINE = 78

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same numbers on every machine
_VERSION, _PATH_BENEATH = 1, 1
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 1, 38, 22, 2
_O_PATH = 0o10000000
_EXECUTE, _WRITE_FILE, _READ_FILE, _TRUNCATE, _IOCTL = 1 << 0, 1 << 1, 1 << 2, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_SIGKILL = 9

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The version of Landlock that this kernel speaks; 0 where it has none or it is switched off."""
    version = _libc.syscall(ctypes.c_long(_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))
    return max(int(version), 0)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _rules(handled: list[int], rules: list[list[object]]) -> int:
    """A descriptor of the set of rules."""
    # Kernels before the fourth and sixth version refuse a structure with more in it than they know.
    known = 3 if handled[2] else 2 if handled[1] else 1
    attributes = struct.pack(f"{known}Q", *handled[:known])
    size = ctypes.c_size_t(len(attributes))
    made = _check(_libc.syscall(ctypes.c_long(_CREATE), attributes, size, 0), "landlock_create_ruleset")
    for path, rights in rules:
        assert isinstance(path, str) and isinstance(rights, int)
        try:
            place = os.open(path, _O_PATH | os.O_CLOEXEC)
        except OSError:  # gone meanwhile, or never there
            continue
        try:
            allowed = rights & handled[0]
            if not os.path.isdir(f"/proc/self/fd/{place}"):
                allowed &= _OF_FILES
            rule = struct.pack("=Qi", allowed, place)
            _check(
                _libc.syscall(ctypes.c_long(_ADD_RULE), made, _PATH_BENEATH, rule, 0),
                f"landlock_add_rule {path}",
            )
        finally:
            os.close(place)
    return made


def _enter(made: int, code: bytes, user: list[int] | None, guardian: int) -> None:
    """Give up everything, in the order in which each step still may."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:  # a container may forbid it; then the kernel chooses by size alone
        pass
    if user is not None:
        os.setgroups([])
        os.setresgid(user[1], user[1], user[1])
        os.setresuid(user[0], user[0], user[0])
    _check(_libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != guardian:
        os._exit(0)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    _check(_libc.syscall(ctypes.c_long(_RESTRICT), made, 0), "landlock_restrict_self")
    os.close(made)
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(held))
    _check(_libc.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0), "seccomp")


def main() -> None:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import unconfined

    with os.fdopen(int(sys.argv[1]), "rb") as file:
        order = marshal.load(file)
    with os.fdopen(order["filter"], "rb") as file:
        code = file.read()
    os.read(order["block"], 1)  # until the limits hold for this process and all it starts
    os.close(order["block"])
    guardian = os.getpid()

    def begin() -> None:
        try:
            made = _rules(order["handled"], order["rules"])
            _enter(made, code, order["user"], guardian)
            os.execv(order["program"][0], order["program"])
        except OSError as error:
            os.write(2, f"{error}\n".encode())
            os._exit(CANNOT_CONFINE)

    unconfined.guard(order["server"], begin)


if __name__ == "__main__":
    main()
