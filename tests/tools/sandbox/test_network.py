"""A sandbox whose network is a list of hosts: what gets through and what does not."""

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.tools.sandbox.conftest import Starter
from tools.errors import EnvironmentFault
from tools.sandbox import Sandbox, SandboxPolicy, SandboxUnavailable, start, upstream
from tools.sandbox.proxy import CONNECTIONS
from tools.shell_session import ShellSession
from tools.workspace import Workspace

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"
"""The system's own knows TLS, wherever the tests' interpreter lies."""


# -- servers outside -----------------------------------------------------------------------------------


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What the resolver of the machine says, for names that tests make up."""
    known: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def look_up(name: str, port: int, *arguments: object, **named: object) -> object:
        if name in known:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in known[name]]
        if name.endswith(".test"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(name, port, *arguments, **named)  # pyright: ignore[reportArgumentType, reportCallIssue]

    monkeypatch.setattr(upstream.socket, "getaddrinfo", look_up)
    return known


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A small HTTP server: says what it was asked, one request a connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0
        )
        body = await reader.readexactly(length)
        said = json.dumps({"head": head, "body": len(body)}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


@asynccontextmanager
async def served(
    context: ssl.SSLContext | None = None, answer: Callable[..., Awaitable[None]] = _answer
) -> AsyncIterator[int]:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the key and the certificate of `tls.test`."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is needed to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tls.test",
            "-addext", "subjectAltName=DNS:tls.test", "-keyout", "key.pem", "-out", "cert.pem",
        ],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    both = folder / "both.pem"
    both.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return both


async def run(sandbox: Sandbox, script: str) -> tuple[int, str]:
    ran = await sandbox.run(["bash", "-c", script], timeout_s=30)
    return ran.exit_code, (ran.stdout + ran.stderr).decode("utf-8", "replace")


async def test_plain_http_goes_through_with_its_host_and_path(
    started: Starter, hosts: dict[str, list[str]]
) -> None:
    hosts["plain.test"] = ["127.0.0.1"]
    async with served() as port:
        sandbox = await started(network=(f"plain.test:{port}", f"127.0.0.1:{port}"))
        code, text = await run(sandbox, f"curl -sS -H 'Host: other.test' 'http://plain.test:{port}/a?b=c'")
        assert code == 0, text
        head = json.loads(text)["head"]
        assert head.startswith("GET /a?b=c HTTP/1.1\r\n")
        assert f"\r\nHost: plain.test:{port}\r\n" in head, (
            "the host that was checked, not one that was claimed"
        )
        assert "proxy" not in head.lower()
        body = "head -c 3000000 /dev/zero | curl -sS --data-binary @- -H 'Expect: 100-continue'"
        code, text = await run(sandbox, f"{body} http://plain.test:{port}/")
        assert (code, json.loads(text)["body"]) == (0, 3_000_000)
        code, text = await run(
            sandbox, f"curl -sS http://plain.test:{port}/1 http://plain.test:{port}/2 http://no.test/"
        )
        assert text.count("HTTP/1.1") == 2
        assert "no.test:80 is not in sandbox.network" in text


async def test_tls_goes_through_end_to_end(
    started: Starter, hosts: dict[str, list[str]], certificate: Path, root: Path
) -> None:
    hosts["tls.test"] = ["127.0.0.1"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    shutil.copy(certificate.with_name("cert.pem"), root / "ca.pem")
    async with served(context) as port:
        sandbox = await started(network=(f"*.test:{port}", f"127.0.0.1:{port}"))
        url = f"https://tls.test:{port}/x"
        python = f"import urllib.request as r; print(r.urlopen('{url}').read().decode())"
        programs = {
            "curl": f"curl -sS --cacert ca.pem {url}",
            "python3": f'SSL_CERT_FILE=ca.pem {PYTHON} -c "{python}"',
            "git": f"GIT_SSL_CAINFO=ca.pem git ls-remote {url}",
            "socks": f"curl -sS --cacert ca.pem --proxy socks5h://127.0.0.1:14747 {url}",
        }
        for name, script in programs.items():
            code, text = await run(sandbox, script)
            if name == "git":  # an answer, though it is no repository's
                assert "unable to access" not in text, text
            else:
                assert code == 0, (name, text)
                assert json.loads(text)["head"].startswith("GET /x HTTP/1.1"), name
        assert sandbox.proxy is not None
        assert sandbox.proxy.opened >= 4
        assert await sandbox.news() == []


async def test_pip_installs_through_the_proxy(
    started: Starter, hosts: dict[str, list[str]], root: Path
) -> None:
    """A package index outside, named by a name that only the proxy can resolve."""
    hosts["index.test"] = ["127.0.0.1"]
    wheel = _wheel()

    async def index(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
        said, kind = (wheel, b"application/zip") if asked.endswith(b".whl") else (
            b'<a href="/etude_probe-1.0-py3-none-any.whl">etude_probe-1.0-py3-none-any.whl</a>', b"text/html"
        )  # fmt: skip
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(said)) + said
        )
        await writer.drain()
        writer.close()

    async with served(answer=index) as port:
        sandbox = await started(network=(f"index.test:{port}", f"127.0.0.1:{port}"))
        has_pip, _ = await run(sandbox, "python3 -m pip --version")
        if has_pip != 0:
            pytest.skip("the interpreter on PATH has no pip")
        pip = "PIP_CONFIG_FILE=/dev/null python3 -m pip install --no-deps --target out"
        code, text = await run(
            sandbox,
            f"{pip} --index-url http://index.test:{port}/simple --trusted-host index.test etude-probe",
        )
        assert "Successfully installed etude-probe-1.0" in text, code
        assert (root / "out" / "etude_probe.py").read_text() == "ANSWER = 42\n"


def _wheel() -> bytes:
    import io
    import zipfile

    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("etude_probe.py", "ANSWER = 42\n")
        about = "etude_probe-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: etude-probe\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return data.getvalue()


async def test_npm_and_node_go_through_the_proxy(started: Starter, hosts: dict[str, list[str]]) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    hosts["registry.test"] = ["127.0.0.1"]

    async def registry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        said = json.dumps(
            {
                "name": "probe",
                "dist-tags": {"latest": "1.2.3"},
                "versions": {"1.2.3": {"name": "probe", "version": "1.2.3"}},
            }
        ).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(said)
        )
        writer.write(said)
        await writer.drain()
        writer.close()

    async with served(answer=registry) as port:
        sandbox = await started(network=(f"registry.test:{port}", f"127.0.0.1:{port}"))
        npm = "NPM_CONFIG_UPDATE_NOTIFIER=false npm view --fetch-retries 0 --registry"
        code, text = await run(sandbox, f"{npm} http://registry.test:{port}/ probe version")
        if "command not found" in text or "MODULE_NOT_FOUND" in text:
            pytest.skip("this machine's npm cannot be seen by an ordinary user")
        assert (code, text.strip().splitlines()[0]) == (0, "1.2.3")
        assert sandbox.proxy is not None
        assert sandbox.proxy.opened >= 1


async def test_a_refusal_says_which_host_and_which_setting(root: Path, home: Path) -> None:
    workspace = Workspace(root, SandboxPolicy(tier="bubblewrap", network=("pypi.org",)))
    try:
        shell = await ShellSession.start(workspace)
        python = (
            "import urllib.request as r\ntry: r.urlopen('https://example.com')\nexcept OSError as e: print(e)"
        )
        outcome = await shell.run(
            f'curl -sS https://example.com; curl -sS http://example.com/; {PYTHON} -c "{python}"'
        )
        assert "response 403" in outcome.text
        assert "example.com:80 is not in sandbox.network." in outcome.text
        assert "Tunnel connection failed: 403 example.com:443 is not in sandbox.network" in outcome.text
        assert len(outcome.notices) == 1
        notice = outcome.notices[0]
        assert "example.com:443 is not in sandbox.network (2 times)" in notice
        assert "example.com:80 is not" in notice
        assert "ask the user" in notice
        assert (await shell.run("true")).notices == [], "told once"
    finally:
        await workspace.close()


@pytest.mark.parametrize(
    ("rule", "answers", "target", "why"),
    [
        (
            "rebind.test:PORT",
            ["127.0.0.1"],
            "rebind.test",
            "leads to 127.0.0.1, which is not a public address",
        ),
        ("rebind.test:PORT", ["10.0.0.1", "169.254.169.254"], "rebind.test", "not a public address"),
        ("*:PORT", ["::ffff:127.0.0.1"], "mapped.test", "not a public address"),
        ("*:PORT", [], "127.0.0.1", "is not in sandbox.network"),
        ("*:PORT", [], "[::1]", "is not in sandbox.network"),
        ("*:PORT", [], "2130706433", "not a public address"),
        ("*:PORT", [], "0x7f.1", "not a public address"),
        ("*:PORT", [], "localhost", "not a public address"),
        ("*.test:PORT", [], "unknown.test", "does not resolve"),
    ],
)
async def test_no_name_and_no_number_leads_to_this_machine(
    started: Starter, hosts: dict[str, list[str]], rule: str, answers: list[str], target: str, why: str
) -> None:
    if answers:
        hosts[target] = answers
    reached = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal reached
        reached += 1
        writer.close()

    async with served(answer=answer) as port:
        sandbox = await started(network=(rule.replace("PORT", str(port)),))
        asked = f"CONNECT {target}:{port} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n"
        script = f"exec 3<>/dev/tcp/127.0.0.1/14747; printf '{asked}' >&3; cat <&3"
        _, text = await run(sandbox, script)
        assert why in text
        assert not text.startswith("HTTP/1.1 200")
    assert reached == 0


async def test_the_address_that_was_checked_is_the_one_that_is_connected(
    started: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that answers differently each time is asked once."""
    asked = 0

    def look_up(name: str, port: int, *_: object, **__: object) -> object:
        nonlocal asked
        asked += 1
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2" if asked == 1 else "127.0.0.1", port))
        ]

    monkeypatch.setattr(upstream.socket, "getaddrinfo", look_up)
    async with served() as port:  # on 127.0.0.1 alone
        sandbox = await started(network=(f"twice.test:{port}", f"127.0.0.2:{port}"))
        code, text = await run(sandbox, f"curl -sS http://twice.test:{port}/")
        assert code == 0
        assert "127.0.0.2" in text, "nobody listens at the address that was checked"
        assert asked == 1


