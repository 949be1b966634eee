/** Open questions of the server: may this call run? Each is answered once, by whichever client is first. */

import { toDiff } from "./tools.js";
import type { FileDiff } from "./items.js";
import type { Peer } from "./rpc.js";
import { dict, isDict, list, markOf, text, type Dict, type PermissionOption } from "./wire.js";

export interface Approval {
  requestId: string;
  sessionId: string;
  callId: string;
  title: string;
  command: string;
  /** Why it is asked; empty where nothing needs to be said. */
  reason: string;
  diffs: FileDiff[];
  options: PermissionOption[];
  /** Where the answer goes; null while the connection is away (the server asks again). */
  reply: { peer: Peer; id: number | string } | null;
}

export class Approvals {
  private readonly open = new Map<string, Approval>();

  /** Take a `session/request_permission`; the same question asked again replaces the old one. */
  ask(peer: Peer, id: number | string, params: Dict): void {
    const call = dict(params["toolCall"]);
    const requestId = markOf(params).requestId ?? String(id);
    this.open.set(requestId, {
      requestId,
      sessionId: text(params["sessionId"]),
      callId: text(call["toolCallId"]),
      title: text(call["title"]),
      command: text(dict(call["rawInput"])["command"]),
      reason: text(markOf(params).reason),
      diffs: list(call["content"]).filter(isDict).filter(({ type }) => type === "diff").map(toDiff),
      options: list(params["options"]).filter(isDict).map(toOption),
      reply: { peer, id },
    });
  }

  of(sessionId: string): Approval[] {
    return [...this.open.values()].filter((approval) => approval.sessionId === sessionId);
  }

  waiting(sessionId: string): boolean {
    return this.of(sessionId).length > 0;
  }

  answer(requestId: string, optionId: string): void {
    const approval = this.open.get(requestId);
    if (approval?.reply == null) return;
    const { peer, id } = approval.reply;
    this.open.delete(requestId);
    peer.answer(id, { outcome: { outcome: "selected", optionId } });
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
    for (const approval of this.open.values()) approval.reply = null;
  }

  /** The server is about to ask again what is still open in this session. */
  renew(sessionId: string): void {
    for (const [requestId, approval] of this.open) {
      if (approval.sessionId === sessionId && approval.reply === null) this.open.delete(requestId);
    }
  }
}

function toOption(option: Dict): PermissionOption {
  return { optionId: text(option["optionId"]), name: text(option["name"]), kind: text(option["kind"]) };
}
