"""Runs in vLLM's environment: starts its server and ends everything with whoever holds our standard input."""

import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *sys.argv[1:]], stdin=subprocess.DEVNULL
    )

    def watch() -> None:
        sys.stdin.buffer.read()  # ends when the other side closes it, or is killed
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    print(f"vLLM's server ended with status {server.wait()}", flush=True)  # noqa: T201 - into its log
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
