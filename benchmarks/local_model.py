"""The embedded model: loading, speed, memory, and how often it does the right thing with a request.

    python -m benchmarks.local_model [--quick] [--json] [--only GROUP]

Times are processor seconds, which a busy machine lengthens less than the clock's. The requests of the group
`tools` were written after the router was tuned, and are not those it was tuned on.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from agent.models.client import Completion, Request, Sampling
from agent.models.local import LocalModel
from agent.prompts import system
from benchmarks.measure import Budget, Group, Measure, main
from server.places import cache_dir
from tools.registry import schemas

REQUESTS = (
    ("Open CONTRIBUTING.md", "read", "CONTRIBUTING.md"),
    ("What does agent/loop.py do?", "read", "agent/loop.py"),
    ("Show the contents of package.json", "read", "package.json"),
    ("Explain tests/test_kill.py to me", "read", "tests/test_kill.py"),
    ("Tell me what the LICENSE says", "read", "LICENSE"),
    ("Where is class Workspace defined?", "grep", "Workspace"),
    ("Find every call of apply_edits", "grep", "apply_edits"),
    ("grep for asyncio.sleep", "grep", "asyncio.sleep"),
    ("Which file defines open_model?", "grep", "open_model"),
    ("Search the repository for the word deadline", "grep", "deadline"),
    ("Run make test", "shell", "make test"),
    ("Please run git log --oneline", "shell", "git log --oneline"),
)
QUESTIONS = (
    "Good morning",
    "What is a monad?",
    "How do I reverse a list in Python?",
    "Explain what a race condition is",
    "Write a haiku about code",
    "What is the difference between == and is?",
    "Who are you?",
    "That was great, thanks",
    "What is Docker used for?",
    "How can I learn Rust?",
    "What is big O notation?",
    "Can you help me?",
)
SYSTEM = {"role": "system", "content": system("compact", "ask", "", None)}
TOOLS = schemas("compact")

CONVERTED = Budget("first use: converting the model", "CPU-s", 60)
LOADED = Budget("later starts: imports and weights", "CPU-s", 15)
HELD = Budget("memory once loaded and warm", "MB", 1600)
PREFILL = Budget("prompt tokens for each CPU-s, one thread", "tok", 120, most=False)
DECODE = Budget("answer tokens for each CPU-s", "tok", 8, most=False)
FAR = Budget("one token at 4,000 tokens of context ÷ at 100", "ratio", 3)
FIRST = Budget("first answer to a question, 600-token prompt: until its first token", "CPU-s", 8)
CALLED = Budget("requests about files that became a tool call", "of 12", 9, most=False)
RIGHT = Budget("… the right tool with the right words", "of 12", 7, most=False)
ANSWERED = Budget("questions that were answered in words", "of 12", 10, most=False)


def convert(quick: bool) -> Iterable[Measure]:
    script = (
        "import sys; from pathlib import Path; from agent.engine.weights import provide;"
        "provide(Path(sys.argv[1]), lambda message: None)"
    )
    with tempfile.TemporaryDirectory() as cache:
        yield CONVERTED.of(_child(script, cache)[0])


def load(quick: bool) -> Iterable[Measure]:
    _provided()
    script = (
        "import sys, asyncio, psutil; from pathlib import Path; from agent.models.local import LocalModel\n"
        "async def run():\n"
        "    model = LocalModel(None, Path(sys.argv[1])); await model.warm()\n"
        "    print(psutil.Process().memory_info().rss / 2**20); await model.close()\n"
        "asyncio.run(run())"
    )
    seconds, printed = _child(script, str(cache_dir()))
    yield LOADED.of(seconds, "the router's examples included")
    yield HELD.of(float(printed))


async def speed(quick: bool) -> Iterable[Measure]:
    from agent.engine.protocol import Job
    from agent.engine.protocol import Sampling as Drawing
    from agent.engine.scheduler import EngineSettings
    from agent.engine.torch_engine import TorchEngine

    found: list[Measure] = []
    engine = TorchEngine(_provided(), settings=EngineSettings(threads=1, cache_bytes=0))
    await engine.start()
    ids = [1000 + at % 30000 for at in range(4000)]

    async def took(count: int, new: int) -> float:
        began = time.process_time()
        await engine.generate(Job("speed", ids[:count], Drawing(temperature=0, max_tokens=new)))
        return time.process_time() - began

    await took(32, 2)
    short = min([await took(512, 1) for _ in range(2 if quick else 4)])
    found.append(PREFILL.of(512 / short))
    decoded = min([await took(100, 41) - await took(100, 1) for _ in range(2)]) / 40
    found.append(DECODE.of(1 / decoded))
    if not quick:
        far = (await took(4000, 21) - await took(4000, 1)) / 20
        found.append(FAR.of(far / decoded))
        two = TorchEngine(engine.path, settings=EngineSettings(threads=2, decode_threads=2, cache_bytes=0))
        await two.start()
        for name, one in (("one thread", engine), ("two threads", two)):
            job = Job("speed", ids[:100], Drawing(temperature=0, max_tokens=41))
            began, used = time.perf_counter(), time.process_time()
            await one.generate(job)
            clock, used = time.perf_counter() - began, time.process_time() - used
            found.append(Measure(f"41 tokens, {name}", clock, "s", detail=f"{used:.1f} CPU-s"))
        await two.close()
    await engine.close()
    return found


async def turn(quick: bool) -> Iterable[Measure]:
    model = LocalModel(None, _prepared())
    await model.warm()
    context = "\n".join(f"Line {n} of the notes says that part {n} is done." for n in range(35))
    messages = [SYSTEM, {"role": "user", "content": f"What is a Python module?\n\n```\n{context}\n```"}]
    began, first, size = time.process_time(), 0.0, None
    async for chunk in model.sample(Request("turn", messages, TOOLS, Sampling(temperature=0, max_tokens=8))):
        first = first or time.process_time() - began
        if isinstance(chunk, Completion):
            size = chunk.usage.input
    await model.close()
    return [FIRST.of(first, f"{size} tokens, router included")]


async def tools(quick: bool) -> Iterable[Measure]:
    model = LocalModel(None, _prepared())
    called = right = answered = 0
    wrong: list[str] = []
    began = time.process_time()
    for said, name, value in REQUESTS:
        completion = await _ask(model, said)
        for call in completion.calls:
            called += 1
            if (call.name, *json.loads(call.arguments).values()) == (name, value):
                right += 1
            else:
                wrong.append(f"{said!r} → {call.name} {call.arguments}")
    for said in QUESTIONS:
        completion = await _ask(model, said)
        answered += not completion.calls
        wrong += [f"{said!r} → {call.name} {call.arguments}" for call in completion.calls]
    used = (time.process_time() - began) / (len(REQUESTS) + len(QUESTIONS))
    await model.close()
    return [
        CALLED.of(called),
        RIGHT.of(right, "; ".join(wrong)),
        ANSWERED.of(answered),
        Measure("each decision", used, "CPU-s", detail="with one token of the answer"),
    ]


async def _ask(model: LocalModel, said: str) -> Completion:
    messages = [SYSTEM, {"role": "user", "content": said}]
    request = Request(said, messages, TOOLS, Sampling(temperature=0, max_tokens=48))
    if said in QUESTIONS:
        request = Request(said, messages, TOOLS, Sampling(temperature=0, max_tokens=48, stop=(" ",)))
    async for chunk in model.sample(request):
        if isinstance(chunk, Completion):
            return chunk
    raise RuntimeError(f"{said!r} was not answered")


def _prepared() -> Path:
    _provided()
    return cache_dir()


def _provided() -> Path:
    from agent.engine.weights import provide

    return provide(cache_dir(), lambda message: None)


def _child(script: str, argument: str) -> tuple[float, str]:
    """Processor seconds of a Python process of its own, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script, argument],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


GROUPS = {
    "convert": Group(convert, (CONVERTED,), quick=False),
    "load": Group(load, (LOADED, HELD)),
    "speed": Group(speed, (PREFILL, DECODE)),
    "turn": Group(turn, (FIRST,)),
    "tools": Group(tools, (CALLED, RIGHT, ANSWERED)),
}

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
