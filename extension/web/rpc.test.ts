import assert from "node:assert/strict";
import { test } from "node:test";
import { Approvals } from "./approvals.js";
import { Disconnected, Peer, RpcError } from "./rpc.js";
import type { Dict } from "./wire.js";

/** A peer whose frames go to lists. */
function peer(): { peer: Peer; sent: Dict[]; got: unknown[] } {
  const sent: Dict[] = [];
  const got: unknown[] = [];
  const made = new Peer((frame) => sent.push(JSON.parse(frame) as Dict), {
    notification: (method, params) => got.push([method, params]),
    request: (id, method, params) => got.push([id, method, params]),
  });
  return { peer: made, sent, got };
}

test("answers find their request, whatever their order and the type of their id", async () => {
  const { peer: rpc, sent } = peer();
  const first = rpc.request("one", {});
  const second = rpc.request("two", {});
  rpc.feed(JSON.stringify({ jsonrpc: "2.0", id: "2", result: { n: 2 } }));
  rpc.feed(JSON.stringify({ jsonrpc: "2.0", id: 1, error: { code: -32602, message: "no", data: 7 } }));
  assert.deepEqual(await second, { n: 2 });
  await assert.rejects(first, (error) => error instanceof RpcError && error.code === -32602 && error.data === 7);
  assert.deepEqual(sent.map(({ method }) => method), ["one", "two"]);
});

test("the end of the connection ends what waits", async () => {
  const { peer: rpc } = peer();
  const waiting = rpc.request("one", {});
  rpc.end();
  await assert.rejects(waiting, Disconnected);
});

test("what a server cannot read is not sent", async () => {
  const { peer: rpc, sent } = peer();
  await assert.rejects(rpc.request("long", { text: "x".repeat(16 * 1024 * 1024) }), RpcError);
  assert.deepEqual(sent, []);
  void rpc.request("half", { text: "a\ud83db\u{1f600}" });
  assert.deepEqual(sent[0]?.["params"], { text: "a\ufffdb\u{1f600}" });
});

test("frames of no sense are ignored", () => {
  const { peer: rpc, got } = peer();
  for (const frame of ["", "[]", "5", "{", '{"id": 99, "result": {}}', '{"id": [1], "method": 5}']) rpc.feed(frame);
  rpc.feed('{"method": "note", "params": [1]}');
  assert.deepEqual(got, [["note", {}]]);
});

const QUESTION = {
  sessionId: "s",
  toolCall: { toolCallId: "c", title: "Run", rawInput: { command: "ls" } },
  options: [{ optionId: "allow", name: "Allow once", kind: "allow_once" }],
  _meta: { etude: { requestId: "r" } },
};

test("a question is answered once, on the connection that asked last", () => {
  const old = peer();
  const fresh = peer();
  const approvals = new Approvals();
  approvals.ask(old.peer, 1, QUESTION);
  approvals.disconnect();
  approvals.answer("r", "allow");
  assert.equal(approvals.of("s").length, 1, "nobody is there to take the answer");
  approvals.renew("s");
  approvals.ask(fresh.peer, 8, QUESTION);
  assert.deepEqual(approvals.of("s").map(({ command }) => command), ["ls"]);
  approvals.answer("r", "allow");
  approvals.answer("r", "allow");
  assert.deepEqual(old.sent, []);
  assert.deepEqual(fresh.sent.map(({ id, result }) => [id, result]), [
    [8, { outcome: { outcome: "selected", optionId: "allow" } }],
  ]);
});

test("a question that was answered elsewhere or withdrawn is gone", () => {
  const { peer: rpc } = peer();
  const approvals = new Approvals();
  approvals.ask(rpc, 1, QUESTION);
  approvals.resolved("r");
  assert.deepEqual(approvals.of("s"), []);
  approvals.ask(rpc, 2, QUESTION);
  approvals.withdrawn("2");
  assert.deepEqual(approvals.of("s"), []);
});
