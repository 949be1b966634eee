"""What a command in the sandbox cannot do, and what it must still be able to do."""

import json
import os
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.tools.sandbox.conftest import Starter
from tools.sandbox import Ran

Bash = Callable[[str], Awaitable[Ran]]


async def test_a_command_never_has_roots_uid(started: Starter) -> None:
    sandbox = await started()
    running = await sandbox.run(["sh", "-c", "id -u; grep -h -e ^Cap -e ^NoNew /proc/self/status"])
    lines = running.stdout.decode().split()
    assert int(lines[0]) != 0
    facts = dict(zip(lines[1::2], lines[2::2], strict=True))
    assert facts.pop("NoNewPrivs:") == "1"
    assert set(facts.values()) == {"0" * 16}
    status = Path(f"/proc/{sandbox.init}/status").read_text()
    kernel_uid = int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])
    assert kernel_uid == sandbox.uid != 0
    if os.getuid() != 0:
        assert kernel_uid == os.getuid()


async def test_kernel_settings_and_devices_cannot_be_changed(bash: Bash) -> None:
    # The same values are written as are there: if the sandbox failed, nothing would change.
    settings = await bash("cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern")
    assert settings.exit_code != 0
    assert b"denied" in settings.stderr or b"Read-only" in settings.stderr
    before = os.stat("/dev/full").st_mode
    device = await bash(f"chmod {before & 0o777:o} /dev/full")
    assert device.exit_code != 0
    assert os.stat("/dev/full").st_mode == before
    assert (await bash("echo x > /dev/null && test ! -e /sys/kernel")).exit_code == 0


async def test_files_belong_to_the_owner_of_the_workspace(bash: Bash, root: Path) -> None:
    (root / "old").write_text("before")
    if os.getuid() == 0:  # a root server, a developer's workspace
        os.chown(root, 61001, 61002)
        os.chown(root / "old", 61001, 61002)
    assert (
        await bash("echo new > new; mkdir -p a/b; echo more >> old; chmod 755 new; rm -rf a; mkdir a")
    ).exit_code == 0
    for name in ("new", "a", "old"):
        status = (root / name).stat()
        assert (status.st_uid, status.st_gid) == (root.stat().st_uid, root.stat().st_gid)
    assert (root / "old").read_text() == "beforemore\n"
    seen = await bash("stat -c %U:%G new . ; id -un")
    assert len(set(seen.stdout.split()[:2])) == 1
    assert seen.stdout.split()[0].split(b":")[0] == seen.stdout.split()[-1]


