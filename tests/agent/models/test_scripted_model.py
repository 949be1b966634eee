"""The scripted endpoint keeps its own promises: other tests and measurements rest on it."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support import scripted_model
from tests.support.scripted_model import ScriptedModel, ScriptedProcess, Turn


def post(base_url: str, text: str = "go", **fields: Any) -> Any:
    body = {"model": "scripted", "messages": [{"role": "user", "content": text}], **fields}
    headers = {"content-type": "application/json"}
    asked = urllib.request.Request(base_url + "/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return json.load(answer) if not fields.get("stream") else answer.read().decode()


def said(answer: Any) -> str:
    return answer["choices"][0]["message"]["content"]


def test_turns_come_in_order_and_the_last_repeats() -> None:
    with ScriptedModel(["one", {"text": "two"}, Turn(text="three")]) as model:
        assert [said(post(model.base_url)) for _ in range(4)] == ["one", "two", "three", "three"]
        assert len(model.requests) == 4
    with ScriptedModel(["one", "two"], loop=True) as model:
        assert [said(post(model.base_url)) for _ in range(3)] == ["one", "two", "one"]


def test_a_function_of_the_request_is_a_script() -> None:
    with ScriptedModel(lambda body: f"you said {body['messages'][0]['content']}") as model:
        assert said(post(model.base_url, "hi")) == "you said hi"
    with ScriptedModel([lambda body: body["nothing"]]) as model:
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(model.base_url)
        caught.value.close()
        assert model.errors == ["KeyError('nothing')"]


def test_conversations_count_for_themselves() -> None:
    scripted = ScriptedModel(["a", "b"], keyed=True, sessions={"<special>": ["x", "y"]})
    with scripted as model, ThreadPoolExecutor(8) as pool:
        for expected, special in (("a", "x"), ("b", "y")):
            answers = pool.map(lambda i: said(post(model.base_url, f"talk {i}")), range(8))
            assert set(answers) == {expected}
            assert said(post(model.base_url, "this <special> one")) == special


def test_requests_without_tools_may_get_an_answer_of_their_own() -> None:
    with ScriptedModel(["one", "two"], toolless="summary") as model:
        tools = [{"type": "function", "function": {"name": "t"}}]
        answers = [said(post(model.base_url, tools=asked)) for asked in (tools, [], tools)]
        assert answers == ["one", "summary", "two"]


def test_cached_tokens_are_the_shared_start_of_consecutive_requests() -> None:
    with ScriptedModel(["x"]) as model:
        first = post(model.base_url)["usage"]
        again = post(model.base_url)["usage"]
        other = post(model.base_url, "something else entirely")["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["prompt_tokens_details"]["cached_tokens"] == again["prompt_tokens"]
    assert other["prompt_tokens_details"]["cached_tokens"] == 0


def test_stamps_say_when_a_word_was_sent() -> None:
    with ScriptedModel([Turn(text="a b c", stamp=True, delay_ms=20)]) as model:
        lines = post(model.base_url, stream=True).split("\n\n")
    words = [
        json.loads(line[6:])["choices"][0]["delta"].get("content", "")
        for line in lines
        if line.startswith("data: {") and '"choices":[{' in line
    ]
    stamps = [float(word.split("@")[1]) for word in words if "@" in word]
    assert len(stamps) == 3
    assert all(abs(time.time() - stamp) < 5 for stamp in stamps)
    assert 0.03 < stamps[2] - stamps[0] < 1


def test_a_process_of_its_own(tmp_path: Path) -> None:
    with ScriptedProcess(
        ["one", {"calls": [{"name": "read", "arguments": {"path": "a"}}]}], tmp_path
    ) as model:
        tools = [{"type": "function", "function": {"name": "read"}}]
        assert said(post(model.base_url, tools=tools)) == "one"
        call = post(model.base_url, tools=tools)["choices"][0]["message"]["tool_calls"][0]
        assert call["function"] == {"name": "read", "arguments": '{"path":"a"}'}


def test_as_a_module_with_a_log(tmp_path: Path) -> None:
    script, log = tmp_path / "script.json", tmp_path / "log.jsonl"
    script.write_text('["hello"]')
    root = Path(scripted_model.__file__ or "").parents[2]
    command = [sys.executable, "-m", "tests.support.scripted_model", "0", str(script), str(log)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            post(f"http://127.0.0.1:{port}/v1", tools=[{"type": "function", "function": {"name": "t"}}])
        finally:
            process.terminate()
    assert json.loads(log.read_text())["body"]["messages"][0]["content"] == "go"
