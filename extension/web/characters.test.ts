import assert from "node:assert/strict";
import { test } from "node:test";
import { Characters, dropPoints, pointLength } from "./characters.js";
import { Random } from "./random.js";

test("offsets count code points, not code units", () => {
  assert.equal(pointLength("a𝄞b"), 3);
  assert.equal(dropPoints("a𝄞b", 2), "b");
  const characters = new Characters();
  characters.live(0, "a𝄞");
  characters.live(2, "b");
  assert.deepEqual(characters.mark(7, 2), [7]);
  assert.equal(characters.stored, "a𝄞");
  assert.equal(characters.text, "a𝄞b");
});

test("a mark waits for the characters it speaks of", () => {
  const characters = new Characters();
  assert.deepEqual(characters.mark(3, 4), []);
  assert.deepEqual(characters.live(2, "cd"), []);
  assert.equal(characters.text, "");
  assert.deepEqual(characters.live(0, "ab"), [3]);
  assert.equal(characters.stored, "abcd");
});

test("a stored piece fills the gap that a shed live frame left", () => {
  const characters = new Characters();
  characters.live(0, "ab");
  characters.live(4, "ef");
  assert.equal(characters.text, "ab");
  assert.deepEqual(characters.store(9, 0, "abcd"), [9]);
  assert.equal(characters.text, "abcdef");
  assert.equal(characters.storedEnd, 4);
});

test("what was never stored is dropped when another owner takes over", () => {
  const characters = new Characters();
  characters.live(0, "kept lost");
  characters.mark(1, 4);
  characters.dropLive();
  assert.equal(characters.text, "kept");
  assert.equal(characters.unsettled, false);
});

test("only the end of output without bound is kept", () => {
  const characters = new Characters(10);
  for (let index = 0; index < 100; index += 1) characters.store(index + 1, index, String(index % 10));
  assert.equal(characters.text, "0123456789");
  assert.equal(characters.storedEnd, 100);
  assert.ok(characters.stored.length <= 20);
  assert.ok(characters.truncated);
});

test("any order, any repetition: the same characters", () => {
  for (let seed = 0; seed < 300; seed += 1) {
    const random = new Random(seed);
    const points = Array.from({ length: 1 + random.below(60) }, () => random.pick(["a", "é", "𝄞", "\n", "字"]));
    const moves: ((characters: Characters) => number[])[] = [];
    let seq = 0;
    const expected = new Set<number>();
    for (let from = 0; from < points.length; ) {
      const end = Math.min(points.length, from + 1 + random.below(12));
      const offset = from;
      const stored = points.slice(from, end).join("");
      const number = (seq += 1);
      expected.add(number);
      const lossless = random.next() < 0.5;
      for (let at = from; at < end; at += 1) {
        const start = at;
        const piece = points[at] ?? "";
        if (lossless || random.next() < 0.5) moves.push((characters) => characters.live(start, piece));
      }
      moves.push((characters) => (lossless ? characters.mark(number, end) : characters.store(number, offset, stored)));
      from = end;
    }
    const characters = new Characters();
    const done = new Set<number>();
    const extra = moves.filter(() => random.next() < 0.3);
    for (const move of random.shuffle([...moves, ...extra])) for (const one of move(characters)) done.add(one);
    assert.equal(characters.stored, points.join(""), `seed ${String(seed)}`);
    assert.equal(characters.text, points.join(""), `seed ${String(seed)}`);
    assert.deepEqual([...done].sort((a, b) => a - b), [...expected], `seed ${String(seed)}`);
    assert.equal(characters.unsettled, false);
  }
});
