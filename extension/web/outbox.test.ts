import assert from "node:assert/strict";
import { test } from "node:test";
import { Outbox, type Keep, type Outgoing } from "./outbox.js";

function keep(content: string | null = null): Keep & { content: string | null } {
  return {
    content,
    getItem() {
      return this.content;
    },
    setItem(_key: string, value: string) {
      this.content = value;
    },
  };
}

const message = (id: string, sessionId = "s"): Outgoing => ({ id, sessionId, text: `text of ${id}`, steer: false, error: "" });

test("messages wait in order until the log has them", () => {
  const outbox = new Outbox(keep());
  for (const id of ["a", "b"]) outbox.add(message(id));
  outbox.add(message("c", "other"));
  assert.deepEqual(outbox.of("s").map(({ id }) => id), ["a", "b"]);
  assert.equal(outbox.get("c")?.sessionId, "other");
  assert.equal(outbox.remove("a")?.text, "text of a");
  assert.equal(outbox.remove("a"), undefined);
  assert.deepEqual(outbox.of("s").map(({ id }) => id), ["b"]);
});

test("what waits survives a reload, refusals included", () => {
  const kept = keep();
  const before = new Outbox(kept);
  before.add(message("a"));
  before.failed("a", "The session was closed.");
  const after = new Outbox(kept);
  assert.deepEqual(after.of("s"), [{ ...message("a"), error: "The session was closed." }]);
});

test("what was kept by another version or broken is left out", () => {
  for (const content of ["", "{", "null", "[1, null, {}]", '[{"id": 5}]', '{"id": "a"}']) {
    assert.deepEqual(new Outbox(keep(content)).of("s"), []);
  }
});
