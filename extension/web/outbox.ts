/** Messages of the user on their way to the log. They survive a reload and are sent again after a break. */

import { isDict, text } from "./wire.js";

export interface Outgoing {
  /** `clientMessageId`: sending it twice does nothing twice. */
  id: string;
  sessionId: string;
  text: string;
  steer: boolean;
  /** Why the server refused it; empty while it is on its way. */
  error: string;
}

/** Where the outbox is kept; `sessionStorage` in a page. */
export type Keep = Pick<Storage, "getItem" | "setItem">;

const KEY = "etude.outbox";

export class Outbox {
  private messages: Outgoing[];

  constructor(private readonly keep: Keep) {
    this.messages = read(keep.getItem(KEY));
  }

  add(message: Outgoing): void {
    this.messages.push(message);
    this.save();
  }

  /** Messages of a session that its log does not hold yet, oldest first. */
  of(sessionId: string): Outgoing[] {
    return this.messages.filter((message) => message.sessionId === sessionId);
  }

  get(id: string): Outgoing | undefined {
    return this.messages.find((message) => message.id === id);
  }

  failed(id: string, error: string): void {
    for (const message of this.messages) if (message.id === id) message.error = error;
    this.save();
  }

  remove(id: string): Outgoing | undefined {
    const found = this.get(id);
    this.messages = this.messages.filter((message) => message !== found);
    if (found !== undefined) this.save();
    return found;
  }

  private save(): void {
    this.keep.setItem(KEY, JSON.stringify(this.messages));
  }
}

function read(kept: string | null): Outgoing[] {
  if (kept === null) return [];
  try {
    const messages: unknown = JSON.parse(kept);
    return Array.isArray(messages) ? messages.filter(isDict).map(toOutgoing).filter(({ id }) => id !== "") : [];
  } catch {
    return [];
  }
}

function toOutgoing(kept: Record<string, unknown>): Outgoing {
  return {
    id: text(kept["id"]),
    sessionId: text(kept["sessionId"]),
    text: text(kept["text"]),
    steer: kept["steer"] === true,
    error: text(kept["error"]),
  };
}
