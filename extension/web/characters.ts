/**
 * The characters of one streamed message, put together from what arrives: live pieces (shown at once,
 * not yet stored), marks that say "stored up to here", and stored pieces that fill gaps. Offsets count
 * Unicode code points. The result is the same in whatever order the pieces arrive, and however often.
 */

const ASTRAL = /[\ud800-\udbff][\udc00-\udfff]/;

/** Code points of a string. */
export function pointLength(value: string): number {
  if (!ASTRAL.test(value)) return value.length;
  let count = 0;
  for (const _ of value) count += 1;
  return count;
}

/** The string without its first `count` code points. */
export function dropPoints(value: string, count: number): string {
  if (count <= 0) return value;
  if (!ASTRAL.test(value)) return value.slice(count);
  let index = 0;
  for (const point of value) {
    if (count === 0) break;
    index += point.length;
    count -= 1;
  }
  return value.slice(index);
}

interface Piece {
  offset: number;
  text: string;
  seq?: number;
}

export class Characters {
  /** Durable characters, from offset 0 without a gap. */
  stored = "";
  storedEnd = 0;
  private tail = "";
  private tailEnd = 0;
  private early: Piece[] = [];
  private storedEarly: Piece[] = [];
  private marks: { seq: number; end: number }[] = [];

  /** `keep`: code units that stay readable; older ones are dropped (for output without bound). */
  constructor(private readonly keep = Infinity) {}

  /** Everything that can be shown: stored and live, up to the first gap. */
  get text(): string {
    const all = this.stored + this.tail;
    return all.length > this.keep ? all.slice(-this.keep) : all;
  }

  get end(): number {
    return this.tailEnd;
  }

  get truncated(): boolean {
    return this.tailEnd > this.keep;
  }

  /** Whether characters wait here that are not stored yet. */
  get unsettled(): boolean {
    return this.tailEnd > this.storedEnd || this.early.length > 0;
  }

  /** Characters on their way to the log. Returns the `seq`s that became complete through them. */
  live(offset: number, text: string): number[] {
    if (offset > this.tailEnd) this.early.push({ offset, text });
    else this.extend(offset, text);
    return this.settle();
  }

  /** A stored piece, with its characters. Returns the `seq`s that became complete. */
  store(seq: number, offset: number, text: string): number[] {
    if (offset > this.storedEnd) this.storedEarly.push({ offset, text, seq });
    else this.commit(offset, text);
    const done = offset > this.storedEnd ? [] : [seq];
    return [...done, ...this.settle()];
  }

  /** "Stored up to `end`": without the characters, for one who has them. Returns completed `seq`s. */
  mark(seq: number, end: number): number[] {
    this.marks.push({ seq, end });
    return this.settle();
  }

  /** A new owner took the session over: what was never stored will never be. */
  dropLive(): void {
    this.tail = "";
    this.tailEnd = this.storedEnd;
    this.early = [];
    this.marks = [];
  }

  private extend(offset: number, text: string): void {
    const fresh = dropPoints(text, this.tailEnd - offset);
    this.tail += fresh;
    this.tailEnd += pointLength(fresh);
  }

  private commit(offset: number, text: string): void {
    const fresh = dropPoints(text, this.storedEnd - offset);
    const length = pointLength(fresh);
    if (length === 0) return;
    this.append(fresh);
    this.storedEnd += length;
    if (this.tailEnd <= this.storedEnd) {
      this.tail = "";
      this.tailEnd = this.storedEnd;
    } else {
      this.tail = dropPoints(this.tail, length);
    }
  }

  private append(fresh: string): void {
    this.stored += fresh;
    if (this.stored.length > this.keep * 2) this.stored = this.stored.slice(-this.keep);
  }

  private settle(): number[] {
    const done: number[] = [];
    for (let moved = true; moved; ) {
      moved = false;
      this.storedEarly = this.storedEarly.filter((piece) => {
        if (piece.offset > this.storedEnd) return true;
        this.commit(piece.offset, piece.text);
        if (piece.seq !== undefined) done.push(piece.seq);
        moved = true;
        return false;
      });
      this.early = this.early.filter((piece) => {
        if (piece.offset > this.tailEnd) return true;
        this.extend(piece.offset, piece.text);
        moved = true;
        return false;
      });
      this.marks = this.marks.filter(({ seq, end }) => {
        if (end > this.tailEnd) return true;
        this.keepUpTo(end);
        done.push(seq);
        moved = true;
        return false;
      });
    }
    return done;
  }

  private keepUpTo(end: number): void {
    if (end <= this.storedEnd) return;
    const rest = dropPoints(this.tail, end - this.storedEnd);
    this.append(this.tail.slice(0, this.tail.length - rest.length));
    this.tail = rest;
    this.storedEnd = end;
  }
}
