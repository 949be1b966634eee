"""Secrets that their own shape gives away: the keys of providers, and tokens of known formats."""

import re
from typing import Final

from tools.redaction.spans import Span
from tools.redaction.values import classes, digits_in, entropy

_WORD: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_ESCAPE: Final = re.compile(
    rb"(?:\\[abfnrtv0]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\x1b\[[\d;]*m)$"
)
_DRAWN: Final = 3.0
"""Bits of entropy for each character below which a token is a name that begins alike."""

# Minimum lengths are well below those of whole tokens: output may have been cut in the middle of one.
_TABLE: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("aws-key-id", ("AKIA", "ASIA", "ABIA", "ACCA"), r"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])"),
    ("github-token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{16,255}"),
    ("github-token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{16,255}"),
    (
        "gitlab-token",
        ("glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "glft-", "glimt-", "glagent-", "glsoat-", "gloas-"),
        r"gl[a-z]{2,5}-[\w.-]{14,300}",
    ),
    (
        "slack-token",
        ("xoxa-", "xoxb-", "xoxe-", "xoxe.", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xoxc-", "xoxd-"),
        r"xox[a-z][-.][A-Za-z0-9%.-]{10,400}",
    ),
    ("slack-token", ("xapp-",), r"xapp-\d-[A-Za-z0-9-]{10,200}"),
    (
        "slack-webhook",
        ("hooks.slack.com/",),
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/-]{20,120}",
    ),
    ("discord-webhook", ("/api/webhooks/",), r"/api/webhooks/\d{10,25}/[\w-]{30,120}"),
    (
        "stripe-key",
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_"),
        r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,250}",
    ),
    ("webhook-secret", ("whsec_",), r"whsec_[A-Za-z0-9+/=]{16,100}"),
    ("anthropic-key", ("sk-ant-",), r"sk-ant-[\w-]{16,200}"),
    ("openrouter-key", ("sk-or-",), r"sk-or-(?:v1-)?[0-9a-f]{24,100}"),
    ("openai-key", ("sk-",), r"sk-(?:proj-|svcacct-|admin-|None-)?[\w-]{16,250}"),
    ("huggingface-token", ("hf_",), r"hf_[A-Za-z0-9]{20,60}"),
    ("huggingface-token", ("api_org_",), r"api_org_[A-Za-z0-9]{20,60}"),
    ("npm-token", ("npm_",), r"npm_[A-Za-z0-9]{24,60}"),
    ("pypi-token", ("pypi-",), r"pypi-AgE[\w-]{20,400}"),
    ("sendgrid-key", ("SG.",), r"SG\.[\w-]{16,32}\.[\w-]{16,64}"),
    ("twilio-key", ("SK",), r"SK[0-9a-f]{32}(?![0-9A-Za-z])"),
    ("google-api-key", ("AIza",), r"AIza[\w-]{30,45}"),
    ("google-secret", ("GOCSPX-",), r"GOCSPX-[\w-]{16,40}"),
    ("google-token", ("ya29.",), r"ya29\.[\w.-]{20,1500}"),
    ("google-token", ("1//0",), r"1//0[\w-]{30,200}"),
    ("jwt", ("eyJ",), r"eyJ[\w-]{8,4000}\.(?:eyJ[\w-]{8,8000}|[\w-]{20,8000})(?:\.[\w-]{0,4000}){0,3}"),
    ("digitalocean-token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"do[opr]_v1_[0-9a-f]{32,80}"),
    ("shopify-token", ("shpat_", "shpca_", "shppa_", "shpss_"), r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{24,40}"),
    ("databricks-token", ("dapi",), r"dapi[0-9a-f]{32}(?:-\d)?(?![0-9A-Za-z])"),
    ("vault-token", ("hvs.", "hvb.", "hvr."), r"hv[sbr]\.[\w-]{20,300}"),
    ("age-key", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[0-9A-Z]{40,70}"),
    ("square-token", ("sq0atp-", "sq0csp-", "sq0idp-"), r"sq0[a-z]{3}-[\w-]{20,60}"),
    ("newrelic-key", ("NRAK-",), r"NRAK-[A-Z0-9]{20,40}"),
    ("grafana-token", ("glsa_", "glc_"), r"gl(?:sa|c)_[\w+/=]{24,400}"),
    ("planetscale-token", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), r"pscale_[a-z]+_[\w.=-]{24,80}"),
    ("groq-key", ("gsk_",), r"gsk_[A-Za-z0-9]{32,80}"),
    ("xai-key", ("xai-",), r"xai-[A-Za-z0-9]{40,120}"),
    ("replicate-token", ("r8_",), r"r8_[A-Za-z0-9]{30,50}"),
    ("perplexity-key", ("pplx-",), r"pplx-[A-Za-z0-9]{30,70}"),
    ("postman-key", ("PMAK-",), r"PMAK-[0-9a-f]{20,30}-[0-9a-f]{30,40}"),
    ("docker-token", ("dckr_pat_", "dckr_oat_"), r"dckr_[po]at_[\w-]{20,60}"),
    ("rubygems-key", ("rubygems_",), r"rubygems_[0-9a-f]{40,60}"),
    ("linear-key", ("lin_api_",), r"lin_api_[A-Za-z0-9]{30,60}"),
    ("notion-token", ("ntn_",), r"ntn_[A-Za-z0-9]{30,60}"),
    ("supabase-token", ("sbp_",), r"sbp_[0-9a-f]{32,50}"),
    ("sentry-token", ("sntrys_", "sntryu_"), r"sntry[su]_[\w=+/-]{24,300}"),
    ("atlassian-token", ("ATATT3x",), r"ATATT3x[\w=-]{40,300}"),
    ("doppler-token", ("dp.pt.", "dp.st.", "dp.ct."), r"dp\.[a-z]{2}\.[\w.-]{24,80}"),
    ("fly-token", ("fm2_", "fm1r_", "fm1a_"), r"fm(?:2|1[ar])_[A-Za-z0-9+/=]{40,2000}"),
    ("onepassword-token", ("ops_eyJ",), r"ops_eyJ[\w=+/-]{40,2000}"),
    ("shared-access-signature", ("&sig=", "?sig="), r"[&?]sig=(?P<value>[\w%+/=-]{24,120})"),
)
_RUN: Final = re.compile(rb"[\w-]+")
_SUFFIXED: Final = re.compile(rb"[\w~.-]{3}[0-9]Q~[\w~.-]{24,40}")
_TELEGRAM: Final = re.compile(rb"[0-9]{8,10}:AA[\w-]{30,36}(?![\w-])")
_SECRET_BESIDE: Final = re.compile(rb"[ \t,;:\"'|]{1,12}(?P<value>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])")

_RULES: Final[dict[bytes, list[tuple[str, re.Pattern[bytes]]]]] = {}
for _kind, _prefixes, _pattern in _TABLE:
    for _prefix in _prefixes:
        _RULES.setdefault(_prefix.encode(), []).append((_kind, re.compile(_pattern.encode())))

PREFIXES: Final = (*sorted(_RULES, key=len, reverse=True), b"Q~", b":AA")
"""What the scan looks for, longer ones first."""


def token(data: bytes, at: int, prefix: bytes, end: int) -> tuple[list[Span], int]:
    """The tokens at a place where the scan met a prefix; none where it only looks like one.

    Also up to where that was read.
    """
    read = at + len(prefix)
    if prefix == b"Q~":
        return _around(data, _SUFFIXED, max(at - 4, 0), at - 4, end, "azure-secret"), read
    if prefix == b":AA":
        begin = at
        while begin > 0 and at - begin < 10 and 48 <= data[begin - 1] <= 57:
            begin -= 1
        return _around(data, _TELEGRAM, begin, begin, end, "telegram-token"), read
    if not starts_here(data, at):
        return [], read
    for kind, pattern in _RULES[prefix]:
        found = pattern.match(data, at, min(end, at + 16_384))
        if found is None:
            if prefix == b"eyJ" and (run := _RUN.match(data, at, min(end, at + 4096))):
                read = run.end()  # only this one reads far to no end
            continue
        read = max(read, found.end())
        group = "value" if "value" in pattern.groupindex else 0
        start, stop = found.span(group)
        value = data[start:stop]
        if not _plausible(kind, value):
            continue
        spans = [Span(start, stop, kind, 1, True)]
        beside = _SECRET_BESIDE.match(data, stop, min(end, stop + 60)) if kind == "aws-key-id" else None
        if beside is not None and classes(beside["value"]) >= 3:
            spans.append(Span(*beside.span("value"), "aws-secret-key", 1, True))
        return spans, read
    return [], read


def starts_here(data: bytes, at: int) -> bool:
    """Whether a word can begin at this place: after no letter or digit, or after an escape that ends so."""
    if at == 0 or data[at - 1] not in _WORD:
        return True
    return _ESCAPE.search(data[max(0, at - 10) : at]) is not None


def _around(data: bytes, rule: re.Pattern[bytes], low: int, at: int, end: int, kind: str) -> list[Span]:
    if at < low or not starts_here(data, at):
        return []
    found = rule.match(data, at, min(end, at + 256))
    return [Span(*found.span(), kind, 1, True)] if found and _plausible(kind, found[0]) else []


def _plausible(kind: str, value: bytes) -> bool:
    """Against names that begin like a token (`sk-estimator-doc-link`), and the examples of manuals."""
    if value.endswith(b"EXAMPLE") or entropy(value) < (
        2.5 if kind in ("aws-key-id", "twilio-key") else _DRAWN
    ):
        return False
    if kind == "huggingface-token":
        return classes(value[3:]) >= 2
    if kind in ("openai-key", "gitlab-token", "slack-token", "grafana-token"):
        digits = digits_in(value[4:])
        return digits >= 2 and (classes(value) >= 3 or digits >= 6)
    return True
