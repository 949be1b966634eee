"""Attempts on what is ours inside: the control folder, our own programs, the limits."""

from tests.tools.sandbox.escapes.attempt import BUBBLEWRAP, Attempt, Stage
from tools.sandbox import Ran

MEBI = 1 << 20


def _grown(stage: Stage, ran: Ran) -> bool:
    return any(path.is_file() and path.stat().st_size > (16 << 30) for path in stage.root.iterdir())


def _core(stage: Stage, ran: Ran) -> bool:
    return any(path.name.startswith("core") for path in stage.root.iterdir())


def _used(stage: Stage, ran: Ran) -> bool:
    return b"filled" in ran.stdout


ATTEMPTS = (
    Attempt(
        "write the control folder",
        r"""for f in shell.rc supervisor.sh runner.sh evil out/evil io/evil; do echo evil > @RUN@/$f;
echo evil >> @HOSTRUN@/$f; done
""",
    ),
    Attempt(
        "delete the control folder",
        "rm -rf @RUN@/* @HOSTRUN@/shell.rc; mv @RUN@/shell.rc @RUN@/x; rmdir @RUN@/out",
    ),
    Attempt(
        "link into the control folder",
        r"""ln -s @VICTIM@ @RUN@/c99; ln -sf @VICTIM@ @RUN@/io/o1; mkfifo @RUN@/io/o99;
ln -s @VICTIM@ @HOSTRUN@/out/7
""",
    ),
    Attempt(
        "modes of the control folder",
        "chmod -R 777 @RUN@ @HOSTRUN@; chmod 600 @RUN@/shell.rc",
        tiers=BUBBLEWRAP,
    ),
    Attempt("look for other sandboxes", "ls -d @HOSTRUN@/../*/ && echo ESCAPED; true"),
    Attempt("a core of a crash", "ulimit -c unlimited; bash -c 'kill -SEGV $$'; sleep 0.1", escaped=_core),
    Attempt("a file without end", "truncate -s 20T big; #", escaped=_grown),
    Attempt(
        "a file without end, written far out",
        r"""#py
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
fd = os.open('big', os.O_CREAT | os.O_RDWR)
try: os.pwrite(fd, b'x', 20 << 30)
except OSError as error: print(error)
""",
        escaped=_grown,
    ),
    Attempt(
        "fill the temporary folders",
        r"""#py
block = bytes(1 << 20)
for place in ('/tmp', '/dev/shm', os.path.expanduser('~')):
    try:
        fd = os.open(place + '/fill', os.O_CREAT | os.O_WRONLY)
        for _ in range(400): os.write(fd, block)
        print('filled', place)
    except OSError as error: print(error)
    finally:
        if os.path.exists(place + '/fill'): os.unlink(place + '/fill')
""",
        tiers=BUBBLEWRAP,
        escaped=_used,
    ),
    Attempt(
        "fill the memory",
        r"""#py
held = []
for _ in range(600): held.append(b'x' * (1 << 20)); held[-1][5]
print('filled')
""",
        escaped=lambda stage, ran: stage.sandbox.group is not None and _used(stage, ran),
    ),
    Attempt(
        "fill memory that has a name only",
        r"""#py
fd = os.memfd_create('x')
block = bytes(1 << 20)
for _ in range(600): os.write(fd, block)
print('filled')
""",
        escaped=lambda stage, ran: stage.sandbox.group is not None and _used(stage, ran),
    ),
)
