"""The system-call filter of a sandbox, assembled as classic BPF.

Known calls are allowed unless listed here; calls newer than this table do not exist (ENOSYS), so a
program falls back to the older one. What is denied: everything that could undo the mounts (mount family,
namespaces), reach other processes or the kernel's own machinery, open a socket family that the network
namespace does not confine, push input into a terminal, or leave a set-user-id file behind.
"""

import errno
import platform
import struct
from typing import Final, NamedTuple

RET_ALLOW: Final = 0x7FFF0000
RET_ERRNO: Final = 0x00050000

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_GREATER: Final = 0x25  # BPF_JMP | BPF_JGT | BPF_K
_AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
_ANY_BIT: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K

_NUMBER: Final = 0  # offsets into struct seccomp_data
_ARCH: Final = 4
_ARGUMENTS: Final = 16

_SET_ID: Final = 0o6000
_CREATES: Final = 0o100 | 0o20000000  # O_CREAT, __O_TMPFILE: the same on both machines
_NAMESPACES: Final = 0x7E020000  # CLONE_NEW{CGROUP,UTS,IPC,USER,PID,NET,NS}
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_TYPE, _SOCK_DGRAM = 0xF, 2


class Shared(NamedTuple):
    """What else must be denied where commands share the namespaces of the machine: kinds of calls that
    reach another process of the same user, or its memory, by a number or a name."""

    truncate: int
    socketpair: int
    denied: tuple[int, ...]
    """System V and POSIX message queues, semaphores, shared memory."""
    unsupported: tuple[int, ...]
    """Extended attributes by path: no rule about files covers them."""
    of_others: tuple[tuple[int, int], ...]
    """(call, index of its argument that is 0 for oneself)."""


class Machine(NamedTuple):
    """One architecture: its audit number, the newest call this table knows, and the calls by meaning."""

    audit: int
    last: int
    denied: tuple[int, ...]
    absent: tuple[int, ...]
    clone: int
    ioctl: int
    socket: int
    modes: tuple[tuple[int, int], ...]
    """(call, index of its mode argument): always a mode."""
    opens: tuple[tuple[int, int, int], ...]
    """(call, index of its flags, index of its mode): a mode only where the flags create."""
    shared: Shared


# Calls since Linux 5.1 have one number everywhere.
_DENIED_EVERYWHERE: Final = (
    428,  # open_tree
    429,  # move_mount
    430,  # fsopen
    431,  # fsconfig
    432,  # fsmount
    433,  # fspick
    438,  # pidfd_getfd
    442,  # mount_setattr
    443,  # quotactl_fd
)
_ABSENT_EVERYWHERE: Final = (
    425,  # io_uring_setup
    426,  # io_uring_enter
    427,  # io_uring_register
    435,  # clone3: its flags lie in memory, out of a filter's sight
    437,  # openat2: so do its flags and mode
    452,  # fchmodat2
    457,  # statmount
    458,  # listmount
)
_ATTRIBUTES_EVERYWHERE: Final = (463, 466)  # setxattrat, removexattrat
_LAST: Final = 466  # removexattrat

