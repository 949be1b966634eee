"""Providers' words for "too long", and words that only look like it."""

import pytest

from agent.models.overflow import is_overflow

OVERFLOWS = {
    "OpenAI": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001.",
    "OpenAI Responses": "Your input exceeds the context window of this model. Please adjust your input.",
    "OpenAI part": "Invalid 'messages[3].content': string too long. Expected maximum length 10485760.",
    "Anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "Anthropic size": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
    "Bedrock": "Input is too long for requested model.",
    "Bedrock limit": "ValidationException: Input exceeds the max input token limit",
    "Gemini": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Groq": "Please reduce the length of the messages or completion.",
    "OpenRouter": "This endpoint's maximum context length is 131072 tokens. You requested about 200000.",
    "Poolside": "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    "parenthesised": "Input length (265330) exceeds model's maximum context length (262144).",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "llama.cpp server": "request (9000 tokens) exceeds the available context size (4096 tokens)",
    "LM Studio": "The number of tokens to keep from the initial prompt is greater than the context length",
    "Ollama": "ollama: context length exceeded for llama3",
    "Copilot": "prompt token count of 135000 exceeds the limit of 128000",
    "MiniMax": "invalid params, context window exceeds limit",
    "Kimi": "Your request exceeded model token limit: 262144 (requested: 300000)",
    "Cohere": "total tokens exceeds the model's max of 4096",
    "vLLM": "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that"
    " `max_model_len` is no smaller than the number of text tokens.",
    "vLLM limit": "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context"
    " length is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104).",
    "TGI": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
    "TGI short": "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
    "Mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum"
    " context length",
    "DeepSeek": "This model's maximum context length is 65536 tokens. However, you requested 66000 tokens",
    "Together": "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: too many tokens in the prompt",
    "SGLang": "The input (8200 tokens) is longer than the model's context length (8192 tokens).",
    "Qwen": "Range of input length should be [1, 129024]; input length exceeded the limit",
    "LiteLLM": "litellm.ContextWindowExceededError: context window exceeded",
}


@pytest.mark.parametrize("provider", OVERFLOWS)
def test_the_words_of_providers(provider: str) -> None:
    assert is_overflow(400, None, OVERFLOWS[provider])
    assert is_overflow(None, None, OVERFLOWS[provider])


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000, Used 29000."),
        (429, "Too many tokens, please wait before trying again."),
        (400, "ThrottlingException: Too many tokens, please wait before trying again."),
        (400, "Invalid value for 'temperature'."),
        (401, "Incorrect API key provided."),
        (404, "The model `gpt-9` does not exist"),
        (500, "Internal server error"),
        (503, "The server is overloaded; too many requests in the queue, limit exceeded"),
        (400, "You exceeded your current quota, please check your plan and billing details."),
        (400, "Invalid schema for function 'read': maximum nesting depth exceeded."),
        (422, "max_tokens: Input should be less than or equal to 8192"),
    ],
)
def test_words_that_only_look_like_it(status: int, message: str) -> None:
    assert not is_overflow(status, None, message, estimate=100, window=100_000)


def test_codes_win_over_words() -> None:
    assert is_overflow(400, "context_length_exceeded", "Bad request")
    assert is_overflow(400, "exceed_context_size_error", "")
    assert not is_overflow(400, "invalid_request_error", "Bad request")


def test_a_body_too_large_and_a_request_over_the_whole_limit_per_minute() -> None:
    assert is_overflow(413, None, "")
    over = "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 12000"
    assert is_overflow(413, "rate_limit_exceeded", over)
    assert is_overflow(429, "rate_limit_exceeded", over)


def test_nothing_is_assumed_of_an_unknown_window() -> None:
    assert not is_overflow(400, None, "Bad request", estimate=10**9, window=None)
    assert is_overflow(400, None, "Bad request", estimate=3700, window=4096)
    assert not is_overflow(400, None, "Bad request", estimate=3600, window=4096)
    assert not is_overflow(401, None, "Unauthorized", estimate=5000, window=4096)
