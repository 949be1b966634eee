"""Confined file access: links, races, owners, full disks."""

import errno
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tools import confinement, files, staging
from tools.confinement import locate, workspace_path
from tools.errors import EnvironmentFault, InvalidArguments, OutsideWorkspace, ToolError

ROOT = os.geteuid() == 0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "work"
    root.mkdir()
    return root


@pytest.fixture(params=["openat2", "walk"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to resolve a path: the kernel's call, and the walk for systems that lack it."""
    if request.param == "walk":

        def absent(directory: int, path: str, flags: int, resolve: int) -> int:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)

        monkeypatch.setattr(confinement, "_openat2", absent)
    return request.param


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/b", "a/b"),
        ("./a//b/", "a/b"),
        ("a/../b", "b"),
        (".", "."),
        ("a/..", "."),
        ("{root}", "."),
        ("{root}/a/./b", "a/b"),
        ("{root}/../work/a", "a"),
        ("ä\udcff", "ä\udcff"),
    ],
)
def test_a_path_has_one_name(root: Path, path: str, name: str) -> None:
    assert workspace_path(root, path.format(root=root)) == name


@pytest.mark.parametrize(
    "path", ["..", "a/../..", "/", "/etc/passwd", "{root}x", "{root}/../other", "a/../../work"]
)
def test_a_path_outside_is_refused(root: Path, path: str) -> None:
    with pytest.raises(OutsideWorkspace):
        workspace_path(root, path.format(root=root))


@pytest.mark.parametrize("path", ["", "\0", "a\0", "x" * 256, "é" * 128, "a/" * 2500, "\ud800"])
def test_a_path_no_file_can_have_is_refused(root: Path, path: str) -> None:
    with pytest.raises(InvalidArguments):
        workspace_path(root, path)


