"""However commands are put together, the whole is judged no laxer than its strictest part."""

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.judge import Setting, judge_line
from agent.judge.verdict import STRICTNESS

LINES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "lines.toml").read_text("utf-8"))


def closed(line: str) -> bool:
    """Whether a line's quotations end in it: else what follows is a part of it, not of the whole."""
    try:
        return bool(shlex.split(line))
    except ValueError:
        return False


WHOLE = [
    line
    for kind in ("reads", "acts", "asks")
    for line in LINES[kind]
    if "\n" not in line and "#" not in line and "<<" not in line and closed(line)
]
WORDS = [
    "ls",
    "rm",
    "-rf",
    "/",
    "sub",
    "..",
    "/etc",
    "$X",
    "f",
    "git",
    "log",
    "push",
    "--output=x",
    "*",
    "pytest",
    "sudo",
    "cat",
    "~",
    "curl",
    "x",
    ".git",
    "-c",
    "npm",
    "test",
    "$(id)",
    "'a'",
    '"q"',
    ">f",
    ">/x",
    "2>&1",
]
ROOT = Path("/srv/project")
SETTINGS = [
    Setting(ROOT, "ask"),
    Setting(ROOT, "auto"),
    Setting(ROOT, "plan"),
    Setting(ROOT, "auto", network=True),
    Setting(ROOT, "auto", confined=False),
    Setting(ROOT, "ask", allowed=(("pytest",), ("npm", "test"), ("git", "push"), ("cat",)), edits=True),
    Setting(ROOT, "full", denied=(("rm",), ("git", "push"), ("curl",))),
    Setting(ROOT, "ask", denied=(("git", "log"), ("ls",))),
]

WRAPPERS = [
    "env",
    "env A=1",
    "nice",
    "nice -n 5",
    "nohup",
    "timeout 5",
    "timeout -k 1 5",
    "command",
    "exec",
    "setsid",
    "stdbuf -oL",
    "sudo",
    "xargs",
    "xargs -n 1",
    "time",
    "busybox",
    "env -- nice timeout 5",
    "LC_ALL=C",
    "A=1",
    "ls |",
    "cat f | xargs -0",
    "nice -x",
]
QUOTED = [*"lrmgitx/.", "rm", "ls", "-rf", "/etc", "git", "push", "log", "sub", "f"]

simple = (
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=5)
    .map(" ".join)
    # The parser takes a flag with a value for an assignment, or for nothing at the end of a text.
    .filter(lambda line: not line.startswith("--"))
)
part = st.one_of(st.sampled_from(WHOLE), simple)
setting = st.sampled_from(SETTINGS)


def strictness(line: str, where: Setting) -> int:
    return STRICTNESS[judge_line(line, where).verdict]


def compositions(one: str, two: str) -> list[str]:
    text = shlex.quote(one)
    return [
        f"{one}; {two}",
        f"{one} && {two}",
        f"{one} || {two}",
        f"{one} | {two}",
        f"{one} & {two}",
        f"{one}\n{two}",
        f"({one}); {two}",
        f"{{ {one}; }} && {two}",
        f"if {one}; then {two}; fi",
        f"while {one}; do {two}; done",
        f"for x in a b; do {one}; {two}; done",
        f"case a in a) {one};; b) {two};; esac",
        f"f() {{ {one}; }}; {two}",
        f"! {one}\n{two}",
        f"echo $({one}) `pwd`; {two}",
        f'echo "$({one})"; {two}',
        f"A=$({one}); {two}",
        f"ls $(echo $({one})) && {two}",
        f"diff <({one}) <({two})",
        f"cat <<E\n$({one})\nE\n{two}",
        f"bash <<'END'\n{one}\nEND\n{two}",
        f"bash -c {text}; {two}",
        f"sh -c {shlex.quote(f'bash -c {text}')} && {two}",
        f"eval {text}; {two}",
        f"time {one}; {two}",
        f"[ -n $({one}) ] || {two}",
        f"echo ${{x:-$({one})}}; {two}",
        f"({one}) > /dev/null 2>&1; {two}",
        f"trap {text} EXIT; {two}",
    ]


@pytest.mark.case("agent-23")
@settings(max_examples=100, deadline=None)
@given(one=part, two=part, where=setting)
def test_a_line_is_never_laxer_than_its_parts(one: str, two: str, where: Setting) -> None:
    strictest = max(strictness(one, where), strictness(two, where))
    for line in compositions(one, two):
        assert strictness(line, where) >= strictest, line


@pytest.mark.case("agent-23")
@settings(max_examples=100, deadline=None)
@given(one=simple, where=setting)
def test_a_wrapper_makes_nothing_laxer(one: str, where: Setting) -> None:
    if one.split()[0].startswith(
        ("-", ">", "2>")
    ):  # an option or redirection of the wrapper, not its command
        return
    for wrapper in WRAPPERS:
        assert strictness(f"{wrapper} {one}", where) >= strictness(one, where), wrapper


@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.sampled_from(QUOTED), min_size=1, max_size=5), data=st.data(), where=setting)
def test_quoting_and_space_make_nothing_laxer(words: list[str], data: st.DataObject, where: Setting) -> None:
    def dressed(word: str) -> str:
        return data.draw(
            st.sampled_from(
                [
                    word,
                    f"'{word}'",
                    f'"{word}"',
                    "\\" + word,
                    f"{word[:1]}''{word[1:]}",
                    f'{word[:1]}"{word[1:]}"',
                    f"$'{word}'",
                    "$'" + "".join(f"\\x{ord(letter):02x}" for letter in word) + "'",
                    word + "\\\n",
                ]
            )
        )

    space = data.draw(st.sampled_from([" ", "  ", "\t", " \\\n", "\t \\\n "]))
    line = space.join(dressed(word) for word in words)
    assert strictness(line, where) >= strictness(" ".join(words), where), json.dumps(line)


@settings(max_examples=300, deadline=None)
@given(line=st.text(st.sampled_from(" \n\t;&|<>(){}[]$`'\"\\#!*?~=-/.abrm{,}012Ex"), max_size=60))
def test_nonsense_is_judged_too(line: str) -> None:
    assert judge_line(line, SETTINGS[0]).verdict in STRICTNESS


@settings(max_examples=300, deadline=None)
@given(
    line=st.text(
        st.sampled_from(" \n\t;&|<>(){}[]$`'\"\\#!*-=abr,0\xe9\u4e2d\U0001f600\U0010fffd"), max_size=60
    )
)
def test_a_line_in_any_script_is_judged(line: str) -> None:
    assert judge_line(line, SETTINGS[1]).verdict in STRICTNESS


@settings(max_examples=200, deadline=None)
@given(line=st.text(max_size=80))
def test_so_is_any_text(line: str) -> None:
    assert judge_line(line, SETTINGS[1]).verdict in STRICTNESS
