"""Etude in a Python program: one turn on a folder, streamed to the terminal.

python examples/in_process.py FOLDER MODEL "What to do"
"""

import asyncio
import sys

from agent import Event, Live, ask, open_session


async def main(folder: str, model: str, request: str) -> None:
    async with open_session(folder, model=model, mode="auto") as session:
        async for item in ask(session, request):
            match item:
                case Live(type="text"):
                    print(item.text, end="", flush=True)
                case Event(type="edit"):
                    print(item.data["diff"])


asyncio.run(main(*sys.argv[1:4]))
