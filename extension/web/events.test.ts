import assert from "node:assert/strict";
import { test } from "node:test";
import { noticeOf } from "./events.js";

test("how a turn ended is said in sentences, and with the reason", () => {
  const cut = "the answer was cut off at the output limit; send a message to go on";
  assert.deepEqual(noticeOf("turn.ended", { reason: "overlong", message: cut, steps: 1 }), {
    level: "warning",
    text: "A limit of the model was reached. The answer was cut off at the output limit; send a message to go on.",
    detail: "1 step",
  });
  const address = "http://127.0.0.1:1/v1 failed (500).";
  assert.equal(noticeOf("turn.ended", { reason: "model_error", message: address })?.text, `No answer from the model. ${address}`);
  assert.deepEqual(noticeOf("turn.ended", { reason: "end_turn", steps: 2 }), { level: "end", text: "", detail: "2 steps" });
});

test("what is wrong with a call stands on its card, everything else in the transcript", () => {
  assert.equal(noticeOf("error", { where: "model", error: "malformed_call", message: "no tool wat", call_id: "c1" }), null);
  assert.equal(noticeOf("error", { where: "tool", message: "failed", call_id: "c2" }), null);
  assert.equal(noticeOf("error", { where: "tool", message: "MCP server 'x' is not there." })?.text, "MCP server 'x' is not there.");
  assert.equal(noticeOf("error", { where: "model", message: "it is busy", retry: 2 })?.text, "It is busy. Trying again (2).");
});

test("what a person took back is named, as the cards above show it still", () => {
  const what = { what: "undo", target: { turn: 1 }, before: "a", tree: "b" };
  const files = ["a.py", "b.py", "c.py", "d.py", "e.py"];
  assert.deepEqual(noticeOf("restored", { ...what, changed: files.slice(0, 1) }), {
    level: "info",
    text: "Changes were taken back: a.py.",
    detail: "",
  });
  assert.equal(
    noticeOf("restored", { ...what, what: "restore", changed: files })?.text,
    "Earlier files were brought back: a.py, b.py, c.py and 2 more.",
  );
  assert.deepEqual(noticeOf("restored", { ...what, changed: [], conflicts: [{ path: "a.py", line: 3, why: "changed" }] }), {
    level: "warning",
    text: "Changes were taken back. 1 place could not be decided and stays as it is.",
    detail: "",
  });
  assert.equal(noticeOf("restored", { ...what, changed: [] }), null, "nothing was done");
  assert.equal(noticeOf("restored", {})?.text, "Changes were taken back.", "too large to come along");
});

test("what is for machines leaves no notice", () => {
  for (const type of ["question", "checkpoint", "user_edit", "workspace", "feedback", "forked", "of the future"]) {
    assert.equal(noticeOf(type, { path: "a.py", text: "Which one?", tree: null, partial: "no room" }), null, type);
  }
});
