"""Judges command lines before they run: what they do, as far as their text tells, and where."""

from agent.judge.line import judge_line
from agent.judge.verdict import Judgement, Part, Setting

__all__ = ["Judgement", "Part", "Setting", "judge_line"]