MACHINES: Final = {
    "x86_64": Machine(
        audit=0xC000003E,
        last=_LAST,
        denied=(
            101,  # ptrace
            103,  # syslog
            134,  # uselib
            153,  # vhangup
            155,  # pivot_root
            159,  # adjtimex
            161,  # chroot
            163,  # acct
            164,  # settimeofday
            165,  # mount
            166,  # umount2
            167,  # swapon
            168,  # swapoff
            169,  # reboot
            172,  # iopl
            173,  # ioperm
            174,  # create_module
            175,  # init_module
            176,  # delete_module
            179,  # quotactl
            180,  # nfsservctl
            212,  # lookup_dcookie
            227,  # clock_settime
            246,  # kexec_load
            248,  # add_key
            249,  # request_key
            250,  # keyctl
            272,  # unshare
            298,  # perf_event_open
            300,  # fanotify_init
            303,  # name_to_handle_at
            304,  # open_by_handle_at
            305,  # clock_adjtime
            308,  # setns
            310,  # process_vm_readv
            311,  # process_vm_writev
            312,  # kcmp
            313,  # finit_module
            320,  # kexec_file_load
            321,  # bpf
            323,  # userfaultfd
            *_DENIED_EVERYWHERE,
        ),
        absent=_ABSENT_EVERYWHERE,
        clone=56,
        ioctl=16,
        socket=41,
        modes=((85, 1), (90, 1), (91, 1), (133, 1), (259, 2), (268, 2)),  # creat chmod fchmod mknod *at
        opens=((2, 1, 2), (257, 2, 3)),
        shared=Shared(
            truncate=76,
            socketpair=53,
            denied=(
                29,
                30,
                31,
                64,
                65,
                66,
                68,
                69,
                70,
                71,
                220,
                240,
                241,
            ),  # shm* sem* msg* mq_open mq_unlink
            unsupported=(188, 189, 197, 198, *_ATTRIBUTES_EVERYWHERE),  # setxattr, removexattr and l-
            # prlimit64 setpriority ioprio_set, sched_set{param,scheduler,affinity,attr}
            of_others=((302, 0), (141, 1), (251, 1), (142, 0), (144, 0), (203, 0), (314, 0)),
        ),
    ),
    "aarch64": Machine(
        audit=0xC00000B7,
        last=_LAST,
        denied=(
            18,  # lookup_dcookie
            39,  # umount2
            40,  # mount
            41,  # pivot_root
            42,  # nfsservctl
            51,  # chroot
            58,  # vhangup
            60,  # quotactl
            89,  # acct
            97,  # unshare
            104,  # kexec_load
            105,  # init_module
            106,  # delete_module
            112,  # clock_settime
            116,  # syslog
            117,  # ptrace
            142,  # reboot
            170,  # settimeofday
            171,  # adjtimex
            217,  # add_key
            218,  # request_key
            219,  # keyctl
            224,  # swapon
            225,  # swapoff
            241,  # perf_event_open
            262,  # fanotify_init
            264,  # name_to_handle_at
            265,  # open_by_handle_at
            266,  # clock_adjtime
            268,  # setns
            270,  # process_vm_readv
            271,  # process_vm_writev
            272,  # kcmp
            273,  # finit_module
            280,  # bpf
            282,  # userfaultfd
            294,  # kexec_file_load
            *_DENIED_EVERYWHERE,
        ),
        absent=_ABSENT_EVERYWHERE,
        clone=220,
        ioctl=29,
        socket=198,
        modes=((33, 2), (52, 1), (53, 2)),  # mknodat fchmod fchmodat
        opens=((56, 2, 3),),
        shared=Shared(
            truncate=45,
            socketpair=199,
            denied=(194, 195, 196, 190, 191, 192, 193, 186, 187, 188, 189, 180, 181),
            unsupported=(5, 6, 14, 15, *_ATTRIBUTES_EVERYWHERE),
            of_others=((261, 0), (140, 1), (30, 1), (118, 0), (119, 0), (122, 0), (274, 0)),
        ),
    ),
}


class UnknownMachine(Exception):
    """No table of system calls for this processor, so nothing can be confined here."""


class Instruction(NamedTuple):
    code: int
    jump_true: int
    jump_false: int
    value: int

    def encode(self) -> bytes:
        return struct.pack("<HBBI", self.code, self.jump_true, self.jump_false, self.value)


def _load(offset: int) -> Instruction:
    return Instruction(_LOAD, 0, 0, offset)


def _argument(index: int) -> Instruction:
    """The low 32 bits of an argument: flags, modes and domains all lie there (little-endian)."""
    return _load(_ARGUMENTS + 8 * index)


def _fail(number: int) -> Instruction:
    return Instruction(_RETURN, 0, 0, RET_ERRNO | number)


_ALLOW: Final = Instruction(_RETURN, 0, 0, RET_ALLOW)


def _on(call: int, body: list[Instruction]) -> list[Instruction]:
    """Run `body`, which must end in a return, when the loaded call number is `call`."""
    return [Instruction(_EQUAL, 0, len(body), call), *body]


def _equal_fails(values: tuple[int, ...], number: int) -> list[Instruction]:
    """Fail with `number` if the loaded value is one of `values`, else allow."""
    last = len(values) - 1
    tests = [Instruction(_EQUAL, last - index + 1, 0, value) for index, value in enumerate(values)]
    return [*tests, _ALLOW, _fail(number)]


def _bits_fail(mask: int, number: int) -> list[Instruction]:
    return [Instruction(_ANY_BIT, 1, 0, mask), _ALLOW, _fail(number)]


