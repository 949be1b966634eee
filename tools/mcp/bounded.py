"""HTTP answers of bounded size: a server that is asked one thing may not fill our memory with another."""

from collections.abc import AsyncIterator, Callable

import httpx2

from tools.mcp.stdio import LINE


class Bounded(httpx2.AsyncHTTPTransport):
    """Breaks off an answer of more than 4 MiB, and refuses compressed ones, whose size is not known.

    Streams of events pass: they are read message by message. `complain` is told what was not taken.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        super().__init__()
        self._complain = complain

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            self._complain("a compressed answer")
            raise httpx2.ReadError("the answer is compressed, which was not asked for", request=request)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Counted(response.stream, self._complain)
        return response


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, complain: Callable[[str], None]) -> None:
        self._stream, self._complain = stream, complain

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > LINE:
                self._complain(f"an answer of more than {LINE >> 20} MiB")
                raise httpx2.ReadError(f"the answer is larger than {LINE >> 20} MiB")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