async def test_nothing_gets_out_beside_the_proxy(started: Starter, hosts: dict[str, list[str]]) -> None:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    datagrams.setblocking(False)
    async with served() as port:
        sandbox = await started(network=("*", f"127.0.0.1:{port}"))
        for script in (
            f"echo > /dev/tcp/127.0.0.1/{port}",
            "timeout 5 bash -c 'echo > /dev/tcp/192.0.2.1/80'",
            "getent hosts localhost.localdomain.test",
            'python3 -c "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"',
            "test -e /etc/resolv.conf",
        ):
            assert (await run(sandbox, script))[0] != 0, script
        udp = f"import socket; socket.socket(2, 2).sendto(b'x', ('127.0.0.1', {datagrams.getsockname()[1]}))"
        await run(sandbox, f'python3 -c "{udp}"')
        with pytest.raises(BlockingIOError):
            datagrams.recv(10)
    datagrams.close()


async def test_commands_still_have_a_loopback_of_their_own(started: Starter) -> None:
    sandbox = await started(network=("pypi.org",))
    script = """python3 - <<'X'
import http.server, threading, urllib.request
server = http.server.HTTPServer(("localhost", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://localhost:{server.server_port}/").status)
X"""
    code, text = await run(sandbox, script)
    assert (code, text.splitlines()[0]) == (0, "200")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n",
        b"CONNECT pypi.org HTTP/1.1\\r\\n\\r\\n",
        b"CONNECT pypi.org:99999 HTTP/1.1\\r\\n\\r\\n",
        b"CONNECT :443 HTTP/1.1\\r\\n\\r\\n",
        b"GET https://pypi.org/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n",
        b"GET http:///x HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n",
        b"nonsense\\r\\n\\r\\n",
        b"\\x00\\xff\\xfe\\r\\n\\r\\n",
        b"GET http://a/ HTTP/1.1\\r\\nContent-Length: 3\\r\\nContent-Length: 4\\r\\n\\r\\n",
    ],
)
async def test_what_is_no_request_for_a_proxy_is_answered(started: Starter, sent: bytes) -> None:
    sandbox = await started(network=("pypi.org",))
    script = f"exec 3<>/dev/tcp/127.0.0.1/14747; printf '{sent.decode()}' >&3; cat <&3"
    code, text = await run(sandbox, script)
    assert code == 0
    assert text.startswith(("HTTP/1.1 400", "HTTP/1.1 403"))


