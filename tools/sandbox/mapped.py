"""Starts bubblewrap for a server that runs as root, without ever giving it root's uid.

Run as a program of its own (`python -I -S mapped.py`, as root) because it changes its mount namespace and
its user. A command with kernel uid 0 could write /proc/sys and change device modes whatever its
namespaces say; so the workspace is mounted with its owner's uid mapped to a spare one, everything else
that bubblewrap shows is gathered beside it, and bubblewrap starts as the spare uid. Files created inside
belong to the workspace's owner.

Reads one marshalled object from the descriptor named by its only argument: `{"paths": [[path, owner, group,
map]], "holder": pid or null, "stage": folder, "uid": spare, "links": {name: index}, "program": [...]}`.
Each path is mounted at `stage/INDEX`, each link made beside them; with a holder, the paths are those of its
mounts. Exits 77 if the workspace (the first path) cannot be mapped on its file system.
"""

import ctypes
import errno
import marshal
import os
import sys

CANNOT_MAP = 77

_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 0x1, 0o2000000
_MOVE_MOUNT_F_EMPTY_PATH = 0x4
_MOUNT_ATTR_IDMAP = 0x00100000
_SIGPIPE, _SIGXFSZ = 13, 25

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(what: str, number: int, *arguments: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), what)


def _clone_mount(path: str, recursive: bool) -> int:
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    return _syscall("open_tree", _SYS_OPEN_TREE, _AT_FDCWD, os.fsencode(path), ctypes.c_uint(flags))


def _user_namespace(owner: int, group: int, spare: int) -> int:
    """A descriptor of a user namespace that maps `owner` (and `group`) to `spare`."""
    ready_read, ready_write = os.pipe()
    hold_read, hold_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hold_write)
        made = _libc.unshare(_CLONE_NEWUSER) == 0
        os.write(ready_write, b"1" if made else b"0")
        os.read(hold_read, 1)  # until the parent has the namespace
        os._exit(0)
    try:
        if os.read(ready_read, 1) != b"1":
            raise OSError(errno.EPERM, "unshare: a user namespace is refused")
        for name, outer in (("uid_map", owner), ("gid_map", group)):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write(f"{outer} {spare} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in (ready_read, ready_write, hold_read, hold_write):
            os.close(descriptor)
        os.waitpid(child, 0)


def _map(tree: int, namespace: int, recursive: bool) -> None:
    attributes = _MountAttributes(_MOUNT_ATTR_IDMAP, 0, 0, namespace)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    _syscall(
        "mount_setattr",
        _SYS_MOUNT_SETATTR,
        tree,
        b"",
        ctypes.c_uint(flags),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )


def _mapped_tree(path: str, namespace: int) -> int:
    """A clone of the mount at `path` with its owner mapped; without mounts below it if they refuse."""
    for recursive in (True, False):
        tree = _clone_mount(path, recursive)
        try:
            _map(tree, namespace, recursive)
        except OSError:
            os.close(tree)
            if not recursive:
                raise
        else:
            return tree
    raise AssertionError("the loop returns or raises")


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None) -> None:
    result = _libc.mount(source, target, kind, ctypes.c_ulong(flags), data)
    _check(result, f"mount {target.decode()}")


def main() -> None:
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        order = marshal.load(file)
    spare, stage = order["uid"], order["stage"]
    namespaces: dict[tuple[int, int], int] = {}
    if order["holder"] is not None:
        mounts = os.open(f"/proc/{order['holder']}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        _check(_libc.setns(mounts, _CLONE_NEWNS), "setns")
        os.close(mounts)
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    trees: list[int] = []
    for index, (path, owner, group, mapped) in enumerate(order["paths"]):
        if not mapped:
            trees.append(_clone_mount(path, True))
            continue
        try:
            key = (owner, group)
            if key not in namespaces:
                namespaces[key] = _user_namespace(owner, group, spare)
            trees.append(_mapped_tree(path, namespaces[key]))
        except OSError as error:
            if index == 0:
                sys.stderr.write(f"cannot map {path}: {error}\n")
                sys.exit(CANNOT_MAP)
            trees.append(_clone_mount(path, True))
    _mount(b"tmpfs", os.fsencode(stage), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"size=1m,mode=0755")
    for index, tree in enumerate(trees):
        place = os.path.join(stage, str(index))
        if os.path.isdir(f"/proc/self/fd/{tree}"):
            os.mkdir(place, 0o755)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        target = os.fsencode(place)
        empty = ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH)
        _syscall("move_mount", _SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, target, empty)
        os.close(tree)
    for link, target in order["links"].items():
        os.symlink(target, os.path.join(stage, link))
    for namespace in namespaces.values():
        os.close(namespace)
    os.chdir("/")
    os.setgroups([])
    os.setresgid(spare, spare, spare)
    os.setresuid(spare, spare, spare)
    for number in (_SIGPIPE, _SIGXFSZ):  # Python ignores them, and exec would pass that on
        _libc.signal(number, None)
    os.execve(order["program"][0], order["program"], {"PATH": "/usr/bin:/bin"})


if __name__ == "__main__":
    main()
