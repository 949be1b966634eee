import assert from "node:assert/strict";
import { test } from "node:test";
import { diffsOf, iconOf } from "./tools.js";

test("every tool has an icon that says what it does", () => {
  const expected: [string, string, string][] = [
    ["read", "read", "read"],
    ["list", "search", "folder"],
    ["glob", "search", "search"],
    ["grep", "search", "search"],
    ["symbols", "search", "outline"],
    ["search", "search", "search"],
    ["edit", "edit", "edit"],
    ["apply_patch", "edit", "edit"],
    ["write", "edit", "edit"],
    ["delete", "delete", "trash"],
    ["move", "move", "move"],
    ["shell", "execute", "execute"],
    ["shell_read", "read", "read"],
    ["shell_send", "execute", "execute"],
    ["shell_kill", "execute", "execute"],
    ["diagnostics", "execute", "diagnose"],
    ["todo", "think", "list"],
    ["ask", "other", "help"],
    ["mcp__files__read", "other", "plug"],
    ["of_the_future", "fetch", "down"],
    ["toString", "constructor", "other"],
  ];
  for (const [name, kind, icon] of expected) assert.equal(iconOf(name, kind), icon, name);
});

test("a move is told by its title, without the text of the file on both sides", () => {
  const blocks = [
    { type: "diff", path: "/w/a.py", oldText: "x\n", newText: "", _meta: { etude: { deleted: true } } },
    { type: "diff", path: "/w/b.py", newText: "x\n" },
    { type: "content", content: { type: "text", text: "done" } },
  ];
  assert.deepEqual(diffsOf(blocks, "move"), []);
  assert.deepEqual(diffsOf(blocks, "edit").map((diff) => diff.path), ["/w/a.py", "/w/b.py"]);
});
