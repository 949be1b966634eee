"""vLLM's server as a child process: started, waited for, spoken to, ended."""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import orjson

from agent.engine.protocol import EngineError

INSIDE: Final = Path(__file__).parent / "inside"
NAME: Final = "etude"
"""What the server calls its model."""
TAIL: Final = 1500
"""Characters of the log that an error shows."""


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """`python` is that of vLLM's environment. `window` None = as the model says."""

    python: Path
    log: Path
    dtype: str = "float32"
    window: int | None = None
    threads: int = 1
    cache_gb: int = 1
    """Room for keys and values, on CPU."""
    waiting: int = 64
    """Requests in flight, beyond which more are refused."""
    start_s: float = 600
    request_s: float = 600
    """Between two answers of the server."""
    checked_bytes: int = 2 << 30
    """New weights up to this size are compared with a forward pass of our own."""
    arguments: tuple[str, ...] = ("--enforce-eager",)


def vllm_python(environ: Mapping[str, str] = os.environ, root: Path | None = None) -> Path | None:
    """`ETUDE_VLLM_PYTHON`, else what `make vllm` built; None where there is neither."""
    if given := environ.get("ETUDE_VLLM_PYTHON"):
        return Path(given).expanduser()
    built = (root or Path(__file__).parents[3]) / ".venv-vllm/bin/python"
    return built if built.is_file() else None


class VllmServer:
    """One server process group on loopback, behind a key; it ends with us, however we end."""

    def __init__(self, folder: Path, settings: VllmSettings) -> None:
        self._folder, self.settings = folder, settings
        self._process: asyncio.subprocess.Process | None = None
        self._client: httpx2.AsyncClient | None = None

    async def start(self) -> None:
        """Return when it answers.

        Raises:
            EngineError: it cannot be started, ended, or took too long; with the end of its log.
        """
        port, key = _free_port(), secrets.token_urlsafe(24)
        python = self.settings.python
        if not python.is_file():
            raise EngineError(f"{python} is not there: run `make vllm`, or set ETUDE_VLLM_PYTHON.")
        self.settings.log.parent.mkdir(parents=True, exist_ok=True)
        with self.settings.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                python, INSIDE / "etude_launch.py", *self._arguments(port),
                stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, cwd="/",
                env=self._environment(key), start_new_session=True,
            )  # fmt: skip
        self._client = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx2.Timeout(self.settings.request_s, connect=10),
            trust_env=False,
        )
        try:
            async with asyncio.timeout(self.settings.start_s):
                await self._healthy(self._client, self._process)
        except TimeoutError as error:
            await self.stop()
            raise EngineError(
                f"vLLM did not answer within {self.settings.start_s:.0f} s.{self._tail()}"
            ) from error
        except BaseException:
            await self.stop()
            raise

    async def _healthy(self, client: httpx2.AsyncClient, process: asyncio.subprocess.Process) -> None:
        while True:
            if process.returncode is not None:
                raise EngineError(f"vLLM ended while it started.{self._tail()}")
            try:
                if (await client.get("/health")).status_code == 200:
                    return
            except httpx2.TransportError:
                pass  # not yet
            await asyncio.sleep(0.25)

    async def post(self, path: str, body: Any = None, **query: Any) -> Any:
        """Raises `EngineError` for anything but success."""
        try:
            answer = await self._open().post(path, json=body, params=query)
        except httpx2.HTTPError as error:
            raise EngineError(f"vLLM does not answer {path} ({error!r}).{self._tail()}") from error
        if answer.status_code != 200:
            raise EngineError(f"vLLM refused {path} with status {answer.status_code}: {answer.text[:500]}")
        return answer.json() if answer.content else None

    async def call(self, method: str, *args: str) -> Any:
        """A method of the worker's extension."""
        answer = await self.post("/collective_rpc", {"method": method, "args": list(args)})
        return answer["results"][0]

    @asynccontextmanager
    async def stream(self, path: str, body: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Server-sent events; leaving frees what the server does for them."""
        try:
            async with self._open().stream("POST", path, json=body) as answer:
                if answer.status_code != 200:
                    text = (await answer.aread()).decode(errors="replace")
                    raise EngineError(f"vLLM refused {path} with status {answer.status_code}: {text[:500]}")
                yield _events(answer)
        except httpx2.HTTPError as error:
            raise EngineError(f"vLLM broke off {path} ({error!r}).{self._tail()}") from error

    async def stop(self) -> None:
        """End the whole process group."""
        client, self._client = self._client, None
        if client:
            await client.aclose()
        process, self._process = self._process, None
        if process:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            raise EngineError("The engine is closed; open the model again.")
        return self._client

    def _arguments(self, port: int) -> list[str]:
        window = [] if self.settings.window is None else ["--max-model-len", str(self.settings.window)]
        return [
            "--model", str(self._folder), "--served-model-name", NAME, "--host", "127.0.0.1",
            "--port", str(port), "--dtype", self.settings.dtype, "--generation-config", "vllm",
            "--logprobs-mode", "raw_logprobs", "--no-async-scheduling", "--enable-prompt-tokens-details",
            "--worker-extension-cls", "etude_worker.EtudeWorker", *window, *self.settings.arguments,
        ]  # fmt: skip

    def _environment(self, key: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        threads = str(self.settings.threads)
        return kept | {
            "PYTHONPATH": str(INSIDE),
            "PATH": f"{self.settings.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "VLLM_API_KEY": key,
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(self.settings.cache_gb),
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        }

    def _tail(self) -> str:
        try:
            text = self.settings.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return f" The end of {self.settings.log}:\n{text[-TAIL:]}"


async def _events(answer: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield orjson.loads(line[6:])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
