"""What a git command does, as far as its words tell."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.judge.names import names
from agent.judge.places import Places
from agent.judge.words import Word

_READING: Final = names(
    "status log diff show blame annotate shortlog describe rev-parse rev-list ls-files ls-tree "
    "cat-file name-rev merge-base grep whatchanged diff-tree diff-index diff-files for-each-ref "
    "count-objects check-ignore version show-ref cherry show-branch range-diff"
)
_LISTING: Final[dict[str, frozenset[str]]] = {
    "branch": names("-a -r -v -vv -l --list --all --remotes --show-current --verbose --merged --no-merged"),
    "tag": names("-l --list -n"),
    "remote": names("-v --verbose"),
    "config": names("-l --list --get --get-all --show-origin --local"),
}
_SECOND: Final[dict[str, frozenset[str]]] = {
    "stash": frozenset({"list", "show"}),
    "worktree": frozenset({"list"}),
    "submodule": frozenset({"status"}),
    "reflog": frozenset({"show"}),
    "remote": frozenset({"get-url"}),
    "notes": frozenset({"list", "show"}),
}
REFUSED: Final = names(
    "--output --ext-diff --textconv --filters --open-files-in-pager --exec --upload-pack "
    "--receive-pack --no-index --paginate --output-directory --upload-archive --template --config"
)
"""Flags with which even a reading command writes, or runs what a configuration names."""
_RUNNING: Final = {
    "grep": re.compile(r"-[^-efABCmO]*O"),  # a pager, also behind other letters
    "clone": re.compile(r"-[^-bjo]*[uc]"),  # a program on the other side, a setting
}
"""Short flags that run a program."""
NETWORK: Final = names("push pull fetch clone ls-remote send-email archive-remote svn p4")
DISCARDS: Final = frozenset({"clean"})
NEVER: Final = names(
    "clean reset rm filter-branch bisect rebase submodule config gc prune checkout restore update-ref "
    "hook difftool mergetool push branch tag worktree remote reflog stash notes am"
)
"""Sub-commands that no rule allows for good: they destroy, or run other commands."""
_BEFORE: Final = frozenset({"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"})
_VALUED: Final = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env"})


@dataclass(frozen=True, slots=True)
class Git:
    """`name` of the sub-command, its `arguments`, and what stands before it that is not harmless."""

    name: str | None
    arguments: tuple[Word, ...]
    before: tuple[Word, ...]
    strange: str | None


def read(words: Sequence[Word], places: Places) -> Git:
    """Take a git command apart."""
    at, strange, before = 1, None, []
    while at < len(words) and (text := words[at].value) is not None and text.startswith("-"):
        name = text.partition("=")[0]
        if text in _VALUED and at + 1 < len(words):
            if text != "-C" or places.where(words[at + 1]) not in ("inside", "root"):
                strange = strange or f"sets {text} {words[at + 1].source[:60]}"
            before += words[at : at + 2]
            at += 2
            continue
        if text not in _BEFORE and text != "--version":
            strange = strange or f"has {name} before its sub-command"
        before.append(words[at])
        at += 1
    name = words[at].plain if at < len(words) else None
    if at < len(words) and name is None:
        strange = strange or "has a sub-command that only the shell knows"
    return Git(name, tuple(words[at + 1 :]), tuple(before), strange)


def why_not(git: Git, words: Sequence[Word], places: Places) -> str | None:
    """None if it only reads, and only in the workspace."""
    if git.name is None:
        return None if [word.plain for word in words[1:]] == ["--version"] else "is not known to only read"
    if git.strange is not None:
        return git.strange
    if (flag := refused_flag(git)) is not None:
        return f"has {flag}, which does more than read"
    if (found := places.strays(git.arguments)) is not None:
        what = "may be anything" if found[0] == "unknown" else "leads outside the workspace"
        return f"has an argument, {found[1].source[:80]}, that {what}"
    if git.name in _READING or _lists(git):
        return None
    return "is not known to only read"


def refused_flag(git: Git) -> str | None:
    """A flag that makes more of a command than its name says, also abbreviated."""
    for word in git.arguments:
        if word.value is None or (word.glob and word.source[:1] in "*?["):
            if not any(other.value == "--" for other in git.arguments[: git.arguments.index(word)]):
                return "an argument that may turn out to be a flag"
            continue
        if word.value == "--":
            return None
        name = word.value.partition("=")[0]
        if name.startswith("--") and len(name) > 2 and any(flag.startswith(name) for flag in REFUSED):
            return name
        if (short := _RUNNING.get(git.name or "")) is not None and short.match(name):
            return name
    return None


def _lists(git: Git) -> bool:
    texts = [word.value or "" for word in git.arguments]
    if git.name in _SECOND and texts[:1] and texts[0] in _SECOND[git.name]:
        return True
    if git.name == "reflog":
        return not texts
    allowed = _LISTING.get(git.name or "")
    if allowed is None:
        return False
    flags = [text for text in texts if text.startswith("-")]
    if not all(flag in allowed for flag in flags):
        return False
    if git.name == "config":
        return bool({"-l", "--list", "--get", "--get-all"} & set(flags))  # else a value is set
    listing = {"-l", "--list", "--merged", "--no-merged"} & set(flags)
    return len(flags) == len(texts) or bool(listing and git.name in ("branch", "tag"))
