"""Attempts on other processes and on the kernel: signals, tracing, namespaces, machinery, limits, time."""

import os
import signal
import time
from pathlib import Path

from tests.tools.sandbox.escapes.attempt import Attempt, Stage
from tools.sandbox import Ran, processes


def _stopped(stage: Stage, ran: Ran) -> bool:
    state = Path(f"/proc/{stage.host}/stat").read_text().rpartition(")")[2].split()[0]
    if state in "Tt":
        os.kill(stage.host, signal.SIGCONT)
    return state in "Tt"


def _many(stage: Stage, ran: Ran) -> bool:
    """More processes than the policy's 64 (and ours) came to be."""
    return b"forked 200" in ran.stdout


def _escaped_its_group(stage: Stage, ran: Ran) -> bool:
    group = stage.sandbox.group
    if group is None:
        return False
    held = {int(line) for folder in group.folders for line in (folder / "cgroup.procs").read_text().split()}
    return any(pid not in held for pid in processes.descendants(stage.sandbox.init)
               if processes.identify(pid) is not None)  # fmt: skip


def _survives(stage: Stage, ran: Ran) -> bool:
    stage.sandbox.kill()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and _marked():
        time.sleep(0.01)
    return bool(_marked())


def _marked() -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and b"7654.321" in Path("/proc", name, "cmdline").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