async def test_a_head_without_end_and_too_many_connections_are_bounded(started: Starter) -> None:
    sandbox = await started(network=("pypi.org",))
    script = """python3 - <<'X'
import socket
def ask():
    return socket.create_connection(("127.0.0.1", 14747))
one = ask(); one.sendall(b"GET http://a/ HTTP/1.1\\r\\nX: " + b"a" * 200_000)
print(one.recv(100)[:12])
held = [ask() for _ in range(COUNT)]
for each in held: each.sendall(b"C")
ended = 0
for each in held:
    each.settimeout(0.3)
    try:
        ended += each.recv(1) == b""
    except TimeoutError: break
    except OSError: ended += 1
    if each is held[-1]: break
over = ask(); over.sendall(b"C"); over.settimeout(3)
try: print("ended", over.recv(1) == b"")
except ConnectionError: print("ended", True)
for each in held: each.close()
X""".replace("COUNT", str(CONNECTIONS))
    code, text = await run(sandbox, script)
    assert code == 0, text
    assert text.splitlines() == ["b'HTTP/1.1 431'", "ended True"]
    await asyncio.sleep(0.2)
    code, text = await run(sandbox, "curl -sS http://example.com/")
    assert "not in sandbox.network" in text, "it serves again once they are gone"


async def test_large_downloads_arrive_whole_and_in_bounded_memory(
    started: Starter, hosts: dict[str, list[str]]
) -> None:
    hosts["big.test"] = ["127.0.0.1"]
    size = 64 * 1024 * 1024

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 65536):
            writer.write(bytes(65536))
            await writer.drain()
        writer.close()

    async with served(answer=answer) as port:
        sandbox = await started(network=(f"big.test:{port}", f"127.0.0.1:{port}"))
        before = _resident()
        for tunnel in ("", "--proxytunnel"):
            code, text = await run(sandbox, f"curl -sS {tunnel} http://big.test:{port}/ | wc -c")
            assert (code, text.strip()) == (0, str(size))
        assert _resident() - before < 24 * 1024 * 1024


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_wrong_rule_is_an_error_and_leaves_nothing_running(started: Starter) -> None:
    with pytest.raises(EnvironmentFault, match=r"sandbox\.network: 'https://pypi\.org' is not a host"):
        await started(network=("https://pypi.org",))