def _socket_rule() -> list[Instruction]:
    """Families that the network namespace confines; of netlink only the routing protocol (0)."""
    netlink = [_argument(2), Instruction(_EQUAL, 0, 1, 0), _ALLOW, _fail(errno.EAFNOSUPPORT)]
    families = (_AF_UNIX, _AF_INET, _AF_INET6)
    tests = [Instruction(_EQUAL, len(families) - index, 0, value) for index, value in enumerate(families)]
    return [
        _argument(0),
        *tests,
        Instruction(_EQUAL, 2, 1, _AF_NETLINK),
        _ALLOW,
        _fail(errno.EAFNOSUPPORT),
        *netlink,
    ]


def _shared_rules(table: Machine, network: bool, truncate: bool) -> list[Instruction]:
    """For a tier without namespaces of its own. A socket is then the machine's: one of a path reaches
    whatever listens there, so there are none but pairs, and with the network those of the internet.

    A pair of datagram sockets can be pointed elsewhere; one of streams cannot.
    """
    shared = table.shared
    code: list[Instruction] = []
    families = (_AF_INET, _AF_INET6) if network else ()
    tests = [Instruction(_EQUAL, len(families) - index, 0, value) for index, value in enumerate(families)]
    code += _on(table.socket, [_argument(0), *tests, _fail(errno.EAFNOSUPPORT), *([_ALLOW] if tests else [])])
    datagrams = [Instruction(_AND, 0, 0, _SOCK_TYPE), Instruction(_EQUAL, 1, 0, _SOCK_DGRAM), _ALLOW]
    code += _on(shared.socketpair, [_argument(1), *datagrams, _fail(errno.EPERM)])
    for call in shared.denied:
        code += _on(call, [_fail(errno.EPERM)])
    for call in shared.unsupported:
        code += _on(call, [_fail(errno.EOPNOTSUPP)])
    for call, argument in shared.of_others:
        code += _on(call, [_argument(argument), *_equal_allows(0, errno.EPERM)])
    if not truncate:
        code += _on(shared.truncate, [_fail(errno.EPERM)])
    return code


def _equal_allows(value: int, number: int) -> list[Instruction]:
    return [Instruction(_EQUAL, 0, 1, value), _ALLOW, _fail(number)]


def shared_program(network: bool, truncate: bool, machine: str | None = None) -> bytes:
    """The filter for commands that share the namespaces of the machine. `truncate`: whether something
    else watches over truncate(2), which names a file by its path.

    Raises:
        UnknownMachine
    """
    table = _table(machine)
    return _assembled(table, _shared_rules(table, network, truncate))


def program(machine: str | None = None) -> bytes:
    """The filter as the array of `struct sock_filter` that `bwrap --seccomp` reads.

    Raises:
        UnknownMachine: there is no table for this processor.
    """
    table = _table(machine)
    return _assembled(table, _on(table.socket, _socket_rule()))


def _table(machine: str | None) -> Machine:
    name = machine or platform.machine()
    table = MACHINES.get(name)
    if table is None:
        raise UnknownMachine(
            f"No system-call table for the processor {name!r}; known are {', '.join(MACHINES)}. "
            "Commands cannot be confined here."
        )
    return table


def _assembled(table: Machine, more: list[Instruction]) -> bytes:
    code = [
        _load(_ARCH),
        Instruction(_EQUAL, 1, 0, table.audit),  # a 32-bit program has other numbers: none of its calls exist
        _fail(errno.ENOSYS),
        _load(_NUMBER),
        Instruction(_GREATER, 0, 1, table.last),
        _fail(errno.ENOSYS),
    ]
    for call in table.denied:
        code += _on(call, [_fail(errno.EPERM)])
    for call in table.absent:
        code += _on(call, [_fail(errno.ENOSYS)])
    code += _on(table.clone, [_argument(0), *_bits_fail(_NAMESPACES, errno.EPERM)])
    code += _on(table.ioctl, [_argument(1), *_equal_fails((_TIOCSTI, _TIOCLINUX), errno.EPERM)])
    code += more
    for call, mode in table.modes:
        code += _on(call, [_argument(mode), *_bits_fail(_SET_ID, errno.EPERM)])
    for call, flags, mode in table.opens:
        creates = [Instruction(_ANY_BIT, 1, 0, _CREATES), _ALLOW]
        code += _on(call, [_argument(flags), *creates, _argument(mode), *_bits_fail(_SET_ID, errno.EPERM)])
    code.append(_ALLOW)
    return b"".join(instruction.encode() for instruction in code)
