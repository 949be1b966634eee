"""Attempts to have git on the host run something, and archives that unpack outside.

Landlock cannot keep a file of a writable folder from being written, so that tier does not claim what lies
in `.git`.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.tools.sandbox.escapes.attempt import BUBBLEWRAP, Attempt

_EVIL = "printf '#!/bin/sh\\ntouch @OUT@/ran\\n' > evil; chmod 755 evil; "


def _planted(
    name: str, program: str, prepare: Callable[[Path], None] | None = None, control: bool = True
) -> Attempt:
    """With `evil` in the workspace: a program that leaves its mark outside if anyone runs it."""
    return Attempt(name, _EVIL + program, tiers=BUBBLEWRAP, prepare=prepare, control=control)


def _submodule(root: Path) -> None:
    other = root.with_name("library")
    git = [
        "git",
        "-c",
        "protocol.file.allow=always",
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@x",
        "-c",
        "safe.directory=*",
    ]
    subprocess.run(["git", "init", "-q", other], check=True)
    subprocess.run([*git, "-C", other, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "-C", root, "submodule", "--quiet", "add", other, "sub"], check=True)


def _nested(root: Path) -> None:
    subprocess.run(["git", "init", "-q", root / "nested"], check=True)


def _worktree_settings(root: Path) -> None:
    subprocess.run(["git", "-C", root, "config", "extensions.worktreeConfig", "true"], check=True)


ATTEMPTS = (
    _planted("a hook", "cp evil .git/hooks/pre-commit; cp evil .git/hooks/post-checkout"),
    _planted(
        "another folder of hooks", "mv .git/hooks .git/old; mkdir .git/hooks; cp evil .git/hooks/pre-commit"
    ),
    _planted("hooks by a link", "rm -rf .git/hooks; mkdir h; cp evil h/pre-commit; ln -s ../h .git/hooks"),
    _planted("a hook by a hard link", "ln evil .git/hooks/pre-commit"),
    _planted(
        "the monitor of files",
        r"""git config core.fsmonitor @ROOT@/evil; printf '[core]\nfsmonitor=@ROOT@/evil\n' >> .git/config
""",
    ),
    _planted(
        "another configuration",
        r"""cp .git/config c; printf '[core]\nfsmonitor=@ROOT@/evil\n' >> c; mv -f c .git/config""",
    ),
    _planted(
        "a folder of hooks by configuration",
        "mkdir h; cp evil h/pre-commit; git config core.hooksPath @ROOT@/h",
    ),
    _planted(
        "an alias, a pager, an editor",
        r"""git config alias.st '!@ROOT@/evil'; git config core.pager @ROOT@/evil;
git config core.editor @ROOT@/evil; git config core.fsmonitor @ROOT@/evil
""",
    ),
    _planted(
        "a configuration that includes",
        r"""printf '[core]\nfsmonitor=@ROOT@/evil\n' > inc; git config include.path @ROOT@/inc""",
    ),
    _planted(
        "commondir",
        r"""cp -r .git other; printf '[core]\nfsmonitor=@ROOT@/evil\n' >> other/config;
echo ../other > .git/commondir
""",
    ),
    _planted(
        "commondir replaced",
        r"""cp -r .git other; printf '[core]\nfsmonitor=@ROOT@/evil\n' >> other/config; rm -f .git/commondir;
echo ../other > c; mv -f c .git/commondir
""",
    ),
    _planted(
        "another .git",
        r"""
cp -r .git other; printf '[core]\nfsmonitor=@ROOT@/evil\n' >> other/config; mv .git old; mv other .git
""",
    ),
    _planted(
        ".git removed",
        r"""
cp -r .git other; printf '[core]\nfsmonitor=@ROOT@/evil\n' >> other/config; rm -rf .git; mv other .git
""",
    ),
    _planted(
        ".git as a file",
        r"""cp -r .git other; printf '[core]\nfsmonitor=@ROOT@/evil\n' >> other/config; mv .git old;
echo 'gitdir: other' > .git
""",
    ),
    _planted(
        "the configuration of a worktree",
        r"""printf '[core]\nfsmonitor=@ROOT@/evil\n' > .git/config.worktree""",
        prepare=_worktree_settings,
    ),
    _planted(
        "the configuration of a submodule",
        r"""printf '[core]\nfsmonitor=@ROOT@/evil\n' >> .git/modules/sub/config;
printf '[core]\nfsmonitor=@ROOT@/evil\n' > c; cat .git/modules/sub/config c > d;
mv d .git/modules/sub/config
""",
        prepare=_submodule,
    ),
    _planted(
        "the pointer of a submodule",
        r"""