async def test_closing_the_sandbox_closes_its_way_out(
    root: Path, home: Path, hosts: dict[str, list[str]]
) -> None:
    hosts["slow.test"] = ["127.0.0.1"]
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            pass
        left.set()
        writer.close()

    async with served(answer=answer) as port:
        sandbox = await start(
            SandboxPolicy(tier="bubblewrap", network=(f"slow.test:{port}", f"127.0.0.1:{port}")), root
        )
        asking = asyncio.ensure_future(run(sandbox, f"curl -sS http://slow.test:{port}/"))
        await asyncio.sleep(0.5)
        await sandbox.close()
        await asyncio.wait_for(left.wait(), 5)
        with pytest.raises(Exception, match="sandbox"):
            await asking


@pytest.mark.parametrize(
    ("tier", "says"), [("landlock", "cannot be reached in this tier"), ("none", "holds nothing back")]
)
async def test_a_tier_that_cannot_hold_a_list_says_so(started: Starter, tier: str, says: str) -> None:
    try:
        sandbox = await started(tier=tier, network=("pypi.org",))
    except SandboxUnavailable as error:
        pytest.skip(error.message)
    assert any(says in notice for notice in sandbox.notices), sandbox.notices
    if tier == "landlock":
        assert (await run(sandbox, "echo > /dev/tcp/127.0.0.1/14747"))[0] != 0
