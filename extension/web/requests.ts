/** Requests of the server that wait for a person. Each is answered once, by whichever client is first. */

import type { Peer } from "./rpc.js";
import { markOf, text, type Dict } from "./wire.js";

export interface OpenRequest {
  requestId: string;
  sessionId: string;
  /** What it is about, in a line. */
  title: string;
  /** Where the answer goes; null while the connection is away (the server asks again). */
  reply: { peer: Peer; id: number | string } | null;
}

export class OpenRequests<T extends OpenRequest> {
  private readonly open = new Map<string, T>();

  of(sessionId: string): T[] {
    return [...this.open.values()].filter((request) => request.sessionId === sessionId);
  }

  /** Somebody else answered, or the turn was stopped. */
  resolved(requestId: string): void {
    this.open.delete(requestId);
  }

  /** The server withdraws a request by its JSON-RPC id. */
  withdrawn(id: unknown): void {
    for (const [requestId, { reply }] of this.open) {
      if (reply !== null && String(reply.id) === String(id)) this.open.delete(requestId);
    }
  }

  /** The connection is gone: nothing can be answered until the server asks again. */
  disconnect(): void {
    for (const request of this.open.values()) request.reply = null;
  }

  /** The server is about to ask again what is still open in this session. */
  renew(sessionId: string): void {
    for (const [requestId, request] of this.open) {
      if (request.sessionId === sessionId && request.reply === null) this.open.delete(requestId);
    }
  }

  /** Keep a request; the same one asked again replaces the old one. */
  protected keep(request: T): void {
    this.open.set(request.requestId, request);
  }

  /** Send the answer, unless there is nobody to take it. */
  protected settle(requestId: string, result: Dict): void {
    const reply = this.open.get(requestId)?.reply ?? null;
    if (reply === null) return;
    this.open.delete(requestId);
    reply.peer.answer(reply.id, result);
  }
}

/** What every request says of itself. */
export function openRequest(peer: Peer, id: number | string, params: Dict, title: string): OpenRequest {
  const requestId = markOf(params).requestId ?? String(id);
  return { requestId, sessionId: text(params["sessionId"]), title, reply: { peer, id } };
}
