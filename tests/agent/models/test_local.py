"""The embedded model as the agent uses it: exact tokens over several steps, tools, streaming, limits."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agent.models.client import Completion, ContextOverflow, Delta, ModelError, Request, Sampling
from agent.models.local import LocalModel
from agent.models.settings import ModelSettings

pytestmark = pytest.mark.local_model
ROOT = Path(__file__).resolve().parents[3]
SYSTEM = {"role": "system", "content": "You are a coding agent in the user's repository. Answer briefly."}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}},
        },
    }
    for name, argument in (("read", "path"), ("grep", "pattern"), ("shell", "command"))
]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def as_message(completion: Completion) -> dict[str, Any]:
    calls = [
        {
            "id": f"again-{call.id}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in completion.calls
    ]
    return {
        "role": "assistant",
        "content": completion.text or None,
        **({"tool_calls": calls} if calls else {}),
    }


async def ask(
    model: LocalModel, messages: list[dict[str, Any]], session: str = "s", tools: Any = TOOLS, **sampling: Any
) -> tuple[list[Delta], Completion]:
    deltas: list[Delta] = []
    async for chunk in model.sample(Request(session, list(messages), tools, Sampling(**sampling))):
        if isinstance(chunk, Completion):
            return deltas, chunk
        assert isinstance(chunk, Delta)
        deltas.append(chunk)
    raise AssertionError("no completion")


@pytest.fixture(scope="module")
def embedded(model_cache: Path) -> LocalModel:
    """One for all tests: loading takes seconds. Its engine belongs to no event loop."""
    return LocalModel(None, model_cache)


async def test_three_steps_are_one_sequence_of_tokens(embedded: LocalModel, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    messages = [SYSTEM, user("Read config.py and say what the timeout is.")]
    steps: list[Completion] = []
    for reply in (None, "1\tTIMEOUT = 30\n2\tRETRIES = 5\n", "And what does RETRIES mean?"):
        if steps:
            last = steps[-1]
            messages.append(as_message(last))
            if last.calls:
                call = messages[-1]["tool_calls"][0]["id"]
                messages.append({"role": "tool", "tool_call_id": call, "content": reply})
            else:
                messages.append(user(str(reply)))
        steps.append((await ask(embedded, messages, temperature=0.7, top_p=1.0, seed=4, max_tokens=32))[1])
    first, second, third = steps
    assert [(call.name, json.loads(call.arguments)) for call in first.calls] == [
        ("read", {"path": "config.py"})
    ]
    assert first.grammar
    assert first.finish == "tool_calls"
    for step in steps:
        assert step.tokens is not None
        assert step.tokens.completion is not None
        assert step.tokens.logprobs is not None
        assert len(step.tokens.completion) == len(step.tokens.logprobs) == len(step.tokens.versions or [])
    contexts = [step.tokens.context for step in steps if step.tokens]
    assert contexts == ["start", "extend", "extend"]
    for before, after in ((first, second), (second, third)):
        assert before.tokens is not None
        sequence = [*(before.prompt_ids or []), *(before.tokens.completion or [])]
        assert (after.prompt_ids or [])[: len(sequence)] == sequence
        # All but the last sampled id was computed before.
        assert after.usage.cached is not None
        assert after.usage.cached >= len(sequence) - 1
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert third.tokens is not None
    whole = [*(third.prompt_ids or []), *(third.tokens.completion or [])]
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(torch.tensor([whole])).logits[0].float() / 0.7, dim=-1)
    for step in steps:
        assert step.tokens is not None
        at = len(step.prompt_ids or [])
        ids = step.tokens.completion or []
        again = [float(logprobs[at + n - 1, id]) for n, id in enumerate(ids)]
        assert step.tokens.logprobs == pytest.approx(again, abs=1e-4)


async def test_a_question_is_answered_in_streamed_text(embedded: LocalModel) -> None:
    deltas, completion = await ask(
        embedded, [SYSTEM, user("What is a Python list?")], "q", temperature=0, max_tokens=48
    )
    assert len(deltas) > 5
    assert "".join(delta.text for delta in deltas) == completion.text
    assert "list" in completion.text.lower()
    assert not completion.calls
    assert not completion.grammar
    assert completion.usage.output == len((completion.tokens and completion.tokens.completion) or [])
    assert completion.sampling is not None
    assert completion.sampling.items() >= {"temperature": 0, "top_p": 0.9, "max_tokens": 48}.items()


@pytest.mark.parametrize(
    ("said", "name", "arguments"),
    [
        ("Please read docs/index.md", "read", {"path": "docs/index.md"}),
        ("Search for parse_date", "grep", {"pattern": "parse_date"}),
    ],
)
async def test_a_request_about_files_becomes_a_call_in_the_users_words(
    embedded: LocalModel, said: str, name: str, arguments: dict[str, str]
) -> None:
    deltas, completion = await ask(embedded, [SYSTEM, user(said)], said)
    assert [(call.name, json.loads(call.arguments)) for call in completion.calls] == [(name, arguments)]
    assert completion.grammar
    assert deltas == []
    assert completion.text == ""


async def test_without_tools_nothing_is_called(embedded: LocalModel) -> None:
    _, completion = await ask(embedded, [SYSTEM, user("Please read docs/index.md")], "n", [], max_tokens=8)
    assert not completion.calls
    assert not completion.grammar


async def test_a_stop_string_ends_the_answer(embedded: LocalModel) -> None:
    messages = [user("Count: one, two, three, four, five.")]
    _, free = await ask(embedded, messages, "stop", [], temperature=0, max_tokens=24)
    word = free.text.split()[2]
    _, stopped = await ask(embedded, messages, "stop", [], temperature=0, max_tokens=24, stop=(word,))
    assert stopped.text == free.text[: free.text.index(word)].rstrip()
    assert stopped.finish == "stop"


async def test_leaving_the_stream_frees_the_model(embedded: LocalModel) -> None:
    request = Request("leave", [SYSTEM, user("Tell a long story.")], [], Sampling(max_tokens=2000))
    async with aclosing(embedded.sample(request)) as chunks:
        async for _ in chunks:
            break
    async with asyncio.timeout(60):
        _, after = await ask(
            embedded, [*request.messages, {"role": "assistant", "content": "Once"}, user("Hi")], "leave", []
        )
    assert after.tokens is not None
    assert after.tokens.context == "extend"


async def test_a_prompt_that_leaves_no_room_is_an_overflow(embedded: LocalModel) -> None:
    with pytest.raises(ContextOverflow, match="window of 8192"):
        await ask(embedded, [SYSTEM, user("word " * 9000)], "long")


async def test_two_sessions_take_turns(embedded: LocalModel) -> None:
    async def run(name: str) -> Completion:
        return (await ask(embedded, [SYSTEM, user("What is git?")], name, temperature=0, max_tokens=6))[1]

    one, two = await asyncio.gather(run("one"), run("two"))
    assert one.text == two.text


@pytest.fixture
async def other(tiny: Path) -> AsyncIterator[LocalModel]:
    model = LocalModel(tiny, tiny, ModelSettings(provider="local", max_output_tokens=16))
    yield model
    await model.close()


async def test_any_folder_may_be_the_model(other: LocalModel, tiny: Path) -> None:
    await other.warm()
    _, completion = await ask(other, [user("Read a.txt")], seed=1)
    assert other.name == f"local:{tiny}"
    assert other.context_window == 512
    assert completion.usage.output == 16
    assert completion.finish == "length"
    assert completion.tokens is not None
    # Its prompt describes the tools: only the embedded model is routed.
    assert not completion.grammar
    with pytest.raises(ContextOverflow):
        await ask(other, [user("word " * 500)], "long")


async def test_a_closed_model_opens_again(other: LocalModel) -> None:
    _, before = await ask(other, [user("One")], temperature=0)
    await other.close()
    _, after = await ask(other, [user("One")], temperature=0)
    assert after.text == before.text


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model is there"):
        LocalModel(tmp_path, tmp_path)


async def test_a_model_without_a_tokenizer_is_refused(tmp_path: Path, tiny: Path) -> None:
    (tmp_path / "config.json").write_bytes((tiny / "config.json").read_bytes())
    model = LocalModel(tmp_path, tmp_path)
    with pytest.raises(ModelError, match="fast tokenizer"):
        await model.warm()


async def test_missing_packages_are_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("agent.models.local.find_spec", lambda name: None if name == "torch" else found(name))
    model = LocalModel(None, tmp_path)
    with pytest.raises(ModelError, match=r"torch.*etude models install"):
        await model.warm()


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from agent.models.local import LocalModel; LocalModel(None, Path('nowhere'))\n"
        "print([n for n in ('torch', 'transformers', 'tokenizers', 'llguidance') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr


async def test_the_next_start_need_not_read_the_system_prompt_again(tiny: Path, tmp_path: Path) -> None:
    system = {"role": "system", "content": "You are a coding agent. " + "Be brief and exact. " * 20}
    found: list[Completion] = []
    for said in ("Read a.txt", "Read b.txt"):
        model = LocalModel(tiny, tmp_path, ModelSettings(provider="local", max_output_tokens=16))
        try:
            found.append((await ask(model, [system, user(said)], temperature=0.0))[1])
        finally:
            await model.close()
    first, second = found
    assert first.usage.cached == 0
    cached = second.usage.cached or 0
    assert cached > 100 and (first.prompt_ids or [])[:cached] == (second.prompt_ids or [])[:cached]
    model = LocalModel(tiny, tmp_path / "elsewhere", ModelSettings(provider="local", max_output_tokens=16))
    try:
        _, alone = await ask(model, [system, user("Read b.txt")], temperature=0.0)
    finally:
        await model.close()
    assert alone.usage.cached == 0 and alone.tokens is not None and second.tokens is not None
    assert alone.tokens.completion == second.tokens.completion
    assert alone.tokens.logprobs == pytest.approx(second.tokens.logprobs, abs=1e-5)
