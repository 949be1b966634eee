"""Attempts to reach somebody outside by a socket or a shared object."""

from tests.tools.sandbox.escapes.attempt import Attempt

ATTEMPTS = (
    Attempt(
        "a server on this machine",
        r"""#py
for host in ('127.0.0.1', 'localhost', '::1', '0.0.0.0'):
    tried(host, lambda: socket.create_connection((host, @TCP@), 2))
""",
        control=True,
    ),
    Attempt("by bash itself", "exec 3<>/dev/tcp/127.0.0.1/@TCP@ && echo ESCAPED", control=True),
    Attempt(
        "a datagram",
        r"""#py
for host in ('127.0.0.1', '192.0.2.1'):
    try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', (host, @UDP@))
    except OSError as error: print(error)
""",
        control=True,
    ),
    Attempt(
        "the internet",
        r"""#py
for address in (('192.0.2.1', 80), ('198.51.100.1', 443)):
    tried(address, lambda: socket.create_connection(address, 2))
tried('name', lambda: socket.getaddrinfo('example.com', 80))
""",
    ),
    Attempt(
        "docker's socket",
        r"""#py
for path in ('@OUT@/docker.sock', '/var/run/docker.sock', '/run/docker.sock',
    '/run/containerd/containerd.sock',
             '/run/dbus/system_bus_socket', '/run/systemd/private', '/run/user/0/bus', '/tmp/.X11-unix/X0'):
    tried(path, lambda: socket.socket(socket.AF_UNIX).connect(path))
""",
        control=True,
    ),
    Attempt(
        "the agent of ssh keys",
        r"""#py
print(os.environ.get('SSH_AUTH_SOCK') and 'ESCAPED')
tried('agent', lambda: socket.socket(socket.AF_UNIX).connect('@HOME@/.ssh/agent.sock'))
""",
        control=True,
    ),
    Attempt(
        "a socket by a link",
        r"""#py
os.symlink('@OUT@/docker.sock', 'd')
tried('link', lambda: socket.socket(socket.AF_UNIX).connect('d'))
""",
        control=True,
    ),
    Attempt(
        "a socket by a hard link",
        r"""#py
tried('hard link', lambda: os.link('@OUT@/docker.sock', 'd'))
tried('connect', lambda: socket.socket(socket.AF_UNIX).connect('d'))
""",
        control=True,
    ),
    Attempt(
        "an abstract socket",
        r"""#py
tried('stream', lambda: socket.socket(socket.AF_UNIX).connect('\0etude-escape-@TCP@'))
tried('datagram', lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x',
    '\0etude-escape-@UDP@'))
""",
        control=True,
    ),
    Attempt(
        "a pair of sockets, pointed elsewhere",
        r"""#py
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
tried('path', lambda: a.sendto(b'x', '@OUT@/log.sock'))
tried('connect', lambda: a.connect('@OUT@/log.sock'))
tried('abstract', lambda: a.sendto(b'x', '\0etude-escape-@UDP@'))
""",
        control=True,
    ),
    Attempt(
        "a pair of streams, pointed elsewhere",
        r"""#py
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    b.close()
    tried(kind, lambda: a.connect('@OUT@/docker.sock'))
    tried(kind, lambda: a.connect('\0etude-escape-@TCP@'))
""",
    ),
    Attempt(
        "families that no namespace confines",
        r"""#py
for family in (40, 38, 31, 44, 29, 21, 16 + 1, 9, 4, 5, 30, 37, 39, 41, 42, 43, 45):
    for kind in (1, 2, 3, 5): tried((family, kind), lambda: socket.socket(family, kind))
""",
    ),
    Attempt(
        "the hypervisor",
        r"""#py
tried('vsock', lambda: socket.socket(40, 1).connect((2, 22)))
""",
    ),
    Attempt(
        "raw packets",
        r"""#py
tried('packet', lambda: socket.socket(17, 3, 0x300))
tried('raw', lambda: socket.socket(2, 3, 1))
tried('raw 6', lambda: socket.socket(10, 3, 58))
""",
    ),
    Attempt(
        "netlink but for routes",
        r"""#py
for protocol in (2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 18, 20, 21, 22):
    tried(protocol, lambda: socket.socket(16, 3, protocol))
""",
    ),
    Attempt(
        "change the network",
        r"""#py
try: s = socket.socket(16, 3, 0)
except OSError as error: print(error)
else:
    s.send(struct.pack('IHHII', 32, 16, 0x405, 1, 0) + struct.pack('BBHiII', 0, 0, 0, 1, 0, 1))
    if struct.unpack_from('i', s.recv(200), 16)[0] == 0: did('link changed')
""",
    ),
    Attempt(
        "shared memory of System V",
        r"""#py
libc.shmat.restype = ctypes.c_void_p
place = libc.shmat(@SHM@, None, 0o10000)
if place not in (None, 2**64 - 1): print(ctypes.string_at(place, 20))
syscall('shmget', 29, 194, 0x45545544, 4096, 0o666)
syscall('semget', 64, 190, 0x45545544, 1, 0o666)
syscall('msgget', 68, 186, 0x45545544, 0o666)
""",
        control=True,
    ),
    Attempt(
        "shared memory by name",
        "cat /dev/shm/etude-escape-@TCP@; echo changed > /dev/shm/etude-escape-@TCP@",
        control=True,
    ),
    Attempt(
        "queues of messages",
        r"""#py
fd = libc.mq_open(b'/etude-escape', os.O_RDONLY)
if fd >= 0: did('opened')
ls = os.path.exists('/dev/mqueue')
if ls and os.listdir('/dev/mqueue'): did('listed')
""",
    ),
)
