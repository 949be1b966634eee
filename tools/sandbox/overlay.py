"""Holds the mounts of forked workspaces in a namespace of its own, and copies trees.

Run as a program of its own (`python -I -S overlay.py SERVER VIEW`). The mounts lie below VIEW, an empty
folder on the host that is covered by a memory file system here: other processes reach them through
`/proc/PID/root`, and they vanish with this process, which ends with the server. Root needs a mount
namespace only; an ordinary user gets a user namespace in which its own uid is the only one.

Speaks one JSON object a line. First it says `{"overlay": bool, "why": text}`. Then it answers each request
with `{}` and results, or `{"error": errno, "why": text}`:

- `{"mount": name, "lower": path, "layers": path or null, "size": bytes or null, "owner": [uid, gid],
  "mode": bits}` mounts a fork at VIEW/name; its upper layer lies in `layers`, or where that is null in memory
  of at most `size` bytes, in VIEW/name.layers;
- `{"unmount": name}`;
- `{"copy": source, "to": target, "owner": [uid, gid] or null}` makes an independent copy (files that are
  one stay one, holes stay holes), sharing blocks where the file system can: `{"shared": bool, "files": n}`.
"""

import ctypes
import errno
import fcntl
import json
import os
import signal
import stat
import sys

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_FICLONE = 0x40049409
_PIECE = 8 << 20

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    result = _libc.mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount {target}")


def _enter() -> None:
    """Become the only process of a new mount namespace, with the right to mount in it."""
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(_CLONE_NEWNS | (_CLONE_NEWUSER if uid else 0)), "unshare")
    if uid:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE, None)


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _fork(view: str, request: dict) -> dict:
    name, (uid, gid) = request["mount"], request["owner"]
    place, layers = os.path.join(view, name), request["layers"]
    os.mkdir(place)
    mounted = []
    try:
        if layers is None:
            layers = place + ".layers"
            os.mkdir(layers)
            options = f"size={request['size']},mode=0700,nr_inodes=0"
            _mount("tmpfs", layers, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
            mounted.append(layers)
        upper, work = os.path.join(layers, "upper"), os.path.join(layers, "work")
        for folder in (upper, work):
            os.mkdir(folder)
        if os.getuid() == 0:
            os.chown(upper, uid, gid)
        os.chmod(upper, request["mode"])
        parts = (("lowerdir", request["lower"]), ("upperdir", upper), ("workdir", work))
        options = ",".join(f"{key}={_escaped(path)}" for key, path in parts) + ",userxattr"
        _mount("overlay", place, "overlay", _MS_NOSUID | _MS_NODEV, options)
    except BaseException:
        for path in mounted:
            _libc.umount2(os.fsencode(path), _MNT_DETACH)
        for path in (place, place + ".layers"):
            if os.path.isdir(path):
                os.rmdir(path)
        raise
    return {}


def _unmount(view: str, request: dict) -> dict:
    place = os.path.join(view, request["unmount"])
    for path in (place, place + ".layers"):
        if os.path.isdir(path):
            _check(_libc.umount2(os.fsencode(path), _MNT_DETACH), f"umount {path}")
            os.rmdir(path)
    return {}


def _copy(_: str, request: dict) -> dict:
    source, target, owner = request["copy"], request["to"], request["owner"]
    copier = _Copier(owner)
    copier.tree(source, target)
    return {"shared": copier.shared, "files": copier.files}


class _Copier:
    def __init__(self, owner: list | None) -> None:
        self.owner = owner
        self.files = 0
        self.shared = True
        self._same: dict = {}

    def tree(self, source: str, target: str) -> None:
        folders = []
        waiting = [(source, target)]
        while waiting:
            here, there = waiting.pop()
            folders.append((there, os.lstat(here)))
            os.mkdir(there, 0o700)
            with os.scandir(here) as entries:
                listed = list(entries)
            for entry in listed:
                to = os.path.join(there, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, to))
                else:
                    self._entry(entry, to)
        for there, status in reversed(folders):  # inner folders first: filling one changes its time
            self._like(there, status)

    def _entry(self, entry: os.DirEntry, to: str) -> None:
        status = entry.stat(follow_symlinks=False)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFLNK:
            os.symlink(os.readlink(entry.path), to)
        elif kind == stat.S_IFIFO:
            os.mkfifo(to)
        elif kind == stat.S_IFREG:
            if status.st_nlink > 1:
                first = self._same.setdefault((status.st_dev, status.st_ino), to)
                if first is not to:
                    os.link(first, to)
                    return
            self._file(entry.path, to)
            self.files += 1
        else:
            return  # a socket or device means nothing in a copy
        self._like(to, status)

    def _file(self, path: str, to: str) -> None:
        source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            target = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                self._content(source, target)
                self._attributes(source, target)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _content(self, source: int, target: int) -> None:
        size = os.fstat(source).st_size
        if self.shared and size:
            try:
                fcntl.ioctl(target, _FICLONE, source)
                return
            except OSError:
                self.shared = False
        at = 0
        while at < size:
            try:
                begin = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # ENXIO: nothing but a hole is left
                    raise
                break
            end = os.lseek(source, begin, os.SEEK_HOLE)
            os.lseek(source, begin, os.SEEK_SET)
            os.lseek(target, begin, os.SEEK_SET)
            left = end - begin
            while left > 0:
                data = os.read(source, min(left, _PIECE))
                if not data:
                    break
                left -= len(data)
                view = memoryview(data)
                while view:
                    view = view[os.write(target, view) :]
            at = end
        os.ftruncate(target, size)

    def _attributes(self, source: int, target: int) -> None:
        try:
            names = os.listxattr(source)
        except OSError:
            return
        for name in names:
            if name.startswith("user.") and not name.startswith("user.overlay."):
                try:
                    os.setxattr(target, name, os.getxattr(source, name))
                except OSError as error:
                    if error.errno not in (errno.ENOTSUP, errno.ENODATA, errno.EPERM):
                        raise

    def _like(self, to: str, status: os.stat_result) -> None:
        if self.owner is not None:
            os.chown(to, *self.owner, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            os.chmod(to, stat.S_IMODE(status.st_mode) & ~0o6000)
        os.utime(to, ns=(status.st_mtime_ns, status.st_mtime_ns), follow_symlinks=False)


_REQUESTS = {"mount": _fork, "unmount": _unmount, "copy": _copy}


def _say(answer: dict) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def main() -> None:
    server, view = int(sys.argv[1]), sys.argv[2]
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        return
    try:
        _enter()
        _mount("tmpfs", view, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=0755")
        _say({"overlay": True, "why": ""})
    except OSError as error:
        _say({"overlay": False, "why": str(error)})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        act = next(action for key, action in _REQUESTS.items() if key in request)
        try:
            _say(act(view, request))
        except OSError as error:
            where = f" ({os.fsencode(error.filename)!r})" if error.filename else ""
            _say({"error": error.errno, "why": f"{error.strerror or error}{where}"})


if __name__ == "__main__":
    main()
