"""What programs do beside reading: write, delete, reach the network, run what they are given."""

import re
from collections.abc import Sequence
from typing import Final

from agent.judge.names import names
from agent.judge.places import Places
from agent.judge.words import Word
from agent.judge.wrappers import INTERPRETERS, SHELLS

DELETERS: Final = names("rm rmdir unlink shred")
WRITERS: Final = names(
    "mv cp ln install rsync tee touch mkdir chmod chown chgrp truncate dd tar unzip zip patch mkfifo "
    "mknod split csplit gzip gunzip bzip2 xz zstd cpio setfacl chattr ed ex vi vim nano"
)
_TARGET_LAST: Final = frozenset({"cp", "ln", "install", "rsync"})
NETWORK: Final = names(
    "curl wget ssh scp sftp ftp nc ncat netcat socat telnet rsync ping dig nslookup host gh hub aws "
    "gcloud az kubectl helm docker podman twine http https lynx aria2c"
)
_INSTALLERS: Final = names(
    "npm pnpm yarn bun npx pip pip3 uv uvx pipx poetry pdm cargo go gem bundle composer apt apt-get "
    "dnf yum apk brew conda mamba"
)
_FETCHES: Final = names(
    "install i add ci update upgrade publish download fetch get push login search require sync lock"
)
SHELL_STATE: Final = names(
    "alias unalias set shopt enable hash bind complete source . export declare typeset local readonly "
    "unset umask ulimit pushd popd mapfile readarray read let getopts trap history fc disown fg bg "
    "wait kill jobs suspend caller logout return break continue shift times dirs compgen compopt"
)
"""Commands of the shell itself whose effect outlasts them or depends on it."""
FREE_STATE: Final = names("wait jobs return break continue shift times")
NO_RULE: Final = (
    DELETERS
    | WRITERS
    | NETWORK
    | SHELL_STATE
    | SHELLS
    | names(
        "find sed awk gawk mawk nawk xargs env sudo doas su eval exec ssh parallel watch kill pkill "
        "killall dd mkfs mount umount reboot shutdown systemctl service crontab at batch osascript expect "
        "gdb apt apt-get dnf yum apk brew printenv base64 openssl yes m4 less more man vi vim emacs "
        "screen tmux busybox toybox perl ruby lua php node deno bun sqlite3 psql mysql"
    )
)
"""Programs that no rule allows for good, whatever stands behind them."""
_CODE_FLAGS: Final = re.compile(r"-[A-Za-z]*[ceprE]|--eval|--print|--execute|-")


def reads_script(name: str, words: Sequence[Word]) -> bool:
    """Whether a shell or interpreter has no script named, so that it runs its input."""
    if name not in SHELLS and not INTERPRETERS.fullmatch(name):
        return False
    for word in words[1:]:
        if word.value is None or word.stream:
            return True
        if word.value in ("-", "/dev/stdin", "/dev/fd/0", "-s", "--"):
            return True
        if word.value in ("-m", "-c", "-e", "--version", "-V") or not word.value.startswith("-"):
            return False
    return True


def runs_code(name: str, words: Sequence[Word]) -> bool:
    """Whether an interpreter is given code on its command line."""
    if not INTERPRETERS.fullmatch(name):
        return False
    for word in words[1:]:
        if word.value is None:
            return True
        if not word.value.startswith("-") or word.value == "-m":
            return False
        if _CODE_FLAGS.fullmatch(word.value.partition("=")[0]):
            return True
    return False


def writes_to(name: str, words: Sequence[Word], places: Places) -> str | None:
    """Why a command that writes or deletes is worth a question even where commands are confined."""
    arguments = list(words[1:])
    if name == "find" and any(word.value == "-delete" for word in arguments):
        return "deletes what it finds"
    if name == "sed" and not any(
        (word.value or "").startswith(("-i", "--in-place", "-ni", "-Ei")) for word in arguments
    ):
        return None
    if name == "sort" and any(word.value == "-o" for word in arguments):
        return _strays(arguments, places, "writes")
    if name not in DELETERS and name not in WRITERS and name != "sed":
        return None
    verb = "deletes" if name in DELETERS else "writes"
    targeted = any((word.value or "").startswith(("-t", "--target-directory")) for word in arguments)
    if name in _TARGET_LAST and not targeted:
        operands = [word for word in arguments if not (word.value or "").startswith("-")]
        arguments = operands[-1:]
    if name == "dd":
        values = [(word, word.value or "") for word in arguments]
        arguments = [Word(word.source, text[3:], word.glob) for word, text in values if text[:3] == "of="]
    if name == "sed":
        arguments = [word for word in arguments if not (word.value or "").startswith("-")][1:]
    return _strays(arguments, places, verb)


def _strays(words: Sequence[Word], places: Places, verb: str) -> str | None:
    recursive = any(re.fullmatch(r"-[a-zA-Z]*[rR][a-zA-Z]*|--recursive", word.value or "") for word in words)
    for word in words:
        if word.value is not None and word.value.startswith("-") and "/" not in word.value:
            continue
        where = places.where(word)
        if where == "unknown":
            return f"{verb} {word.source[:60]}, which may be anything"
        if where == "outside":
            return f"{verb} outside the workspace: {word.source[:80]}"
        if where == "git":
            return f"{verb} in the repository's own .git folder"
        if verb == "deletes" and (where == "root" or (recursive and _everything(word, places))):
            return "deletes the whole workspace"
    found = places.strays(words)
    if found is not None and found[0] == "outside":
        return f"{verb} outside the workspace: {found[1].source[:80]}"
    return None


def _everything(word: Word, places: Places) -> bool:
    """Whether a pattern may name all that lies in the workspace, or its `.git`."""
    if not word.glob or word.value is None:
        return False
    folder, _, pattern = word.value.rpartition("/")
    if not re.fullmatch(r"[.*?\[\]^!a-zA-Z-]*", pattern) or not pattern.startswith(("*", ".", "[", "?")):
        return False
    if folder and places.where(Word(folder, folder)) != "root":
        return False
    return bool(folder) or any(folder == places.root for folder in places.folders)


def fetches(name: str, words: Sequence[Word], network: frozenset[str], sub: str | None) -> str | None:
    """Whether a command is known to reach the network; `sub` is git's sub-command."""
    if name in NETWORK or (name == "git" and sub in network):
        return "reaches the network"
    second = words[1].value if len(words) > 1 else None
    if name in _INSTALLERS and (second in _FETCHES or name in ("npx", "uvx")):
        return "reaches the network"
    if INTERPRETERS.fullmatch(name) and [word.value for word in words[1:4]] == ["-m", "pip", "install"]:
        return "reaches the network"
    return None
