"""A company's certificate authority and package index are known inside; keys and passwords are not."""

import datetime
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tools.sandbox import Sandbox, SandboxPolicy, landlock, start
from tools.sandbox.trust import VARIABLES

OTHER = 61001
Opened = Callable[[], Awaitable[Sandbox]]
HANDSHAKE = """
import socket, ssl, threading
ours, theirs = socket.socketpair()
def serve():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain('server.pem')
    try: context.wrap_socket(theirs, server_side=True).sendall(b'hello')
    except ssl.SSLError: theirs.close()
threading.Thread(target=serve).start()
try: print(ssl.create_default_context().wrap_socket(ours, server_hostname='internal.example').recv(9))
except ssl.SSLCertVerificationError: print('unknown authority')
finally: ours.close()
"""


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    kind = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


def _issued(name: str, by: tuple[str, ec.EllipticCurvePrivateKey] | None) -> tuple[bytes, bytes]:
    """(certificate, key) of an authority, or of a server that an authority vouches for."""
    key = ec.generate_private_key(ec.SECP256R1()) if by else AUTHORITY
    issuer, signer = by or (name, key)
    subject = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, issuer)]
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject[0])
        .issuer_name(subject[1])
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM), _pem(key)


AUTHORITY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def root(open_folder: Path) -> Path:
    path = open_folder / "home" / "project"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def authority(root: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file only its owner can read, in a home nobody else enters; a server's own in the workspace."""
    for name in (*VARIABLES, "PIP_CONFIG_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    certificate, _ = _issued("Company", None)
    (root / "server.pem").write_bytes(b"".join(_issued("internal.example", ("Company", AUTHORITY))))
    path = home / "private" / "company.pem"
    path.parent.mkdir()
    path.write_bytes(b"about it: hunter2\n" + certificate)
    path.chmod(0o600)
    path.parent.chmod(0o700)
    if os.getuid() == 0:
        for owned in (root, root / "server.pem"):
            os.chown(owned, OTHER, OTHER)
    return path


@pytest.fixture(params=["bubblewrap", "landlock"])
async def opened(request: pytest.FixtureRequest, root: Path, authority: Path) -> AsyncIterator[Opened]:
    if request.param == "landlock" and not landlock.version():
        pytest.skip("this kernel has no Landlock")
    made: list[Sandbox] = []

    async def starter() -> Sandbox:
        made.append(await start(SandboxPolicy(tier=request.param), root))
        return made[-1]

    yield starter
    for sandbox in made:
        await sandbox.close()


async def _said(sandbox: Sandbox, script: str) -> str:
    ran = await sandbox.run(["bash", "-c", script])
    return (ran.stdout + ran.stderr).decode().strip()


async def test_a_tls_server_of_the_company_is_trusted(
    opened: Opened, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = await opened()
    # An interpreter that was copied may find another one's libraries.
    for python in ("python3", "/usr/bin/python3"):
        if await _said(plain, f"{python} -c 'import ssl; print(1)'") == "1":
            break
    else:
        pytest.skip("no Python inside can speak TLS")
    handshake = f"{python} -c {shlex.quote(HANDSHAKE)}"
    assert await _said(plain, handshake) == "unknown authority"
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    sandbox = await opened()
    assert await _said(sandbox, handshake) == "b'hello'"
    assert sandbox.notices == [] or sandbox.tier == "landlock"
    text = await _said(sandbox, "cat $SSL_CERT_FILE; echo x >> $SSL_CERT_FILE; chmod 666 $SSL_CERT_FILE")
    assert "BEGIN CERTIFICATE" in text
    assert "hunter2" not in text
    assert b"hunter2" in authority.read_bytes()
    assert not authority.read_bytes().endswith(b"x\n")
    if sandbox.tier == "bubblewrap":
        assert await _said(sandbox, "echo $SSL_CERT_FILE") == str(authority)


@pytest.mark.parametrize("name", VARIABLES)
async def test_every_variable_is_passed_on(
    name: str, root: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, str(authority.parent if "DIR" in name or "PATH" in name else authority))
    monkeypatch.setenv("UV_NATIVE_TLS", "true")
    monkeypatch.setenv("UV_INDEX_URL", "https://me:hunter2@index.example/simple")
    sandbox = await start(SandboxPolicy(tier="bubblewrap"), root)
    try:
        said = await _said(sandbox, f"cat ${name} ${name}/*; env")
        assert "BEGIN CERTIFICATE" in said
        assert "UV_NATIVE_TLS=true" in said
        assert "hunter2" not in said
    finally:
        await sandbox.close()


async def test_a_folder_of_authorities(
    opened: Opened, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = authority.parent
    (folder / "0a1b2c3d.0").symlink_to(authority)
    (folder / "both.pem").write_bytes(authority.read_bytes() + _pem(AUTHORITY))
    (folder / "notes").write_text("hunter2")
    os.mkfifo(folder / "pipe")
    monkeypatch.setenv("SSL_CERT_DIR", f"/etc/ssl/certs:{folder}")
    sandbox = await opened()
    said = await _said(sandbox, "ls ${SSL_CERT_DIR#*:}; cat ${SSL_CERT_DIR#*:}/*.0; echo ${SSL_CERT_DIR%%:*}")
    assert said.split("\n")[:2] == ["0a1b2c3d.0", "company.pem"]
    assert "BEGIN CERTIFICATE" in said
    assert said.endswith("/etc/ssl/certs")
    assert any("holds a private key" in notice and "both.pem" in notice for notice in sandbox.notices)


@pytest.mark.parametrize("what", ["key", "text", "pipe", "absent", "relative"])
async def test_what_is_no_authority_is_not_shown(
    what: str, opened: Opened, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = authority.parent / what
    if what == "key":
        path.write_bytes(authority.read_bytes() + _pem(AUTHORITY))
    elif what == "text":
        path.write_text("hunter2\n")
    elif what == "pipe":
        os.mkfifo(path)
    monkeypatch.setenv("CURL_CA_BUNDLE", "company.pem" if what == "relative" else str(path))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", os.environ["CURL_CA_BUNDLE"])
    sandbox = await opened()
    said = await _said(sandbox, f"env; cat {path} {sandbox.inside}/trust/*")
    assert "CA_BUNDLE=" not in said
    assert "PRIVATE KEY" not in said
    assert "hunter2" not in said
    assert sum("_CA_BUNDLE names" in notice for notice in sandbox.notices) == 1


async def test_a_link_in_the_workspace_brings_nothing(
    opened: Opened, root: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "ca.pem").symlink_to(authority)
    monkeypatch.setenv("SSL_CERT_FILE", str(root / "ca.pem"))
    sandbox = await opened()
    assert "BEGIN" not in await _said(sandbox, f"cat $SSL_CERT_FILE {authority} {sandbox.inside}/trust/*")


SETTINGS = "[global]\n# hunter2\nindex-url = https://index.example/simple\ncert = {}\n"


@pytest.mark.parametrize("place", [".pip", ".config/pip", "elsewhere"])
async def test_pip_knows_the_index_of_the_company(
    place: str, opened: Opened, home: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / place / "pip.conf"
    path.parent.mkdir(parents=True)
    path.write_text(SETTINGS.format(authority))
    path.chmod(0o600)
    if place == "elsewhere":
        monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
    sandbox = await opened()
    said = await _said(sandbox, f"cat ~/{place}/pip.conf $PIP_CONFIG_FILE; cat $PIP_CERT")
    assert "index-url = https://index.example/simple" in said
    assert "BEGIN CERTIFICATE" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "line",
    [
        "index-url = https://me:hunter2@index.example/simple",
        "extra-index-url =\n  https://a.example/simple\n  https://hunter2@index.example/simple",
        "proxy = me:hunter2@proxy.example:8080",
        "find-links = https://a.example/x?access_token=hunter2",
        "index-url = https://index.example/hunter2abcDEF0123456789/simple",
        "password = hunter2",
        "hunter2",
    ],
)
async def test_pip_settings_with_a_credential_are_not_shown(line: str, opened: Opened, home: Path) -> None:
    path = home / ".config" / "pip" / "pip.conf"
    path.parent.mkdir(parents=True)
    path.write_text(f"[global]\n{line}\n")
    sandbox = await opened()
    said = await _said(sandbox, f"cat ~/.config/pip/pip.conf {path} {sandbox.inside}/trust/*; env")
    assert "hunter2" not in said
    assert sum(str(path) in notice for notice in sandbox.notices) == 1


async def test_folders_shown_with_their_credentials_covered(
    root: Path, home: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home shown on demand: places are made in what covers its credentials, and nowhere else in it."""
    pip, aws = home / ".config" / "pip", home / ".aws"
    for folder in (pip, aws):
        folder.mkdir(parents=True)
        (folder / "secret").write_text("hunter2")
    (pip / "pip.conf").write_text(SETTINGS.format(authority))
    (aws / "ca.pem").write_bytes(authority.read_bytes())
    monkeypatch.setenv("AWS_CA_BUNDLE", str(aws / "ca.pem"))
    sandbox = await start(SandboxPolicy(tier="bubblewrap", read=(home,)), root)
    try:
        said = await _said(sandbox, "cat ~/.config/pip/* ~/.aws/* $PIP_CERT; env")
        assert "index-url" in said
        assert f"AWS_CA_BUNDLE={aws / 'ca.pem'}" in said
        assert "hunter2" not in said.replace("about it: hunter2", "")
    finally:
        await sandbox.close()
