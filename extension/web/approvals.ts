/** Open questions of the server: may this call run? */

import { diffsOf } from "./tools.js";
import type { FileDiff } from "./items.js";
import { openRequest, OpenRequests, type OpenRequest } from "./requests.js";
import type { Peer } from "./rpc.js";
import { dict, isDict, list, markOf, text, type Dict, type PermissionOption } from "./wire.js";

export interface Approval extends OpenRequest {
  callId: string;
  /** ACP tool kind: edit, execute, other, … */
  kind: string;
  command: string;
  /** Why it is asked; empty where nothing needs to be said. */
  reason: string;
  diffs: FileDiff[];
  options: PermissionOption[];
}

export class Approvals extends OpenRequests<Approval> {
  /** Take a `session/request_permission`. */
  ask(peer: Peer, id: number | string, params: Dict): void {
    const call = dict(params["toolCall"]);
    this.keep({
      ...openRequest(peer, id, params, text(call["title"])),
      callId: text(call["toolCallId"]),
      kind: text(call["kind"]),
      command: text(dict(call["rawInput"])["command"]),
      reason: text(markOf(params).reason),
      diffs: diffsOf(list(call["content"]).filter(isDict), text(call["kind"])),
      options: list(params["options"]).filter(isDict).map(toOption),
    });
  }

  answer(requestId: string, optionId: string): void {
    this.settle(requestId, { outcome: { outcome: "selected", optionId } });
  }
}

function toOption(option: Dict): PermissionOption {
  return { optionId: text(option["optionId"]), name: text(option["name"]), kind: text(option["kind"]) };
}
