"""Recognising that a prompt did not fit, whatever the endpoint calls it."""

import re
from typing import Any, Final

CODES: Final = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "max_tokens_exceeded",
        "request_too_large",
        "string_above_max_length",
        "tokens_exceeded_error",
    }
)

_TEXTS: Final = re.compile(
    "|".join(
        (
            r"context[ _-]?(length|window|size|limit)[^.]{0,80}(exceed|too (long|large)|reached|overflow)",
            r"(exceed(s|ed|ing)?|over|above|larger than|longer than|greater than|beyond|outside)"
            r"[^.]{0,80}(context (length|window|size)|context limit|context_length|\bn_ctx\b|max_model_len"
            r"|max_seq_len)",
            r"maximum (context|model|sequence|prompt|input) length",
            r"max(imum)? (prompt|input|context) (length|tokens|size) (is|of|exceeded|allowed)",
            r"(prompt|input|request|messages?|conversation) (is|are|was|were) too (long|large|big)",
            r"(prompt|input) (has|with|contains?|of) [\d,]+ tokens?[^.]{0,60}(max|limit|exceed)",
            r"prompt is too long",
            r"too many (input |prompt )?tokens",
            r"input (token count|length|tokens)[^.]{0,80}exceed",
            r"number of (input |prompt )?tokens[^.]{0,80}(exceed|greater|maximum|limit)",
            r"requested (tokens|token count) \(?[\d,]+\)?[^.]{0,40}exceed",
            r"tokens? (to keep from the initial|in (the )?(request|prompt))[^.]{0,80}(greater|exceed|than)",
            r"reduce the length of (the |your )?(messages|prompt|input|completion)",
            r"(shorten|truncate) (your|the) (prompt|input|messages|conversation)",
            r"exceed(s|ed)? (the )?(maximum|limit)[^.]{0,40}tokens",
            r"exceeds? (the |your )?(model'?s?|available) (maximum )?(context|input|token|length)",
            r"(must|should) (have|be) (less|fewer) than [\d,]+ (input )?tokens",
            r"input validation error: .{0,40}inputs. tokens",
            r"token limit (was )?(exceeded|reached)|exceeded (the |your )?(model )?token limit",
            r"request (entity )?too large",
            r"kv cache (is )?(full|exhausted)|no (kv )?(slot|space)( available)? for (the )?(prompt|kv)",
            r"not enough (context|tokens) (left|space)",
            r"(token count|input length|total tokens|input|request) (of )?\(?[\d,]*\)?[^.]{0,30}exceed(s|ed)?"
            r"[^.]{0,40}(limit|max|allowed)",
            r"string too long",
            r"maximum number of input tokens",
        )
    ),
    re.IGNORECASE,
)

_NOT: Final = re.compile(
    r"rate.?limit|tokens? per (min|day|hour)|\bTPM\b|\bTPD\b|quota|throttl|too many (requests|connections)"
    r"|please wait|wait before",
    re.IGNORECASE,
)
"""Limits on tokens over time: waiting helps, a shorter prompt does not."""

_OVER_THE_WHOLE_LIMIT: Final = re.compile(r"request (is )?too large", re.IGNORECASE)
"""One request over the whole limit per minute never gets through: only a shorter one does."""

_UNNAMED: Final = frozenset({400, 413, 422, 500})
_NEAR: Final = 0.9


def is_overflow(
    status: int | None, code: Any, message: str, *, estimate: int = 0, window: int | None = None
) -> bool:
    """Whether a failed request failed because its prompt is too long.

    `status` is the HTTP status (None inside a stream), `code` the provider's `code` or `type`,
    `estimate` our count of the prompt's tokens and `window` the model's, where they are known: an
    unlabelled refusal of a prompt that fills the window is taken for an overflow.
    """
    if isinstance(code, str) and code.lower() in CODES:
        return True
    if status == 413 or (status == 429 and _OVER_THE_WHOLE_LIMIT.search(message)):
        return True
    if status == 429 or _NOT.search(message):
        return False
    if status not in (401, 403, 404) and _TEXTS.search(message):
        return True
    return status in _UNNAMED and window is not None and estimate >= _NEAR * window