cp -r .git/modules/sub other; printf '[core]\nworktree=../sub\nfsmonitor=@ROOT@/evil\n' > other/config;
echo 'gitdir: ../other' > p; mv -f p sub/.git; echo 'gitdir: ../other' > sub/.git
""",
        prepare=_submodule,
    ),
    _planted(
        "a hook of a submodule",
        r"""for h in post-index-change pre-commit post-checkout; do cp evil .git/modules/sub/hooks/$h; done
""",
        prepare=_submodule,
        control=False,
    ),
    _planted(
        "the configuration of a nested repository",
        r"""printf '[core]\nfsmonitor=@ROOT@/evil\n' >> nested/.git/config
cp evil nested/.git/hooks/pre-commit; echo ../../other > nested/.git/commondir
cp -r .git other; printf '[core]\nfsmonitor=@ROOT@/evil\n' >> other/config
""",
        prepare=_nested,
    ),
    _planted(
        "filters of attributes",
        r"""git config filter.x.clean @ROOT@/evil; git config filter.x.smudge @ROOT@/evil;
echo '* filter=x' > .gitattributes; echo '* filter=x' > .git/info/attributes; echo x > tracked
""",
    ),
    _planted(
        "differences by a program",
        r"""git config diff.external @ROOT@/evil; git config diff.x.textconv @ROOT@/evil;
echo '* diff=x' > .gitattributes; git config core.fsmonitor @ROOT@/evil; echo x > tracked
""",
    ),
    _planted(
        "a credential helper",
        r"""git config credential.helper '!@ROOT@/evil'; git config core.sshCommand @ROOT@/evil;
git config core.fsmonitor @ROOT@/evil
""",
    ),
    Attempt(
        "an archive with absolute paths",
        r"""#py
import io, tarfile
t = tarfile.open('a.tar', 'w')
for name in ('@VICTIM@', '@OUT@/new', '@HOME@/.bashrc'):
    i = tarfile.TarInfo(name); i.size = 7; t.addfile(i, io.BytesIO(b'changed'))
t.close()
subprocess.run(['tar', 'xPf', 'a.tar'])
import warnings
warnings.simplefilter('ignore')
try: tarfile.open('a.tar').extractall('/')
except OSError as error: print(error)
""",
        control=True,
    ),
    Attempt(
        "an archive with ..",
        r"""#py
import io, tarfile
t = tarfile.open('a.tar', 'w')
for name in ('../../outside/victim', '../../outside/new'):
    i = tarfile.TarInfo(name); i.size = 7; t.addfile(i, io.BytesIO(b'changed'))
t.close()
subprocess.run(['tar', 'xPf', 'a.tar'])
try: tarfile.open('a.tar').extractall('.')
except OSError as error: print(error)
""",
        control=True,
    ),
    Attempt(
        "an archive with links",
        r"""#py
import io, tarfile
t = tarfile.open('a.tar', 'w')
i = tarfile.TarInfo('l'); i.type = tarfile.SYMTYPE; i.linkname = '@OUT@'; t.addfile(i)
i = tarfile.TarInfo('l/new'); i.size = 7; t.addfile(i, io.BytesIO(b'changed'))
i = tarfile.TarInfo('h'); i.type = tarfile.LNKTYPE; i.linkname = '@VICTIM@'; t.addfile(i)
i = tarfile.TarInfo('h'); i.size = 7; t.addfile(i, io.BytesIO(b'changed'))
t.close()
subprocess.run(['tar', 'xPf', 'a.tar'])
try: tarfile.open('a.tar').extractall('.')
except OSError as error: print(error)
""",
        control=True,
    ),
    Attempt(
        "an archive with devices",
        r"""#py
import tarfile
t = tarfile.open('a.tar', 'w')
for name, kind in (('c', tarfile.CHRTYPE), ('b', tarfile.BLKTYPE)):
    i = tarfile.TarInfo(name); i.type = kind; i.devmajor, i.devminor = 1, 1; t.addfile(i)
t.close()
subprocess.run(['tar', 'xpf', 'a.tar'])
""",
    ),
    Attempt(
        "a zip file with ..",
        r"""#py
import zipfile
z = zipfile.ZipFile('a.zip', 'w')
for name in ('../../outside/new', '@OUT@/new', '/../../outside/victim'): z.writestr(name, 'changed')
i = zipfile.ZipInfo('l'); i.external_attr = 0o120777 << 16; z.writestr(i, '@OUT@'); z.writestr('l/new',
    'changed')
z.close()
for i in zipfile.ZipFile('a.zip').infolist():
    try: open(i.filename, 'wb').write(b'changed')
    except OSError as error: print(error)
""",
        control=True,
    ),
)
