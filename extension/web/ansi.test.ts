import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAnsi } from "./ansi.js";

test("colours become classes and end where they are reset", () => {
  assert.deepEqual(parseAnsi("\u001b[1;31mFAILED\u001b[0m tests"), [
    { text: "FAILED", classes: "ansi-bold ansi-red" },
    { text: " tests", classes: "" },
  ]);
  assert.deepEqual(parseAnsi("\u001b[38;5;2mok\u001b[39m"), [{ text: "ok", classes: "ansi-green" }]);
  assert.deepEqual(parseAnsi("\u001b[38;2;1;2;3mtrue\u001b[m"), [{ text: "true", classes: "" }]);
});

test("other sequences leave no trace", () => {
  assert.deepEqual(parseAnsi("a\u001b[2Kb\u001b]0;title\u0007c\u001b(Bd\u0008e"), [{ text: "abcde", classes: "" }]);
});

test("a redrawn line shows its last drawing", () => {
  assert.deepEqual(parseAnsi("10%\r50%\r100%\ndone\r\n"), [{ text: "100%\ndone\n", classes: "" }]);
});
