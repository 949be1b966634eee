/** Line differences between two texts (Myers' greedy algorithm), as numbered hunks for showing. */

export interface DiffLine {
  kind: "same" | "add" | "remove";
  text: string;
  /** Line numbers from 1; null on the side where the line does not exist. */
  old: number | null;
  new: number | null;
  /** Half-open range of code units that changed within a replaced line. */
  changed?: [number, number];
}

export interface Diff {
  hunks: DiffLine[][];
  added: number;
  removed: number;
}

/** Edit distance up to which the shortest script is sought; beyond it the middle is shown as replaced. */
const EFFORT = 1500;

export function splitLines(content: string): string[] {
  if (content === "") return [];
  const lines = content.split(/\r\n|\n|\r/);
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

export function diffTexts(before: string, after: string, context = 3): Diff {
  const old = splitLines(before);
  const fresh = splitLines(after);
  let start = 0;
  while (start < old.length && start < fresh.length && old[start] === fresh[start]) start += 1;
  let oldEnd = old.length;
  let newEnd = fresh.length;
  while (oldEnd > start && newEnd > start && old[oldEnd - 1] === fresh[newEnd - 1]) {
    oldEnd -= 1;
    newEnd -= 1;
  }
  const script = shortest(old.slice(start, oldEnd), fresh.slice(start, newEnd));
  const lines = number(old, fresh, start, oldEnd, script);
  markReplaced(lines);
  const added = lines.filter(({ kind }) => kind === "add").length;
  const removed = lines.filter(({ kind }) => kind === "remove").length;
  return { hunks: cutHunks(lines, context), added, removed };
}

type Step = "same" | "add" | "remove";

/** The shortest edit script from `a` to `b`, or plain replacement where it would take too long. */
function shortest(a: string[], b: string[]): Step[] {
  const limit = Math.min(a.length + b.length, EFFORT);
  const trace: Int32Array[] = [];
  const center = limit + 1;
  const furthest = new Int32Array(2 * limit + 3).fill(-1);
  furthest[center + 1] = 0;
  for (let distance = 0; distance <= limit; distance += 1) {
    trace.push(furthest.slice());
    for (let k = -distance; k <= distance; k += 2) {
      const down = k === -distance || (k !== distance && at(furthest, center + k - 1) < at(furthest, center + k + 1));
      let x = down ? at(furthest, center + k + 1) : at(furthest, center + k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      furthest[center + k] = x;
      if (x >= a.length && x - k >= b.length) return retrace(trace, a.length, b.length, center);
    }
  }
  return [...a.map((): Step => "remove"), ...b.map((): Step => "add")];
}

function at(values: Int32Array, index: number): number {
  return values[index] ?? -1;
}

function retrace(trace: Int32Array[], aLength: number, bLength: number, center: number): Step[] {
  const steps: Step[] = [];
  let x = aLength;
  let y = bLength;
  for (let distance = trace.length - 1; distance >= 0; distance -= 1) {
    const furthest = trace[distance];
    if (furthest === undefined) break;
    const k = x - y;
    const down = k === -distance || (k !== distance && at(furthest, center + k - 1) < at(furthest, center + k + 1));
    const previous = down ? k + 1 : k - 1;
    const previousX = distance === 0 ? 0 : at(furthest, center + previous);
    const previousY = distance === 0 ? 0 : previousX - previous;
    while (x > previousX && y > previousY) {
      steps.push("same");
      x -= 1;
      y -= 1;
    }
    if (distance > 0) steps.push(down ? "add" : "remove");
    x = previousX;
    y = previousY;
  }
  return steps.reverse();
}

function number(old: string[], fresh: string[], start: number, oldEnd: number, script: Step[]): DiffLine[] {
  const lines: DiffLine[] = [];
  let left = 0;
  let right = 0;
  const push = (kind: Step): void => {
    const text = (kind === "add" ? fresh[right] : old[left]) ?? "";
    lines.push({ kind, text, old: kind === "add" ? null : left + 1, new: kind === "remove" ? null : right + 1 });
    if (kind !== "add") left += 1;
    if (kind !== "remove") right += 1;
  };
  for (let index = 0; index < start; index += 1) push("same");
  for (const step of script) push(step);
  for (let index = oldEnd; index < old.length; index += 1) push("same");
  return lines;
}

/** Within equally long runs of removed and added lines, mark what changed inside each pair. */
function markReplaced(lines: DiffLine[]): void {
  for (let index = 0; index < lines.length; ) {
    const removed = run(lines, index, "remove");
    const added = run(lines, index + removed, "add");
    if (removed > 0 && removed === added) {
      for (let pair = 0; pair < removed; pair += 1) markPair(lines[index + pair], lines[index + removed + pair]);
    }
    index += Math.max(1, removed + added);
  }
}

function run(lines: DiffLine[], from: number, kind: Step): number {
  let length = 0;
  while (lines[from + length]?.kind === kind) length += 1;
  return length;
}

function markPair(left: DiffLine | undefined, right: DiffLine | undefined): void {
  if (left === undefined || right === undefined) return;
  const shorter = Math.min(left.text.length, right.text.length);
  let head = 0;
  while (head < shorter && left.text[head] === right.text[head]) head += 1;
  let tail = 0;
  while (tail < shorter - head && left.text.at(-1 - tail) === right.text.at(-1 - tail)) tail += 1;
  const common = left.text.slice(0, head).trim().length + left.text.slice(left.text.length - tail).trim().length;
  // Lines with little in common are plainly different: marking nearly all of them says nothing.
  if (common * 3 < Math.max(left.text.trim().length, right.text.trim().length)) return;
  left.changed = [head, left.text.length - tail];
  right.changed = [head, right.text.length - tail];
}

/** Runs of lines that changed or lie within `context` lines of a change. */
function cutHunks(lines: DiffLine[], context: number): DiffLine[][] {
  const shown = new Uint8Array(lines.length);
  lines.forEach(({ kind }, index) => {
    if (kind !== "same") shown.fill(1, Math.max(0, index - context), index + context + 1);
  });
  const hunks: DiffLine[][] = [];
  lines.forEach((line, index) => {
    if (shown[index] !== 1) return;
    if (shown[index - 1] === 1) hunks.at(-1)?.push(line);
    else hunks.push([line]);
  });
  return hunks;
}
