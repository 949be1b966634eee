"""Patches as models write them: parsers of two forms, and what both mean."""

from tools.patch.parse import parse
from tools.patch.section import BadPatch, Chunk, Section

__all__ = ["BadPatch", "Chunk", "Section", "parse"]
