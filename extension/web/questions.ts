/** Open questions of the agent: what a person can choose or say. */

import { openRequest, OpenRequests, type OpenRequest } from "./requests.js";
import type { Peer } from "./rpc.js";
import { dict, list, text, type Dict } from "./wire.js";

export interface Question extends OpenRequest {
  /** Answers to choose from; empty where there are none. */
  choices: string[];
  /** What the field for an answer in own words is called; null where there is none. */
  field: string | null;
}

export class Questions extends OpenRequests<Question> {
  /** Take an `elicitation/create`. False for a form that this client has no view of. */
  ask(peer: Peer, id: number | string, params: Dict): boolean {
    const schema = dict(params["requestedSchema"]);
    const { choice, answer, ...others } = dict(schema["properties"]);
    const choices = list(dict(choice)["enum"]).filter((value) => typeof value === "string");
    const field = dict(answer)["type"] === "string" ? text(dict(answer)["title"]) || "Answer" : null;
    const unknown = list(schema["required"]).some((name) => typeof name === "string" && name in others);
    if (params["mode"] !== "form" || unknown || (choices.length === 0 && field === null)) return false;
    this.keep({ ...openRequest(peer, id, params, text(params["message"])), choices, field });
    return true;
  }

  /** Answer with a choice, own words, or both; what is empty is not sent. */
  answer(requestId: string, choice: string, words: string): void {
    const content = { ...(choice === "" ? {} : { choice }), ...(words === "" ? {} : { answer: words }) };
    this.settle(requestId, { action: "accept", content });
  }

  skip(requestId: string): void {
    this.settle(requestId, { action: "decline" });
  }
}
