"""Looking for processes that should be gone."""

import time

import psutil


def matching(mark: str) -> list[psutil.Process]:
    """Living processes of the machine whose command line holds `mark`."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if mark in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def gone_within(mark: str, seconds: float) -> bool:
    """Whether nothing matching is left after at most `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not matching(mark):
            return True
        time.sleep(0.05)
    return not matching(mark)
