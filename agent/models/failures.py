"""What went wrong with a request, said so that a person can act on it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from agent.models.client import ContextOverflow, ModelError
from agent.models.endpoint import Endpoint
from agent.models.overflow import is_overflow
from agent.models.retries import LONGEST_ASKED, STATUSES, asked_wait

_CLIP: Final = 600
_SHORTEST_KEY: Final = 8
"""Characters. A local server takes any key, such as `x` or `EMPTY`: a word that short is no secret."""
_KEYS: Final = re.compile(r"\b(?:sk|pk|gsk|xai|key)[-_][A-Za-z0-9_\-*.]{6,}|(?<=Bearer )\S+", re.IGNORECASE)
_NO_MODEL: Final = re.compile(
    r"model\b.{0,80}(not found|does not exist|not exist|unknown|not a valid|is not available|not supported)"
    r"|(no such|unknown|invalid) model|not a valid model",
    re.IGNORECASE,
)
_NOT_ACCEPTED: Final = re.compile(
    r"unsupported|not supported|unrecognized|unknown|unexpected|not permitted|not allowed|does not support"
    r"|only the default|extra[ _](inputs|fields|forbidden)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Reported:
    """A failure as the endpoint reports it: HTTP status (None inside a stream), its own code, its words."""

    status: int | None
    code: str | None
    message: str
    param: str | None = None
    headers: Mapping[str, str] | None = None

    @property
    def no_model(self) -> bool:
        """Whether the endpoint does not know the model (or the path)."""
        return (
            self.status == 404
            or self.code == "model_not_found"
            or (self.status in (400, 422) and bool(_NO_MODEL.search(self.message)))
        )

    def refused(self, fields: Mapping[str, Any]) -> str | None:
        """The optional field of the request that the endpoint does not accept, if that is the failure."""
        if self.status not in (400, 404, 415, 422, 500, 501):
            return None
        if is_overflow(self.status, self.code, self.message) or not (
            _NOT_ACCEPTED.search(self.message) or _NOT_ACCEPTED.search((self.code or "").replace("_", " "))
        ):
            return None
        if self.param in fields:
            return self.param
        return next((name for name in fields if re.search(rf"\b{re.escape(name)}\b", self.message)), None)


class Failures:
    """Turns reports into errors for one model of one endpoint. Keys never get into a message."""

    def __init__(self, endpoint: Endpoint, model: str, name: str) -> None:
        self._endpoint = endpoint
        self._model = model
        self._name = name

    def clean(self, text: str) -> str:
        """Someone else's text without keys, on one line, clipped."""
        key = self._endpoint.key or ""
        if len(key) >= _SHORTEST_KEY:
            text = text.replace(key, "[key]")
        text = " ".join(_KEYS.sub("[key]", text).split())
        return text if len(text) <= _CLIP else text[:_CLIP] + " …"

    def report(self, status: int | None, body: Any, headers: Mapping[str, str] | None = None) -> Reported:
        """Read a failure from an error body: text, or an object in one of the usual forms."""
        if isinstance(body, str | bytes):
            try:
                body = orjson.loads(body)
            except orjson.JSONDecodeError:
                text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
                title = re.search(r"<title>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
                return Reported(status, None, self.clean(title.group(1) if title else text), None, headers)
        error = body.get("error", body) if isinstance(body, dict) else body
        if not isinstance(error, dict):
            return Reported(status, None, self.clean(_text(error)), None, headers)
        code = error.get("code")
        if status is None and isinstance(code, int) and 400 <= code < 600:
            status = code
        message = next(
            (_text(error[key]) for key in ("message", "detail", "msg", "errors") if error.get(key)), ""
        )
        metadata = error.get("metadata")
        if isinstance(metadata, dict) and metadata.get("raw"):
            message += f" ({_text(metadata['raw'])})"
        word = code if isinstance(code, str) else error.get("type")
        param = error.get("param")
        return Reported(
            status,
            word if isinstance(word, str) else None,
            self.clean(message or _text(error)),
            param if isinstance(param, str) else None,
            headers,
        )

    def error(
        self, report: Reported, *, estimate: int, window: int | None, listed: list[str] | None = None
    ) -> tuple[ModelError, float | None]:
        """The error to raise, and the wait that the provider asks for before another try."""
        endpoint, status = self._endpoint, report.status
        said = f": {_sentence(report.message)}" if report.message else "."
        number = f" ({status})" if status is not None else ""
        if is_overflow(status, report.code, report.message, estimate=estimate, window=window):
            return ContextOverflow(f"The prompt does not fit the window of {self._name}{number}{said}"), None
        if status == 401 or report.code == "invalid_api_key":
            return ModelError(f"{endpoint.shown} refused the key{number}{said} {self._key_advice()}"), None
        if status == 402 or report.code in ("insufficient_quota", "billing_hard_limit_reached"):
            return ModelError(f"{endpoint.shown} refused for lack of credit{number}{said}"), None
        if status == 403:
            advice = f"The key may not use model {self._model!r}, or the provider refuses this address."
            return ModelError(
                f"{endpoint.shown} refused access (403){said} {advice} {self._key_advice()}"
            ), None
        if report.no_model:
            return ModelError(self._no_model(report, listed)), None
        wait = asked_wait(report.headers or {})
        retryable = status in STATUSES or (status is None and report.code != "invalid_request_error")
        if report.headers is not None and report.headers.get("x-should-retry") in ("true", "false"):
            retryable = report.headers["x-should-retry"] == "true"
        what = (
            "asked to slow down"
            if status == 429
            else "failed"
            if (status or 500) >= 500
            else "refused the request"
        )
        if wait is not None and wait > LONGEST_ASKED:
            message = (
                f"{endpoint.shown} {what}{number}{said} It asks to wait {wait:.0f} s; try again after that."
            )
            return ModelError(message), None
        return ModelError(f"{endpoint.shown} {what}{number}{said}", retryable=retryable), wait

    def unreachable(self, cause: BaseException | None, connect_s: float, timed_out: bool) -> ModelError:
        """No connection, or none that lasted until an answer began."""
        shown = self._endpoint.shown
        if timed_out:
            return ModelError(f"{shown} did not accept a connection within {connect_s:g} s.", retryable=True)
        detail = self.clean(str(cause) or type(cause).__name__) if cause is not None else "connection failed"
        advice = (
            "Is the server running there?"
            if self._endpoint.loopback
            else "Check base_url, the network and the proxy variables."
        )
        return ModelError(f"Could not get an answer from {shown}: {detail}. {advice}", retryable=True)

    def _key_advice(self) -> str:
        endpoint = self._endpoint
        if endpoint.key_env is None:
            return (
                f"It wants a key: name the environment variable that holds it as api_key_env of"
                f" {self._name!r} in the configuration, and set that variable."
            )
        if endpoint.key is None:
            return (
                f"The environment variable {endpoint.key_env} is not set: set it to a key of this provider."
            )
        return f"Check the key in the environment variable {endpoint.key_env}."

    def _no_model(self, report: Reported, listed: list[str] | None) -> str:
        said = f": {_sentence(report.message)}" if report.message else "."
        text = f"{self._endpoint.shown} does not know the model {self._model!r} ({report.status}){said}"
        if listed:
            more = f" and {len(listed) - 20} more" if len(listed) > 20 else ""
            return f"{text} It has: {', '.join(listed[:20])}{more}."
        hint = "" if "/v" in self._endpoint.base_url else " Most base_urls end in /v1."
        return f"{text} Check the model's name and base_url.{hint}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "; ".join(_problem(item) for item in value[:5])
    return "" if value is None else orjson.dumps(value, default=str).decode()


def _problem(item: Any) -> str:
    """One entry of a list of validation errors: where and what."""
    if not isinstance(item, dict):
        return _text(item)
    where = item.get("loc")
    place = ".".join(map(str, where)) + ": " if isinstance(where, list) else ""
    return place + _text(item.get("msg") or item.get("message") or item)
