import assert from "node:assert/strict";
import { test } from "node:test";
import { Questions } from "./questions.js";
import { Peer } from "./rpc.js";
import type { Dict } from "./wire.js";

function peer(): { peer: Peer; sent: Dict[] } {
  const sent: Dict[] = [];
  const ignore = (): void => undefined;
  const made = new Peer((frame) => sent.push(JSON.parse(frame) as Dict), { notification: ignore, request: ignore });
  return { peer: made, sent };
}

const CHOICE = { type: "string", title: "Choose", enum: ["red", "blue"] };

function form(properties: Dict, requestId = "r", required: string[] = []): Dict {
  const requestedSchema = { type: "object", properties, required };
  return { mode: "form", sessionId: "s", message: "Which one?", requestedSchema, _meta: { etude: { requestId } } };
}

test("a form says what can be chosen and what can be said", () => {
  const { peer: rpc } = peer();
  const questions = new Questions();
  assert.equal(questions.ask(rpc, 1, form({ choice: CHOICE, answer: { type: "string", title: "Or say" } }, "both")), true);
  assert.equal(questions.ask(rpc, 2, form({ answer: { type: "string" } }, "free", ["answer"])), true);
  assert.equal(questions.ask(rpc, 3, form({ choice: CHOICE }, "only")), true);
  const shown = questions.of("s").map(({ requestId, title, choices, field }) => [requestId, title, choices, field]);
  assert.deepEqual(shown, [
    ["both", "Which one?", ["red", "blue"], "Or say"],
    ["free", "Which one?", [], "Answer"],
    ["only", "Which one?", ["red", "blue"], null],
  ]);
  assert.deepEqual(questions.of("other"), []);
});

test("a form that cannot be shown is not taken", () => {
  const { peer: rpc } = peer();
  const questions = new Questions();
  const answer = { type: "string" };
  const forms = [
    form({}),
    form({ choice: { enum: [1, null] } }),
    form({ answer: { type: "number" } }),
    form({ answer, size: { type: "number" } }, "r", ["size"]),
    { ...form({ answer }), mode: "url" },
    { sessionId: "s" },
  ];
  for (const params of forms) assert.equal(questions.ask(rpc, 1, params), false);
  assert.deepEqual(questions.of("s"), []);
  assert.equal(questions.ask(rpc, 2, form({ answer, size: { type: "number" } })), true, "what is not required is left out");
});

test("an answer has a choice, own words, or both; a skip has neither", () => {
  const { peer: rpc, sent } = peer();
  const questions = new Questions();
  const properties = { choice: CHOICE, answer: { type: "string" } };
  for (const [id, requestId] of ["a", "b", "c", "d"].entries()) questions.ask(rpc, id, form(properties, requestId));
  questions.answer("a", "red", "");
  questions.answer("b", "", "green");
  questions.answer("c", "blue", "but darker");
  questions.skip("d");
  assert.deepEqual(sent.map(({ id, result }) => [id, result]), [
    [0, { action: "accept", content: { choice: "red" } }],
    [1, { action: "accept", content: { answer: "green" } }],
    [2, { action: "accept", content: { choice: "blue", answer: "but darker" } }],
    [3, { action: "decline" }],
  ]);
  assert.deepEqual(questions.of("s"), []);
});

test("several are open at once; each goes when it is answered elsewhere, withdrawn, or not asked again", () => {
  const old = peer();
  const fresh = peer();
  const questions = new Questions();
  const properties = { answer: { type: "string" } };
  for (const [id, requestId] of ["a", "b", "c", "d"].entries()) questions.ask(old.peer, id, form(properties, requestId));
  questions.resolved("a");
  questions.withdrawn(1);
  assert.deepEqual(questions.of("s").map(({ requestId }) => requestId), ["c", "d"]);
  questions.disconnect();
  questions.answer("c", "", "into the void");
  questions.skip("d");
  assert.equal(questions.of("s").length, 2, "nobody is there to take the answer");
  questions.renew("s");
  questions.ask(fresh.peer, 9, form(properties, "c"));
  questions.answer("c", "", "here");
  questions.answer("c", "", "again");
  assert.deepEqual(old.sent, []);
  assert.deepEqual(fresh.sent.map(({ id, result }) => [id, result]), [
    [9, { action: "accept", content: { answer: "here" } }],
  ]);
  assert.deepEqual(questions.of("s"), []);
});
