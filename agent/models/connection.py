"""The `openai` SDK's client of one endpoint: made when it is first needed."""

import asyncio
import gc
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import orjson

from agent.models.client import ModelError
from agent.models.endpoint import Endpoint
from agent.models.failures import Failures, Reported

if TYPE_CHECKING:
    import httpx2
    import openai
    from openai._types import RequestOptions

_LOOKUP_S: Final = 2.0
"""A document beside the completions is had soon or not at all."""


_KEY: Final = re.compile(r"[!-~]+")


class RequestFailed(Exception):
    """An attempt failed: `report` is the endpoint's own, still to be explained; else `error` says it all.

    `tries` bounds how often it is worth trying, where that is less than the settings allow.
    """

    def __init__(
        self, *, report: Reported | None = None, error: ModelError | None = None, tries: int | None = None
    ) -> None:
        super().__init__()
        self.report = report
        self.tries = tries
        self.error = error or ModelError("The request failed.")


class Connection:
    """Requests to one endpoint. The SDK's own retries are off: `ChatCompletions` has the policy.

    Exceptions of the SDK carry the provider's words, which may repeat a key: none is chained to ours.
    """

    def __init__(self, endpoint: Endpoint, failures: Failures, name: str, connect_s: float) -> None:
        self._endpoint = endpoint
        self._failures = failures
        self._name = name
        self._connect_s = connect_s
        self._client: openai.AsyncOpenAI | None = None

    async def open(self) -> "openai.AsyncOpenAI":
        """Import the SDK, in a thread the first time, and make the client; connects to nothing yet.

        Raises:
            ModelError: the address or the key cannot be one.
        """
        if self._client is not None:
            return self._client
        endpoint = self._endpoint
        if not endpoint.base_url.startswith(("http://", "https://")) or not endpoint.host:
            raise ModelError(
                f"base_url of {self._name!r} is {endpoint.shown!r}; expected http:// or https:// and a host."
            )
        if endpoint.key is not None and not _KEY.fullmatch(endpoint.key):
            raise ModelError(
                f"The environment variable {endpoint.key_env} holds spaces, line breaks or other characters"
                " that no key has: set it to the key alone."
            )
        if "openai" not in sys.modules:
            await asyncio.to_thread(_import_sdk)
        import httpx2

        if self._client is None:
            try:
                endpoint.port  # noqa: B018  (raises where it cannot be one)
                self._client = self._make()
            except (httpx2.InvalidURL, ValueError) as error:
                raise ModelError(f"base_url of {self._name!r} is {endpoint.shown!r}: {error}.") from None
        return self._client

    def _make(self) -> "openai.AsyncOpenAI":
        import httpx2
        import openai

        endpoint = self._endpoint
        timeout = httpx2.Timeout(None, connect=self._connect_s)
        plain = None
        if endpoint.loopback and endpoint.base_url.startswith("http://"):
            # No TLS and no proxy on loopback: neither certificates nor proxy variables are read.
            limits = openai.DEFAULT_CONNECTION_LIMITS
            plain = httpx2.AsyncClient(verify=False, trust_env=False, timeout=timeout, limits=limits)
        return openai.AsyncOpenAI(
            api_key=endpoint.key or "none",
            base_url=endpoint.base_url,
            max_retries=0,
            timeout=timeout,
            http_client=plain,
        )

    async def post(self, path: str, payload: bytes) -> "httpx2.Response":
        """Send JSON; the response has a good status and a body that is not read yet.

        Raises:
            RequestFailed: it has another status, or there is none.
        """
        import httpx2
        import openai

        client = await self.open()
        headers: dict[str, Any] = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        try:
            # `stream` as a variable: with a literal, the types want the SDK's own parser of streams.
            stream = True
            response = await client.post(
                path,
                cast_to=httpx2.Response,
                content=payload,
                options=self._options(headers),
                stream=bool(stream),
            )
        except openai.APIStatusError as error:
            report = self._failures.report(error.status_code, error.response.content, error.response.headers)
            raise RequestFailed(report=report) from None
        except openai.APIConnectionError as error:
            # A server on this machine that is not there now is not there in half a minute either.
            tries = 3 if self._endpoint.loopback else None
            raise RequestFailed(error=self._unreachable(error), tries=tries) from None
        if not isinstance(response, httpx2.Response):
            raise TypeError(f"the SDK gave a {type(response).__name__} instead of the plain response")
        return response

    async def get(self, path: str) -> Any:
        """A JSON document.

        Raises:
            ModelError: there is none, or not within two seconds.
        """
        import httpx2
        import openai

        client = await self.open()
        where = f"{self._endpoint.shown}{path}" if path.startswith("/") else path
        try:
            async with asyncio.timeout(_LOOKUP_S):
                response = await client.get(path, cast_to=httpx2.Response, options=self._options({}))
            return orjson.loads(response.content)
        except TimeoutError:
            raise ModelError(f"{where} did not answer within {_LOOKUP_S:g} s.") from None
        except openai.APIStatusError as error:
            report = self._failures.report(error.status_code, error.response.content, error.response.headers)
            raise ModelError(f"{where} failed ({report.status}): {report.message}") from None
        except openai.APIConnectionError as error:
            raise self._unreachable(error) from None
        except orjson.JSONDecodeError:
            raise ModelError(f"{where} did not answer with JSON.") from None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _options(self, headers: dict[str, Any]) -> "RequestOptions":
        import openai

        if self._endpoint.key is None:
            headers["Authorization"] = openai.omit
        return {"headers": headers}

    def _unreachable(self, error: "openai.APIConnectionError") -> ModelError:
        import httpx2
        import openai

        timed_out = isinstance(error, openai.APITimeoutError)
        failure = self._failures.unreachable(error.__cause__, self._connect_s, timed_out)
        failure.retryable = not isinstance(error.__cause__, httpx2.UnsupportedProtocol)
        return failure


def _import_sdk() -> None:
    """Several hundred modules, kept off the event loop.

    Nothing of them is garbage, and collecting meanwhile costs a quarter of the import.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        import openai  # noqa: F401
    finally:
        if collecting:
            gc.enable()
