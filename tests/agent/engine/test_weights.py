"""The packaged weights become a folder once, wholly or not at all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.engine import weights
from agent.engine.protocol import EngineError
from agent.rendering.codec import Codec

pytestmark = pytest.mark.local_model
ROOT = Path(__file__).resolve().parents[3]


def test_the_folder_is_complete_and_says_where_it_came_from(folder: Path) -> None:
    made = json.loads((folder / "source.json").read_text())
    assert made["sha256"] == weights.SHA256
    names = {"model.safetensors", "config.json", "tokenizer.json", "source.json"}
    assert names <= {file.name for file in folder.iterdir()}


def test_numbers_are_split_into_digits_as_in_the_original(codec: Codec) -> None:
    digits = [codec.decode([id]) for id in codec.encode("line   1234")]
    assert digits == ["line", "   ", "1", "2", "3", "4"]


def test_two_processes_at_once_convert_once(model_cache: Path, tmp_path: Path) -> None:
    """Both find the other's folder: the packaged file is replaced by a tiny conversion that counts itself."""
    script = tmp_path / "provide.py"
    script.write_text(
        f"""
import sys, time, pathlib
sys.path.insert(0, {str(ROOT)!r})
from agent.engine import weights
cache = pathlib.Path(sys.argv[1])
def convert(source, target, progress):
    time.sleep(0.5)
    (target / "model.safetensors").write_text("x")
    with (cache / "count").open("a") as file:
        file.write("1")
weights.convert = convert
print(weights.provide(cache, lambda message: None))
""",
        encoding="utf-8",
    )
    command = [sys.executable, str(script), str(tmp_path / "cache")]
    (tmp_path / "cache").mkdir()
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = {process.communicate(timeout=60)[0].strip() for process in running}
    assert printed == {str(tmp_path / "cache" / "models" / weights.FOLDER)}
    assert (tmp_path / "cache" / "count").read_text() == "1"


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(source: Path, target: Path, progress: weights.Progress) -> None:
        (target / "model.safetensors").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(weights, "convert", convert)
    with pytest.raises(EngineError, match=r"540 MB.*No space left"):
        weights.provide(tmp_path, lambda message: None)
    assert not weights.is_converted(tmp_path)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [f"{weights.FOLDER}.lock"]


def test_a_damaged_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / weights.FILE
    damaged.write_bytes(b"GGUF")
    monkeypatch.setattr(weights, "_packaged", lambda: damaged)
    with pytest.raises(EngineError, match="damaged"):
        weights.provide(tmp_path / "cache", lambda message: None)


def test_a_missing_package_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PACKAGE", "no_such_package_of_ours")
    with pytest.raises(EngineError, match="etude models install"):
        weights.provide(tmp_path, lambda message: None)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(EngineError, match="could not be put there"):
        weights.provide(tmp_path, lambda message: None)