ATTEMPTS = (
    Attempt("end a process outside", "kill -9 @PID@; kill -TERM @PID@", control=True),
    Attempt("stop a process outside", "kill -STOP @PID@", escaped=_stopped, control=True),
    Attempt(
        "end everything",
        r"""#py
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.kill(-1, signal.SIGTERM)
""",
    ),
    Attempt(
        "end by the other calls",
        r"""#py
syscall('tkill', 200, 130, @PID@, 9)
syscall('tgkill', 234, 131, @PID@, @PID@, 9)
syscall('sigqueue', 129, 138, @PID@, 10, ctypes.create_string_buffer(128))
""",
        control=True,
    ),
    Attempt(
        "end by a descriptor",
        r"""#py
tried('signal', lambda: signal.pidfd_send_signal(os.pidfd_open(@PID@), 9))
""",
        control=True,
    ),
    Attempt(
        "end by a file's owner",
        r"""#py
read, write = os.pipe()
fcntl.fcntl(read, 10, 9)
fcntl.fcntl(read, fcntl.F_SETOWN, @PID@)
fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
os.write(write, b'x')
time.sleep(0.1)
""",
        control=True,
    ),
    Attempt(
        "end the process that watches",
        r"""kill -9 $PPID; p=$(awk '{print $4}' /proc/$PPID/stat); kill -9 $(awk '{print $4}' /proc/$p/stat)
""",
    ),
    Attempt(
        "trace a process",
        r"""#py
syscall('attach', 101, 117, 16, @PID@, None, None)
syscall('seize', 101, 117, 0x4206, @PID@, None, None)
""",
        control=True,
    ),
    Attempt(
        "read and write memory of a process",
        r"""#py
buffer = ctypes.create_string_buffer(8)
vector = struct.pack('QQ', ctypes.addressof(buffer), 8)
for line in open('/proc/self/maps'):
    start = int(line.split('-')[0], 16)
    break
remote = struct.pack('QQ', start, 8)
syscall('readv', 310, 270, @PID@, vector, 1, remote, 1, 0)
syscall('writev', 311, 271, @PID@, vector, 1, remote, 1, 0)
syscall('own readv', 310, 270, 1, vector, 1, remote, 1, 0)
""",
    ),
    Attempt(
        "take a descriptor of a process",
        r"""#py
fd = libc.syscall(434, @PID@, 0)
for number in (0, 1, 2, 3): syscall('getfd', 438, 438, fd, number, 0)
""",
        control=True,
    ),
    Attempt(
        "compare, advise, move memory",
        r"""#py
syscall('kcmp', 312, 272, @PID@, os.getpid(), 0, 0, 0)
fd = libc.syscall(434, @PID@, 0)
syscall('process_madvise', 440, 440, fd, struct.pack('QQ', 0x1000, 0x1000), 1, 20, 0)
syscall('migrate_pages', 256, 238, @PID@, 64, struct.pack('Q', 1), struct.pack('Q', 1))
""",
    ),
    Attempt(
        "change bounds of a process",
        r"""#py
import resource
for action in (lambda: resource.prlimit(@PID@, resource.RLIMIT_NOFILE, (77, 77)),
               lambda: os.setpriority(os.PRIO_PROCESS, @PID@, 7),
               lambda: os.sched_setscheduler(@PID@, os.SCHED_IDLE, os.sched_param(0))):
    try: action()
    except OSError as error: print(error)
""",
        control=True,
    ),
    Attempt(
        "unshare",
        r"""
unshare -Ur true && echo ESCAPED; unshare -m true && echo ESCAPED; unshare -n true && echo ESCAPED;
unshare -Urpf true && echo ESCAPED; unshare -UrC true && echo ESCAPED; unshare -T true && echo ESCAPED
""",
    ),
    Attempt(
        "unshare by the call",
        r"""#py
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000000, 0x4000000, 0x2000000, 0x80):
    pid = os.fork()
    if pid == 0:
        syscall(hex(flag), 272, 97, flag)
        os._exit(0)
    os.waitpid(pid, 0)
""",
    ),
    Attempt(
        "clone into namespaces",
        r"""#py
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000000, 0x4000000, 0x2000000):
    pid = libc.syscall(220 if arm else 56, ctypes.c_ulong(flag | 17), None, None, None, None)
    if pid == 0: os._exit(0)
    if pid > 0: did(hex(flag))
""",
    ),
    Attempt(
        "clone3",
        r"""#py
arguments = struct.pack('8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0)
pid = libc.syscall(435, arguments, 64)
if pid == 0: os._exit(0)
if pid > 0: did('clone3')
""",
    ),
    Attempt(
        "enter namespaces",
        r"""#py
for pid in (1, @PID@, os.getppid()):
  for kind in ('user', 'mnt', 'net', 'pid', 'ipc', 'uts', 'cgroup'):
    try: fd = os.open(f'/proc/{pid}/ns/{kind}', os.O_RDONLY)
    except OSError: continue
    syscall(f'setns {pid} {kind}', 308, 268, fd, 0)
  fd = libc.syscall(434, pid, 0)
  if fd >= 0: syscall('setns pidfd', 308, 268, fd, 0x20000)
""",
    ),
    Attempt("nsenter", "nsenter -t @PID@ -a true && echo ESCAPED; nsenter -t 1 -m true && echo ESCAPED"),
    Attempt(
        "io_uring",
        r"""#py
syscall('setup', 425, 425, 8, ctypes.create_string_buffer(120))
syscall('enter', 426, 426, 0, 1, 0, 0, None, 0)
syscall('register', 427, 427, -1, 0, None, 0)
""",
    ),
    Attempt(
        "bpf",
        r"""#py
syscall('map', 321, 280, 0, struct.pack('4I', 2, 4, 4, 1) + bytes(100), 116)
syscall('load', 321, 280, 5, bytes(128), 128)
""",
    ),
    Attempt(
        "userfaultfd",
        r"""#py
syscall('userfaultfd', 323, 282, 1)
syscall('both', 323, 282, 0)
""",
    ),
    Attempt(
        "keys",
        r"""#py
syscall('keyctl', 250, 219, 0, -3, 1)
syscall('session', 250, 219, 1, None)
syscall('add_key', 248, 217, b'user', b'etude', b'x', 1, -4)
syscall('request', 249, 218, b'user', b'etude', None, -4)
""",
    ),
    Attempt(
        "performance events",
        r"""#py
syscall('perf', 298, 241, struct.pack('II', 1, 120) + bytes(112), 0, -1, -1, 0)
""",
    ),
    Attempt(
        "modules and kernels",
        r"""#py
syscall('init', 175, 105, b'x', 1, b'')
syscall('finit', 313, 273, 0, b'', 0)
syscall('delete', 176, 106, b'etude_none', 0)
syscall('kexec', 246, 104, 0, 0, None, 0)
syscall('kexec file', 320, 294, -1, -1, 0, None, 4)
""",
    ),
    Attempt(
        "watch all files",
        r"""#py
syscall('fanotify', 300, 262, 0, 0)
syscall('fanotify fid', 300, 262, 0x200, 0)
""",
    ),
    Attempt("the kernel's log", "dmesg 2>/dev/null | grep -q . && echo ESCAPED"),
    Attempt(
        "the kernel's log by the call",
        r"""#py
syscall('read all', 103, 116, 3, ctypes.create_string_buffer(512), 512)
syscall('size', 103, 116, 10, None, 0)
""",
    ),
    Attempt(
        "set the time",
        r"""#py
now = time.clock_gettime_ns(0)
spec = struct.pack('qq', *divmod(now, 10**9))
syscall('clock_settime', 227, 112, 0, spec)
syscall('settimeofday', 164, 170, struct.pack('qq', now // 10**9, now % 10**9 // 1000), None)
syscall('zone', 164, 170, None, struct.pack('ii', 0, 0))
""",
    ),
    Attempt(
        "adjust the clock",
        r"""#py
syscall('adjtimex', 159, 171, ctypes.create_string_buffer(256))
syscall('clock_adjtime', 305, 266, 0, ctypes.create_string_buffer(256))
""",
    ),
    Attempt(
        "name the machine",
        r"""#py
name = os.uname().nodename.encode()
syscall('hostname', 170, 161, name, len(name))
syscall('domain', 171, 162, b'(none)', 6)
""",
    ),
    Attempt(
        "swap, accounting, quotas, ports",
        r"""#py
syscall('swapon', 167, 224, b'@ROOT@/none', 0)
syscall('swapoff', 168, 225, b'/none')
syscall('acct', 163, 89, b'@ROOT@/none')
syscall('acct off', 163, 89, None)
syscall('quotactl', 179, 60, 0x800007, None, 0, None)
if not arm: syscall('iopl', 172, -1, 3); syscall('ioperm', 173, -1, 0x80, 1, 1)
""",
    ),
    Attempt(
        "calls of another architecture",
        r"""#py
syscall('x32 getpid', 0x40000000 + 39, -1)
syscall('x32 mount', 0x40000000 + 165, -1, None, b'/', None, 0x20, None)
syscall('not yet invented', 600, 600)
""",
    ),
    Attempt(
        "32-bit calls",
        r"""#py
if not arm:
  code = mmap.mmap(-1, 4096, prot=7)
  code.write(bytes.fromhex('53b814000000cd805bc3'))  # getpid by int 0x80
  pid = os.fork()
  if pid == 0:
    run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    if run() > 0: did('int 0x80')
    os._exit(0)
  os.waitpid(pid, 0)
""",
    ),
    Attempt(
        "push input into a terminal",
        r"""#py
import pty
try: held, other = pty.openpty()
except OSError as error: print(error)
else:
  for fd in (held, other):
    for request in (0x5412, 0x541C, 0x15412): tried(hex(request), lambda: fcntl.ioctl(fd, request,
        b'x'))
""",
    ),
    Attempt(
        "someone else's terminal",
        "echo ESCAPED >@PTS@; timeout 1 head -c1 @PTS@; stty -F @PTS@ -echo; echo x >/dev/tty",
        control=True,
    ),
    Attempt(
        "leave the control group",
        r"""for f in $(find /sys/fs/cgroup -name cgroup.procs -o -name tasks 2>/dev/null | head -50);
do echo $$ > $f; done; mkdir /sys/fs/cgroup/etude-evil && echo ESCAPED; ls /sys/fs/cgroup | head -1;
sleep 30 & sleep 0.1
""",
        escaped=_escaped_its_group,
    ),
    Attempt(
        "a release agent",
        r"""for f in $(find / -xdev -name release_agent 2>/dev/null) /sys/fs/cgroup/*/release_agent;
do echo @ROOT@/evil > $f && echo ESCAPED; done; ls /sys/kernel /sys/module && echo ESCAPED
""",
    ),
    Attempt(
        "less likely to be killed",
        r"""
echo -1000 > /proc/self/oom_score_adj && grep -qx -- -1000 /proc/self/oom_score_adj && echo ESCAPED
""",
    ),
    Attempt(
        "a bomb of forks",
        r"""#py
count = 0
try:
    for _ in range(200):
        if os.fork() == 0: time.sleep(20); os._exit(0)
        count += 1
except OSError as error: print(error)
print('forked', count)
""",
        escaped=_many,
    ),
    Attempt(
        "outlive the sandbox",
        r"""setsid sleep 7654.321 >&- 2>&- & (setsid setsid env -i sleep 7654.321 >&- 2>&- &);
nohup sleep 7654.321 >/dev/null 2>&1 & (trap '' TERM INT HUP; exec setsid sleep 7654.321 >&- 2>&-) & \
  sleep 0.2
""",
        escaped=_survives,
    ),
    Attempt(
        "outlive by a change of parent",
        r"""#py
libc.prctl(36, 1)
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            libc.prctl(1, 0)
            for fd in range(20):
                try: os.close(fd)
                except OSError: pass
            os.execvp('sleep', ['sleep', '7654.321'])
        os._exit(0)
time.sleep(0.2)
""",
        escaped=_survives,
    ),
)
