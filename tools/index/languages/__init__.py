"""Which language a file is in, and what the index needs to know about each language."""

import importlib
import re
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tools.index.languages.language import Language

EXTENSIONS: Final = {
    "bash": "sh bash bats",
    "c": "c",
    "cpp": "cc cpp cxx c++ h hh hpp hxx h++ inl ipp tpp cu cuh ino",
    "csharp": "cs csx",
    "go": "go",
    "java": "java",
    "javascript": "js mjs cjs jsx",
    "kotlin": "kt kts",
    "lua": "lua",
    "php": "php phtml php5 inc",
    "python": "py pyi pyw",
    "ruby": "rb rake gemspec ru",
    "rust": "rs",
    "scala": "scala sc",
    "swift": "swift",
    "tsx": "tsx",
    "typescript": "ts mts cts",
}
NAMES: Final = {"Rakefile": "ruby", "Gemfile": "ruby", "Guardfile": "ruby", "SConstruct": "python"}

_BY_EXTENSION: Final = {ext: name for name, exts in EXTENSIONS.items() for ext in exts.split()}
_SHEBANG: Final = re.compile(
    rb"#!\s*\S*?(?:/env\s+(?:-S\s+)?)?(?:[^\s/]*/)*(python|bash|sh|zsh|node|ruby|php|lua)[\d.]*\b"
)
_INTERPRETERS: Final = {"sh": "bash", "zsh": "bash", "node": "javascript"}


def language_of(path: str, data: bytes = b"") -> str | None:
    """The name of a file's language by its name, else by the program its first line asks for."""
    name = path.rpartition("/")[2]
    stem, dot, extension = name.rpartition(".")
    if dot and stem:
        return _BY_EXTENSION.get(extension.lower())
    if known := NAMES.get(name):
        return known
    if data.startswith(b"#!") and (found := _SHEBANG.match(data[:200])):
        interpreter = found.group(1).decode()
        return _INTERPRETERS.get(interpreter, interpreter)
    return None


@cache
def language(name: str) -> "Language":
    """What is known of a language. Loads its grammar."""
    module = "typescript" if name == "tsx" else name
    loaded = importlib.import_module(f"tools.index.languages.{module}")
    return loaded.TSX if name == "tsx" else loaded.LANGUAGE
