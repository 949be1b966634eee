"""Puts back read-only mounts that a rename on the host removed."""