async def test_nothing_of_the_server_is_in_the_environment(
    started: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    sandbox = await started(environment={"WANTED": "yes"})
    everything = "env; for p in /proc/[0-9]*; do cat $p/environ $p/cmdline; done 2>/dev/null | tr '\\0' '\\n'"
    ran = await sandbox.run(["bash", "-c", everything])
    assert b"very-secret" not in ran.stdout
    assert b"WANTED=yes" in ran.stdout
    first = (await sandbox.run(["cat", "/proc/1/environ"])).stdout.split(b"\0")
    assert [item.partition(b"=")[0] for item in first if item] == [b"PATH"]
    for expected in (
        b"GIT_TERMINAL_PROMPT=0",
        b"PAGER=cat",
        b"GIT_EDITOR=true",
        b"LANG=C.UTF-8",
        b"TERM=dumb",
    ):
        assert expected in ran.stdout


async def test_the_home_is_hidden(started: Starter, home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("PRIVATE KEY")
    (home / ".bashrc").write_text("export LEAKED=1")
    (home / "other").mkdir()
    sandbox = await started()
    ran = await sandbox.run(
        ["bash", "-c", f"cat {home}/.ssh/id_rsa; ls -A {home}; echo > {home}/.bashrc; echo $HOME"]
    )
    assert b"PRIVATE" not in ran.stdout
    assert ran.stdout.split() == [b"project", str(home).encode()]
    assert (home / ".bashrc").read_text() == "export LEAKED=1"


async def test_writing_outside_is_refused(bash: Bash, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    for target in ("/usr/bin/evil", "/etc/passwd", "/run/etude/shell.rc", "/lib/evil", "/evil", "/dev/evil"):
        assert (await bash(f"echo x > {target}")).exit_code != 0, target
    await bash(f"echo x > {victim}; rm -rf {tmp_path}/victim")
    assert victim.read_text() == "kept"
    assert (await bash("echo x > /tmp/mine && cat /tmp/mine")).stdout == b"x\n"
    assert not Path("/tmp/mine").exists()


@pytest.mark.case("agent-24")
async def test_links_lead_nowhere_outside(bash: Bash, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    (root / "link").symlink_to(secret)
    (root / "folder").symlink_to(tmp_path)
    ran = await bash(f"cat link folder/secret /proc/1/root{secret} /proc/self/root{secret}")
    assert b"SECRET" not in ran.stdout
    await bash("echo changed > link; echo x > folder/planted; echo changed > folder/secret")
    assert secret.read_text() == "SECRET"
    assert not (tmp_path / "planted").exists()
    for outside in ("/usr/bin/env", "/etc/services", str(secret)):
        assert (await bash(f"ln {outside} hard")).exit_code != 0
        assert not (root / "hard").exists()


async def test_other_processes_are_out_of_reach(bash: Bash) -> None:
    assert (await bash(f"kill -0 {os.getpid()}")).exit_code != 0
    ran = await bash("ls /proc | grep -c '^[0-9]'")
    assert int(ran.stdout) < 20


SYSTEM_CALLS = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    return errno.errorcode.get(ctypes.get_errno()) if libc.syscall(number, *arguments) < 0 else "did it"
arm = os.uname().machine == "aarch64"
found = {}
found["unshare user"] = call(97 if arm else 272, 0x10000000)
found["unshare mounts"] = call(97 if arm else 272, 0x20000)
found["setns"] = call(268 if arm else 308, 0, 0)
found["mount"] = call(40 if arm else 165, b"none", b"/tmp", b"tmpfs", 0, None)
found["umount"] = call(39 if arm else 166, b"/tmp", 0)
found["open_tree"] = call(428, -100, b"/tmp", 1)
found["move_mount"] = call(429, -1, b"", -1, b"", 4)
found["mount_setattr"] = call(442, -1, b"", 0, None, 0)
found["clone user"] = call(220 if arm else 56, 0x10000000 | 17, None, None, None, None)
found["clone3"] = call(435, None, 0)
found["ptrace"] = call(117 if arm else 101, 0, 0, 0, 0)
found["process_vm_readv"] = call(270 if arm else 310, 1, None, 0, None, 0, 0)
found["bpf"] = call(280 if arm else 321, 0, None, 0)
found["keyctl"] = call(219 if arm else 250, 0, 0)
found["io_uring"] = call(425, 1, None)
found["userfaultfd"] = call(282 if arm else 323, 0)
found["openat2"] = call(437, -100, b"x", None, 0)
found["newest"] = call(999, 0)
found["name_to_handle_at"] = call(264 if arm else 303, -100, b"/", None, None, 0)
families = (("vsock", 40, 1), ("packet", 17, 3), ("alg", 38, 5), ("bluetooth", 31, 3), ("xdp", 44, 3))
for name, family, kind in families:
    try:
        socket.socket(family, kind); found[name] = "did it"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
import fcntl, pty
main, _ = pty.openpty()
try:
    fcntl.ioctl(main, 0x5412, b"x"); found["TIOCSTI"] = "did it"
except OSError as error:
    found["TIOCSTI"] = errno.errorcode[error.errno]
def tried(name, action):
    try:
        action(); found[name] = "did it"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
open("f", "w").close()
tried("chmod setuid", lambda: os.chmod("f", 0o4755))
tried("chmod setgid", lambda: os.chmod("f", 0o2755))
tried("fchmod setuid", lambda: os.fchmod(os.open("f", os.O_RDWR), 0o6755))
tried("open setuid", lambda: os.open("g", os.O_CREAT | os.O_WRONLY, 0o4755))
tried("mknod setuid", lambda: os.mknod("h", 0o104755))
tried("tmpfile setuid", lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755))
tried("fchmodat setuid", lambda: os.chmod("f", 0o4755, dir_fd=os.open(".", os.O_RDONLY)))
import json
print(json.dumps(found))
"""


async def test_forbidden_system_calls_fail_as_if_they_did_not_exist(started: Starter, root: Path) -> None:
    sandbox = await started()
    ran = await sandbox.run(["/usr/bin/env", "python3", "-c", SYSTEM_CALLS])
    assert ran.exit_code == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert {name: code for name, code in found.items() if code == "did it"} == {}
    for name in ("clone3", "io_uring", "openat2", "newest"):
        assert found[name] == "ENOSYS", name
    for name in ("vsock", "packet", "alg", "bluetooth", "xdp"):
        assert found[name] == "EAFNOSUPPORT", name
    for name in (
        "unshare user",
        "mount",
        "clone user",
        "ptrace",
        "bpf",
        "TIOCSTI",
        "chmod setuid",
        "open setuid",
    ):
        assert found[name] == "EPERM", name
    assert not any(path.stat().st_mode & 0o6000 for path in root.iterdir())


async def test_ordinary_modes_and_archives_still_work(bash: Bash) -> None:
    script = (
        "mkdir d && echo x > d/f && chmod 755 d/f && tar czf a.tgz d && rm -r d && tar xzf a.tgz && cat d/f"
    )
    assert (await bash(f"{script} && install -m 755 d/f g && mkfifo p && ls")).exit_code == 0


async def test_the_network_is_the_sandboxes_own(bash: Bash) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0etude-test-{os.getpid()}")
    abstract.listen()
    try:
        port = server.getsockname()[1]
        connect = "python3 -c 'import socket; socket.create_connection((\"{}\", {}), 3)'"
        assert b"refused" in (await bash(connect.format("127.0.0.1", port))).stderr
        assert b"unreachable" in (await bash(connect.format("192.0.2.1", 80))).stderr
        code = f"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + 'etude-test-{os.getpid()}')"
        assert b"refused" in (await bash(f'python3 -c "{code}"')).stderr
    finally:
        server.close()
        abstract.close()
    serve = """python3 - <<'X'
import http.server, threading, urllib.request
server = http.server.HTTPServer(("localhost", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://localhost:{server.server_port}/").status)
X"""
    assert (await bash(serve)).stdout == b"200\n"


async def test_the_network_can_be_allowed(started: Starter) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    try:
        sandbox = await started(network=True)
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 3)"
        assert (await sandbox.run(["python3", "-c", code])).exit_code == 0
    finally:
        server.close()


async def test_interpreters_that_live_in_the_home_run_a_projects_tests(
    root: Path, home: Path, started: Starter
) -> None:
    """The workspace's environment links to a Python in `~/.pyenv`; a tool of `~/.nvm` is on PATH."""
    system = Path("/usr/bin/python3")
    if not system.exists():
        pytest.skip("needs the system's own Python as an interpreter that can be copied")
    binary = home / ".pyenv" / "versions" / "own" / "bin" / "python3"
    binary.parent.mkdir(parents=True)
    shutil.copy(system.resolve(), binary)
    tool = home / ".nvm" / "versions" / "node" / "v1" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho tool of the home\n")
    tool.chmod(0o755)
    environment = root / ".venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text(f"home = {binary.parent}\n")
    (environment / "bin" / "python").symlink_to(binary)
    (root / "test_it.py").write_text("def test_it():\n    assert 6 * 7 == 42\n")
    packages = Path(pytest.__file__).parent.parent
    sandbox = await started(read=(packages,), environment={"PYTHONPATH": str(packages)})
    program = [".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    assert b"1 passed" in (await sandbox.run(program)).stdout
    where = await sandbox.run(
        [".venv/bin/python", "-c", "import sys; print(sys.prefix, sys._base_executable)"]
    )
    assert where.stdout.decode().split()[0] == str(environment)
    assert (await sandbox.run([str(tool)])).stdout == b"tool of the home\n"
    assert (await sandbox.run(["touch", str(binary.parent / "evil")])).exit_code != 0
