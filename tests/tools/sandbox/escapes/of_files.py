"""Attempts to reach files outside: by path, by link, through /proc, by devices, by mounts."""

import os
import shutil
from pathlib import Path

from tests.tools.sandbox.escapes.attempt import BUBBLEWRAP, Attempt, Stage
from tools.errors import ToolError
from tools.files import read_bytes
from tools.sandbox import Ran


def _a_host_tool_follows(stage: Stage, ran: Ran) -> bool:
    """Our own tools read what a command planted."""
    for name in ("planted", "folder/victim", "loop/../planted"):
        try:
            data, _ = read_bytes(stage.root, name, limit=1000)
        except ToolError:
            continue
        if data:
            return True
    return False


def _set_id_program(root: Path) -> None:
    program = root / "asroot"
    shutil.copy("/usr/bin/id", program)
    if os.getuid() == 0:
        os.chown(program, 0, 0)
    program.chmod(0o6755)


ATTEMPTS = (
    Attempt("read a private key", "cat @HOME@/.ssh/id_rsa ~/.ssh/id_rsa", control=True),
    Attempt("list a private folder", "ls @HOME@/.ssh | grep id_rsa && echo ESCAPED", control=True),
    Attempt("read credentials of a tool chain", "cat @HOME@/.cargo/credentials.toml", control=True),
    Attempt("read the server's data", "cat @HOME@/.local/share/etude/token", control=True),
    Attempt("write a start-up file of the shell", "echo 'evil' >> @HOME@/.bashrc", control=True),
    Attempt("write a start-up file by ~", "echo evil >> ~/.bashrc; echo evil > ~/.profile"),
    Attempt("replace a program of a tool chain", "echo evil > @HOME@/.cargo/bin/tool", control=True),
    Attempt("delete a tool chain", "rm -rf @HOME@/.cargo", control=True),
    Attempt("write a file outside", "echo changed > @VICTIM@", control=True),
    Attempt("append to a file outside", "echo changed >> @VICTIM@", control=True),
    Attempt(
        "truncate a file outside",
        r"""#py
import os
os.truncate('@VICTIM@', 0)
""",
        control=True,
    ),
    Attempt("delete a file outside", "rm -f @VICTIM@", control=True),
    Attempt("make a file outside", "echo x > @OUT@/new", control=True),
    Attempt("make a folder outside", "mkdir @OUT@/new", control=True),
    Attempt("move a file out", "echo x > a; mv a @OUT@/a", control=True),
    Attempt("move a file in", "mv @VICTIM@ mine && cat mine", control=True),
    Attempt(
        "exchange two files",
        r"""#py
import ctypes,os
open('m','w').close()
ctypes.CDLL(None).syscall(276 if os.uname().machine=='aarch64' else 316,-100,b'm',-100,b'@VICTIM@',2)
""",
        control=True,
    ),
    Attempt("write outside by ..", "echo changed > ../../outside/victim", control=True),
    Attempt("read by a symbolic link", "ln -s @VICTIM@ l; cat l", control=True),
    Attempt("write by a symbolic link", "ln -s @VICTIM@ l; echo changed > l", control=True),
    Attempt(
        "write by a linked folder", "ln -s @OUT@ l; echo x > l/planted; echo changed > l/victim", control=True
    ),
    Attempt(
        "read by a long chain of links",
        "ln -s / a; ln -s a/. b; ln -s b/@HOME@ c; cat c/.ssh/id_rsa",
        control=True,
    ),
    Attempt(
        "link the outside for our own tools",
        "ln -s @VICTIM@ planted; ln -s @OUT@ folder; ln -s . loop",
        escaped=_a_host_tool_follows,
    ),
    Attempt("read by a hard link", "ln @VICTIM@ l && cat l", control=True),
    Attempt("write by a hard link", "ln @VICTIM@ l && echo changed > l", control=True),
    Attempt(
        "hard link by descriptor",
        r"""#py
import os
fd=os.open('@VICTIM@',os.O_RDONLY)
ctypes.CDLL(None).syscall(37 if arm else 265, -100, f'/proc/self/fd/{fd}'.encode(), -100, b'l', 0x400)
print(open('l').read())
""",
        control=True,
    ),
    Attempt(
        "move the workspace",
        "mv @ROOT@ @ROOT@2; test -e @ROOT@2 && echo ESCAPED",
    ),
    Attempt(
        "read through the roots of processes",
        r"""
cat /proc/1/root@VICTIM@ /proc/self/root@VICTIM@; for p in /proc/[0-9]*; do cat $p/root@VICTIM@; done
""",
    ),
    Attempt(
        "read through the folders of processes",
        "for p in /proc/[0-9]*; do cat $p/cwd/victim; done; cat /proc/@PID@/cwd/victim",
        control=True,
    ),
    Attempt(
        "read what processes have open",
        "for f in /proc/[0-9]*/fd/*; do test -p $f || timeout 1 cat $f; done | grep -a -o @SECRET@",
        control=True,
    ),
    Attempt(
        "write what processes have open",
        "for f in /proc/@PID@/fd/*; do echo changed > $f; done",
        control=True,
    ),
    Attempt("read environments", "cat /proc/[0-9]*/environ", control=True),
    Attempt(
        "read memory of a process by its file",
        r"""#py
for line in open('/proc/@PID@/maps'):
    did(line)
    break
tried('mem', lambda: open('/proc/@PID@/mem','rb').fileno())
""",
        control=True,
    ),
    Attempt("map_files of a process", "ls -l /proc/@PID@/map_files | grep -q / && echo ESCAPED"),
    Attempt(
        "write a kernel setting",
        r"""for s in kernel/core_pattern kernel/hostname vm/drop_caches fs/file-max;
do v=$(cat /proc/sys/$s 2>/dev/null); test -n "$v" && echo "$v" 2>/dev/null > /proc/sys/$s &&
echo ESCAPED $s; done
""",
    ),
    Attempt(
        "open the trigger of the kernel",
        r"""#py
import os
for name in ('sysrq-trigger', 'kmsg', 'kcore', 'kpagemap', 'irq/default_smp_affinity'):
    tried(name, lambda: os.open('/proc/'+name,
        os.O_WRONLY if 'trigger' in name or 'irq' in name else os.O_RDONLY))
""",
    ),
    Attempt(
        "open devices",
        r"""#py
import glob, os
for path in [*glob.glob('/dev/vd*'), *glob.glob('/dev/sd*'), *glob.glob('/dev/nvme*'),
    *glob.glob('/dev/loop*'), *glob.glob('/dev/dm-*'), '/dev/mem', '/dev/port', '/dev/kmsg',
    '/dev/fuse', '/dev/kvm', '/dev/net/tun', '/dev/vsock', '/dev/uinput', '/dev/userfaultfd',
    '/dev/vhost-net', '/dev/btrfs-control', '/dev/loop-control', '/dev/mapper/control']:
    tried(path, lambda: os.open(path, os.O_RDONLY))
""",
    ),
    Attempt(
        "make devices",
        r"""#py
import os, stat
for name, kind, number in (('n', stat.S_IFCHR, (1, 3)), ('m', stat.S_IFCHR, (1, 1)), ('b',
    stat.S_IFBLK, (254, 0))):
    for place in ('@ROOT@/', '@OUT@/', '/tmp/', '/dev/shm/', '/dev/'):
        tried(place + name, lambda: os.mknod(place + name, kind | 0o666, os.makedev(*number)))
""",
    ),
    Attempt(
        "change modes of devices",
        r"""
for d in /dev/null /dev/full /dev/zero; do chmod $(stat -c %a $d) $d && test ! -O $d && echo ESCAPED;
done
""",
    ),
    Attempt("set-user-id by chmod", "cp /usr/bin/id e; chmod 4755 e"),
    Attempt("set-group-id by chmod", "cp /usr/bin/id e; chmod g+s e; mkdir d; chmod 2777 d"),
    Attempt("set-user-id by install", "install -m 4755 /usr/bin/id e"),
    Attempt(
        "set-user-id by an archive",
        r"""#py
import io, tarfile
info = tarfile.TarInfo('e')
info.mode = 0o6755
tarfile.open('a.tar', 'w').addfile(info, io.BytesIO())
subprocess.run(['tar', 'xpf', 'a.tar']); tarfile.open('a.tar').extractall('.')
""",
    ),
    Attempt(
        "set-user-id as a file is made",
        r"""#py
for name, action in {
 'creat': lambda: call(85, -1, b'c', 0o4755), 'open': lambda: os.open('o', os.O_CREAT|os.O_RDWR,
     0o4755),
 'mknod': lambda: os.mknod('k', 0o104755), 'tmpfile': lambda: os.open('.', os.O_TMPFILE|os.O_RDWR,
     0o4755),
 'fchmod': lambda: os.fchmod(os.open('f', os.O_CREAT|os.O_RDWR), 0o6755),
 'fchmodat2': lambda: call(452, 452, -100, b'f', 0o4755, 0),
 'openat2': lambda: call(437, 437, -100, b'p', struct.pack('QQQ', 0o102, 0o4755, 0), 24),
 'mkdir': lambda: os.mkdir('d', 0o7777)}.items():
    try: action()
    except OSError as error: print(name, error)
""",
    ),
    Attempt(
        "capabilities of a file",
        r"""#py
open('e','w').close()
value = struct.pack('<5I', 0x02000001, 0x3fffffff, 0, 0, 0)
tried('capability', lambda: os.setxattr('e', 'security.capability', value))
tried('capability by descriptor', lambda: os.setxattr(os.open('e', os.O_RDWR), 'security.capability',
    value))
""",
    ),
    Attempt(
        "gain by a set-user-id program",
        r"""./asroot -u | grep -qx 0 && echo ESCAPED; su -c true </dev/null && echo ESCAPED;
mount -t tmpfs x @ROOT@ && echo ESCAPED
""",
        prepare=_set_id_program,
    ),
    Attempt(
        "write the system",
        r"""
for f in /usr/bin/evil /etc/passwd /etc/evil /lib/evil /evil /boot/evil /opt/evil /root/evil /var/evil \
  /var/spool/cron/evil; do echo x > $f && test -z "$(mount | grep -w ${f%/*})" && echo wrote $f; done
""",
        escaped=lambda stage, ran: any(
            os.path.lexists(f"{place}/evil")
            for place in ("/usr/bin", "/etc", "/usr/lib", "/", "/opt", "/root", "/var")
        ),
    ),
    Attempt(
        "open a file by its handle",
        r"""#py
held = ctypes.create_string_buffer(136)
struct.pack_into('I', held, 0, 128)
mount = ctypes.c_int()
syscall('name_to_handle_at', 303, 264, -100, b'/', held, ctypes.byref(mount), 0)
syscall('open_by_handle_at', 304, 265, os.open('.', os.O_RDONLY), held, 0)
""",
    ),
    Attempt(
        "chroot",
        r"""#py
syscall('chroot', 161, 51, b'.')
syscall('pivot_root', 155, 41, b'.', b'.')
""",
    ),
    Attempt(
        "mount",
        r"""#py
syscall('tmpfs', 165, 40, b'none', b'.', b'tmpfs', 0, None)
syscall('bind', 165, 40, b'/', b'.', None, 0x1000, None)
syscall('proc', 165, 40, b'proc', b'.', b'proc', 0, None)
syscall('remount', 165, 40, None, b'/', None, 0x20 | 0x1000, None)
""",
    ),
    Attempt(
        "mount over the hooks",
        r"""#py
syscall('remount', 165, 40, None, b'@ROOT@/.git/hooks', None, 0x1020, None)
syscall('umount', 166, 39, b'@ROOT@/.git/hooks', 2)
syscall('umount config', 166, 39, b'@ROOT@/.git/config', 2)
""",
    ),
    Attempt(
        "umount what hides",
        r"""#py
for path in (b'/tmp', b'@HOME@', b'/proc', b'/dev', b'/'):
    syscall(path, 166, 39, path, 2)
""",
    ),
    Attempt(
        "the new mount calls",
        r"""#py
syscall('open_tree', 428, 428, -100, b'/', 1)
syscall('fsopen', 430, 430, b'tmpfs', 0)
syscall('fspick', 433, 433, -100, b'/', 0)
syscall('mount_setattr', 442, 442, -100, b'/', 0, struct.pack('4Q', 0, 1, 0, 0), 32)
syscall('open_tree_attr', 467, 467, -100, b'/', 1, None, 0)
syscall('statmount', 457, 457, None, None, 0, 0)
""",
    ),
    Attempt("modes of a file outside", "chmod 600 @VICTIM@", tiers=BUBBLEWRAP, control=True),
    Attempt("times of a file outside", "touch -d 2001-01-01 @VICTIM@", tiers=BUBBLEWRAP, control=True),
    Attempt(
        "extended attributes of a file outside",
        r"""#py
import os
os.setxattr('@VICTIM@', 'user.evil', b'x')
""",
        escaped=lambda stage, ran: "user.evil" in os.listxattr(stage.victim),
    ),
)