@pytest.mark.case("agent-24")
def test_links_are_followed_inside_and_nowhere_else(root: Path, either_way: str) -> None:
    (root / "a").mkdir()
    (root / "a" / "file").write_bytes(b"in")
    (root.parent / "file").write_bytes(b"out")
    links = {
        "to_file": "a/file",
        "to_folder": "a",
        "up_and_down": "a/../a/file",
        "absolute": str(root / "a" / "file"),
        "chain": "to_folder/file",
        "a/back": "../to_file",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    for path in ("to_file", "to_folder/file", "up_and_down", "absolute", "chain", "a/back", "to_folder/back"):
        data, entry = files.read_bytes(root, path)
        assert (data, entry.path) == (b"in", "a/file")
    out = {
        "out": "../file",
        "out_absolute": str(root.parent / "file"),
        "out_folder": "..",
        "a/out": "../../file",
        "root_folder": "/",
        "process": "/proc/self/root",
        "out_and_in": f"../{root.name}/a/file",
    }
    for name, target in out.items():
        (root / name).symlink_to(target)
    paths = [*out, "out_folder/file", "root_folder/etc/passwd", "process/etc/passwd", "to_folder/out"]
    for path in paths:
        for act in (files.read_bytes, files.stat, lambda r, p: files.replace(r, p, b"x")):
            with pytest.raises(OutsideWorkspace):
                act(root, path)
    (root / "loop").symlink_to("loop")
    with pytest.raises(InvalidArguments, match="symbolic links"):
        files.read_bytes(root, "loop")
    assert (root.parent / "file").read_bytes() == b"out"


def test_reading_refuses_what_would_block_or_act(root: Path, either_way: str) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for path, kind in (("pipe", "fifo"), ("folder", "directory"), (".", "directory")):
        with pytest.raises(InvalidArguments, match=kind):
            files.read_bytes(root, path)
        with pytest.raises(InvalidArguments, match=kind):
            files.replace(root, path, b"x")
    with pytest.raises(files.NotFound):
        files.read_bytes(root, "absent/file")
    assert files.stat(root, "absent/file") is None


@pytest.mark.case("agent-24")
def test_a_folder_swapped_for_a_link_never_leads_out(root: Path, either_way: str) -> None:
    """Somebody exchanges a folder and a link to the outside as fast as they can; no access crosses over."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"outside")
    (root / "real").mkdir()
    (root / "real" / "file").write_bytes(b"inside")
    (root / "trap").symlink_to(outside)
    swap = "import os,sys\na,b,t=sys.argv[1:]\nwhile True:\n os.rename(a,t);os.rename(b,a);os.rename(t,b)\n"
    arguments = [str(root / name) for name in ("real", "trap", "spare")]
    attacker = subprocess.Popen([sys.executable, "-c", swap, *arguments])
    inside = refused = 0
    try:
        for _ in range(1500):
            try:
                data, _ = files.read_bytes(root, "real/file")
                assert data in (b"inside", b"written")
                files.replace(root, "real/file", b"written")
                inside += 1
            except ToolError:
                refused += 1
    finally:
        attacker.kill()
        attacker.wait()
    assert (outside / "file").read_bytes() == b"outside"
    assert sorted(os.listdir(outside)) == ["file"]
    assert inside and refused


def test_a_new_file_takes_the_umask_and_makes_its_folders(root: Path) -> None:
    entry = files.create(root, "a/b/c.txt", b"new")
    mask = os.umask(0)
    os.umask(mask)
    assert (root / "a" / "b" / "c.txt").read_bytes() == b"new"
    assert entry.mode == 0o666 & ~mask
    with pytest.raises(files.Changed, match="exists already"):
        files.create(root, "a/b/c.txt", b"other")
    assert (root / "a" / "b" / "c.txt").read_bytes() == b"new"


def test_folders_made_for_a_file_that_failed_are_removed(root: Path) -> None:
    def refuse() -> None:
        raise EnvironmentFault("no")

    with pytest.raises(EnvironmentFault):
        files.create(root, "a/b/c.txt", b"new", before_commit=refuse)
    assert list(root.iterdir()) == []


def test_replacing_checks_the_content_it_replaces(root: Path) -> None:
    (root / "f").write_bytes(b"theirs")
    with pytest.raises(files.Changed):
        files.replace(root, "f", b"ours", expected=b"mine!!")
    assert (root / "f").read_bytes() == b"theirs"
    assert os.listdir(root) == ["f"]
    files.replace(root, "f", b"ours", expected=b"theirs")
    assert (root / "f").read_bytes() == b"ours"


def test_a_read_only_file_is_not_replaced(root: Path) -> None:
    (root / "f").write_bytes(b"x")
    (root / "f").chmod(0o444)
    with pytest.raises(EnvironmentFault, match="read-only"):
        files.replace(root, "f", b"y")
    assert (root / "f").read_bytes() == b"x"


@pytest.mark.skipif(ROOT, reason="root may write into any folder")
def test_a_folder_without_permission_is_an_environment_fault(root: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"x")
    (root / "d").chmod(0o555)
    try:
        with pytest.raises(EnvironmentFault, match="Permission denied"):
            files.replace(root, "d/f", b"y")
    finally:
        (root / "d").chmod(0o755)
    assert (root / "d" / "f").read_bytes() == b"x"


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_a_root_server_leaves_files_to_the_workspaces_owner(root: Path) -> None:
    os.chown(root, 4321, 4322)
    (root / "f").write_bytes(b"x")
    os.chown(root / "f", 4323, 4324)
    (root / "f").chmod(0o4755)
    files.replace(root, "f", b"y")
    kept = (root / "f").stat()
    assert (kept.st_uid, kept.st_gid, kept.st_mode & 0o7777) == (4323, 4324, 0o4755)
    files.create(root, "a/b/new", b"z")
    for path in ("a", "a/b", "a/b/new"):
        made = (root / path).stat()
        assert (made.st_uid, made.st_gid) == (4321, 4322), path


def test_extended_attributes_are_kept(root: Path) -> None:
    (root / "f").write_bytes(b"x")
    try:
        os.setxattr(root / "f", "user.note", b"kept")
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP
        pytest.skip("this file system has no extended attributes")
    files.replace(root, "f", b"y")
    assert os.getxattr(root / "f", "user.note") == b"kept"


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_full_disk_leaves_the_file_and_nothing_else(
    root: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool
) -> None:
    if not unnamed:
        monkeypatch.setattr(staging, "TEMPORARY", 0)
    (root / "f").write_bytes(b"x" * 1000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(EnvironmentFault, match="unchanged"):
            files.replace(root, "f", b"y" * 100_000)
        with pytest.raises(EnvironmentFault, match="unchanged"):
            files.create(root, "d/g", b"y" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(root) == ["f"]
    assert (root / "f").read_bytes() == b"x" * 1000


@pytest.mark.skipif(not ROOT, reason="mounting a small disk needs root")
def test_a_disk_without_space_leaves_the_file_and_nothing_else(root: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(root)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.decode().strip()}")
    try:
        (root / "f").write_bytes(b"x" * 1000)
        with pytest.raises(EnvironmentFault, match="the disk is full"):
            files.replace(root, "f", b"y" * 200_000)
        assert os.listdir(root) == ["f"]
        assert (root / "f").read_bytes() == b"x" * 1000
    finally:
        subprocess.run(["umount", str(root)], check=True)


def test_without_unnamed_files_a_named_one_is_used_and_removed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "TEMPORARY", 0)
    (root / "f").write_bytes(b"x")
    files.replace(root, "f", b"y")
    files.create(root, "g", b"z")
    with pytest.raises(files.Changed):
        files.create(root, "g", b"w")
    assert sorted(os.listdir(root)) == ["f", "g"]
    assert ((root / "f").read_bytes(), (root / "g").read_bytes()) == (b"y", b"z")


def test_a_reader_sees_the_old_or_the_new_content_never_a_part(root: Path) -> None:
    contents = [bytes([letter]) * 300_000 for letter in b"ab"]
    (root / "f").write_bytes(contents[0])
    stop = threading.Event()
    odd: list[int] = []

    def reader() -> None:
        while not stop.is_set():
            data = (root / "f").read_bytes()
            if data not in contents:
                odd.append(len(data))

    thread = threading.Thread(target=reader)
    thread.start()
    for turn in range(100):
        files.replace(root, "f", contents[turn % 2])
    stop.set()
    thread.join()
    assert odd == []


def test_descriptors_are_closed(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "f").write_bytes(b"x")
    (root / "link").symlink_to("a")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        files.read_bytes(root, "link/f")
        files.replace(root, "link/f", b"x")
        with locate(root, "link/f"), pytest.raises(ToolError):
            files.read_bytes(root, "link/absent")
    assert len(os.listdir("/proc/self/fd")) == before
