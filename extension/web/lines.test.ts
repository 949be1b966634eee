import assert from "node:assert/strict";
import { test } from "node:test";
import { diffTexts, splitLines } from "./lines.js";
import { Random } from "./random.js";

function sides(before: string, after: string): { old: string[]; new: string[] } {
  const lines = diffTexts(before, after, Infinity).hunks.flat();
  return {
    old: lines.filter(({ kind }) => kind !== "add").map(({ text }) => text),
    new: lines.filter(({ kind }) => kind !== "remove").map(({ text }) => text),
  };
}

test("both sides of a diff can be read back from it", () => {
  for (let seed = 0; seed < 400; seed += 1) {
    const random = new Random(seed);
    const lines = (): string[] => Array.from({ length: random.below(20) }, () => random.pick(["a", "b", "c", "", "d"]));
    const before = lines();
    const after = random.next() < 0.5 ? lines() : before.flatMap((line) => (random.next() < 0.2 ? [] : random.next() < 0.2 ? [line, "new"] : [line]));
    const old = before.map((line) => `${line}\n`).join("");
    const fresh = after.map((line) => `${line}\n`).join("");
    if (old === fresh) {
      assert.deepEqual(diffTexts(old, fresh).hunks, []);
      continue;
    }
    assert.deepEqual(sides(old, fresh), { old: before, new: after }, `seed ${String(seed)}`);
    for (const line of diffTexts(old, fresh).hunks.flat()) {
      if (line.old !== null) assert.equal(before[line.old - 1], line.text);
      if (line.new !== null) assert.equal(after[line.new - 1], line.text);
    }
  }
});

test("the script is the shortest", () => {
  const { added, removed } = diffTexts("a\nb\nc\na\nb\nb\na\n", "c\nb\na\nb\na\nc\n");
  assert.equal(added + removed, 5);
});

test("hunks keep three lines around a change and are numbered", () => {
  const before = Array.from({ length: 40 }, (_, index) => `line ${String(index + 1)}`);
  const after = before.with(9, "changed 10").with(29, "changed 30");
  const { hunks, added, removed } = diffTexts(before.join("\n"), after.join("\n"));
  assert.equal(hunks.length, 2);
  assert.equal(added, 2);
  assert.equal(removed, 2);
  assert.equal(hunks[0]?.[0]?.old, 7);
  assert.equal(hunks[0].length, 8);
  assert.equal(hunks[1]?.[0]?.new, 27);
});

test("a replaced line shows what changed inside it", () => {
  const [remove, add] = diffTexts("return total + 1", "return total - 1").hunks[0] ?? [];
  assert.deepEqual(remove?.changed, [13, 14]);
  assert.deepEqual(add?.changed, [13, 14]);
  const [other] = diffTexts("import os", "x = 1").hunks[0] ?? [];
  assert.equal(other?.changed, undefined);
});

test("texts without anything in common are replaced, in bounded time", () => {
  const before = Array.from({ length: 20_000 }, (_, index) => `old ${String(index)}`).join("\n");
  const after = Array.from({ length: 20_000 }, (_, index) => `new ${String(index)}`).join("\n");
  const started = process.cpuUsage();
  const { added, removed } = diffTexts(before, after);
  const { user } = process.cpuUsage(started);
  assert.deepEqual([added, removed], [20_000, 20_000]);
  assert.ok(user < 2_000_000, `${String(user)} µs`);
});

test("every kind of line end ends a line", () => {
  assert.deepEqual(splitLines("a\r\nb\rc\nd"), ["a", "b", "c", "d"]);
  assert.deepEqual(splitLines(""), []);
  assert.deepEqual(diffTexts("", "x\n").hunks[0]?.map(({ kind }) => kind), ["add"]);
});
