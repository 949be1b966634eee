"""The SQLite file: private, on a file system that can hold it, refused with a reason elsewhere."""

import os
import stat
import sys
from pathlib import Path
from subprocess import run

import pytest

from server.store import DamagedDatabase, NetworkFileSystem, NotWritable, Store, filesystem
from server.store.filesystem import file_system
from tests.support.log_events import created, prompt

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/export /home nfs4 rw 0 0
/dev/vdb /home/local\\040disk xfs rw 0 0
//share/x /mnt/share cifs rw 0 0
drvfs /mnt/c 9p rw 0 0
tmpfs /mnt/share tmpfs rw 0 0
bad line
"""


def test_the_deepest_and_last_mount_holds_a_path() -> None:
    for path, kind in {
        "/var/x.db": "ext4",
        "/tmp/x.db": "tmpfs",
        "/home/ada/x.db": "nfs4",
        "/home/local disk/x.db": "xfs",
        "/homework/x.db": "ext4",
        "/mnt/share/x.db": "tmpfs",
        "/mnt/c/x.db": "9p",
    }.items():
        found = file_system(Path(path), MOUNTS)
        assert found is not None and found[0] == kind, path
    assert file_system(Path("/x"), "") is None


@pytest.mark.case("agent-7")
@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"])
async def test_a_network_file_system_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path}/far {kind} rw 0 0\n")
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    for folder in ("far", "near"):
        with pytest.raises(NetworkFileSystem, match=f"lies on {kind}.*local disk.*PostgreSQL"):
            await Store.open(f"sqlite:///{tmp_path}/{folder}/etude.db")
    async with await Store.open(f"sqlite:///{tmp_path}/local.db"):
        pass


async def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "etude.db"
    async with await Store.open(f"sqlite:///{path}") as store:
        await store.create_session(created())
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes\n" * 500)
    with pytest.raises(DamagedDatabase, match="not a database"):
        await Store.open(f"sqlite:///{path}")
    assert path.read_text() == "these are my notes\n" * 500


async def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "etude.db"
    async with await Store.open(f"sqlite:///{path}") as store:
        id = await store.create_session(created())
        log = await store.lease(id)
        for _ in range(100):
            log.submit(prompt("x" * 3000))
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(path.stat().st_size - 8192))
    with pytest.raises(DamagedDatabase, match="damaged or not a database"):
        async with await Store.open(f"sqlite:///{path}") as store:
            await store.sessions()
            await store.all_events(id)


async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritable, match="cannot open"):
        await Store.open(f"sqlite:///{tmp_path}/file/etude.db")
    (tmp_path / "folder").mkdir()
    with pytest.raises(NotWritable, match="cannot open"):
        await Store.open(f"sqlite:///{tmp_path}/folder")


FILL = """
import asyncio, os, sys
from agent.events import Draft
from server.store import LogError, Store, StoreFull
from tests.support.log_events import created, result, words

async def main():
    folder = sys.argv[1]
    async with await Store.open(f"sqlite:///{folder}/etude.db") as store:
        id = await store.create_session(created())
        log = await store.lease(id)
        await log.submit(words("first"))
        ballast = os.path.join(folder, "ballast")
        with open(ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        waiting = [log.submit(result(os.urandom(300_000)))]
        waiting += [log.submit(words(str(index))) for index in range(3)]
        for future in waiting:
            try:
                await future
                raise SystemExit("stored on a full disk")
            except StoreFull as error:
                assert "no space is left" in str(error), error
        assert [event.type for event in await store.all_events(id)] == ["session.created", "text"]
        os.unlink(ballast)
        for index in range(3):
            event = await log.submit(words(f"again {index}"))
            assert event.seq == 3 + index, event
        await log.submit(result(os.urandom(300_000)))
        events = await store.all_events(id)
        assert [event.seq for event in events] == list(range(1, 7)), events
    async with await Store.open(f"sqlite:///{folder}/etude.db") as store:
        assert len(await store.all_events(id)) == 6
    print("survived")

asyncio.run(main())
"""


def test_a_full_disk_fails_what_waits_and_nothing_else(tmp_path: Path) -> None:
    """On a real small file system, mounted in a namespace of its own."""
    script = 'mount -t tmpfs -o size=6m none "$1" && exec "$2" -W error -c "$3" "$1"'
    confined = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = run(
        [*confined, tmp_path, sys.executable, FILL],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        timeout=60,
    )
    assert done.stdout == "survived\n", done.stderr
