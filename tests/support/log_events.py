"""Drafts as a session would submit them, and a look at the tables beneath a store."""

from collections import Counter
from typing import Any

from sqlalchemy import select
from ulid import ULID

from agent.events import (
    ApprovalRequested,
    ApprovalResolved,
    BlobRef,
    ConfigChanged,
    Draft,
    Edit,
    Generation,
    Prompt,
    PromptRef,
    SessionCreated,
    Text,
    TokenTrace,
    ToolResultData,
    TurnEnded,
    TurnStarted,
    Usage,
    draft,
    now,
)
from agent.prompt_chain import IdNode, Node, chain, chain_ids
from server.store.database import Database, open_backend
from server.store.tables import metadata
from tools.workspace import content_hash


def created(workspace: str = "/code/app", **fields: Any) -> SessionCreated:
    return SessionCreated.model_validate(
        {
            "workspace": workspace,
            "user_id": "local",
            "model": "scripted",
            "mode": "ask",
            "profile": "full",
            **fields,
        }
    )


def prompt(text: str) -> Draft:
    return draft("prompt", Prompt(message_id=str(ULID()), text=text))


def started(turn: int = 1) -> Draft:
    record = TurnStarted(model="scripted", mode="ask", profile="full", max_steps=10)
    return draft("turn.started", record, turn=turn)


def ended(turn: int = 1) -> Draft:
    return draft("turn.ended", TurnEnded(reason="end_turn"), turn=turn)


def words(text: str = "some words", offset: int = 0) -> Draft:
    return draft("text", Text(messageId="m", offset=offset, text=text))


def result(output: bytes, text: str = "…") -> Draft:
    """A tool result whose whole output is a blob."""
    name = content_hash(output)
    record = ToolResultData(
        call_id=str(ULID()),
        name="shell",
        text=text,
        output=BlobRef(hash=name, size=len(output)),
        started=now(),
        ended=now(),
    )
    return draft("tool.result", record, blobs={name: output})


def edit(before: bytes, after: bytes) -> Draft:
    names = [content_hash(before), content_hash(after)]
    sides = [BlobRef(hash=names[0], size=len(before)), BlobRef(hash=names[1], size=len(after))]
    record = Edit(call_id="c", path="a.py", before=sides[0], after=sides[1], diff="")
    return draft("edit", record, blobs={names[0]: before, names[1]: after})


def generation(
    items: list[dict[str, Any]],
    previous: Node | None = None,
    *,
    ids: list[int] | None = None,
    previous_ids: IdNode | None = None,
    cost: float | None = 0.25,
) -> tuple[Draft, Node, IdNode | None]:
    """A model call on a prompt that continues the previous one."""
    node, blobs = chain(previous, items)
    id_node, tokens = None, None
    if ids is not None:
        id_node, more = chain_ids(previous_ids, ids)
        blobs |= more
        tokens = TokenTrace(
            prompt=id_node.hash, prompt_length=len(ids), completion=[1, 2], logprobs=[-0.5, 0.0]
        )
    record = Generation(
        id=str(ULID()),
        message_id=str(ULID()),
        model="scripted",
        prompt=PromptRef(node=node.hash, messages=len(items), bytes=node.size, shared=node.shared),
        sampling={"temperature": 0.5},
        text="an answer",
        finish="stop",
        usage=Usage(input=100, cached=40, output=7),
        cost=cost,
        tokens=tokens,
        started=now(),
        first_token=now(),
        ended=now(),
    )
    return draft("generation", record, blobs=blobs), node, id_node


def approval(request_id: str) -> Draft:
    record = ApprovalRequested(request_id=request_id, call_id="c", title="rm", kind="execute", options=[])
    return draft("approval.requested", record)


def approved(request_id: str, *rules: str) -> Draft:
    record = ApprovalResolved(
        request_id=request_id, call_id="c", outcome="allowed", option="once", by="tests", rules=list(rules)
    )
    return draft("approval.resolved", record)


def revoked(*rules: str) -> Draft:
    return draft("config.changed", ConfigChanged(revoked=list(rules)))


async def tables(url: str) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, in the order of the primary key."""
    database = Database(open_backend(url))
    try:
        found: dict[str, list[dict[str, Any]]] = {}
        for table in metadata.sorted_tables:
            query = select(table).order_by(*table.primary_key.columns)
            rows = await database.read(
                lambda connection, query=query: connection.execute(query).mappings().all()
            )
            found[table.name] = [dict(row) for row in rows]
        return found
    finally:
        await database.close()


def expected_references(rows: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    """What the count of every blob must be, from events and prompt nodes; unnamed ones are left out."""
    counts: Counter[str] = Counter()
    for event in rows["events"]:
        counts.update((event["refs"] or "").split())
        assert event["blob"] is None or event["blob"] in event["refs"].split()
    counts.update(blob["parent"] for blob in rows["blobs"] if blob["parent"] is not None)
    return dict(counts)
