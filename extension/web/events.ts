/** Log events that ACP has no form for: what they mean for the transcript, in words. */

import type { Notice } from "./items.js";
import { dict, list, number, text, type Dict } from "./wire.js";

export interface TurnEvent {
  running: boolean;
  turn: number;
}

const ENDS: Record<string, { level: Notice["level"]; text: string }> = {
  cancelled: { level: "info", text: "Stopped." },
  max_steps: { level: "warning", text: "Stopped at the step limit. Send a message to go on." },
  overlong: { level: "warning", text: "A limit of the model was reached." },
  timeout: { level: "warning", text: "The time limit was reached." },
  malformed: { level: "error", text: "Stopped, because the turn got nowhere." },
  model_error: { level: "error", text: "No answer from the model." },
  env_error: { level: "error", text: "The workspace could not be used." },
  interrupted: { level: "warning", text: "The server stopped during this turn. Send a message to go on." },
};

/** Files that a notice names. */
const NAMED = 3;

/** The data of an `_etude/event`, whether nested under `data` or beside the type. */
export function eventData(params: Dict): Dict {
  return params["data"] === undefined ? params : dict(params["data"]);
}

/** The notice an event leaves in the transcript, if any. */
export function noticeOf(type: string, data: Dict): Pick<Notice, "level" | "text" | "detail"> | null {
  if (type === "turn.ended") return turnEnd(data);
  if (type === "restored") return restored(data);
  // What is wrong with a call stands on its card.
  if (type === "error" && !text(data["call_id"])) {
    const retry = number(data["retry"]);
    const level = retry === undefined ? "error" : "warning";
    const again = retry === undefined ? "" : ` Trying again (${String(retry)}).`;
    return { level, text: `${sentence(text(data["message"])) || "Something went wrong."}${again}`, detail: "" };
  }
  return null;
}

/** Files in the workspace are not what the cards above say any more. */
function restored(data: Dict): Pick<Notice, "level" | "text" | "detail"> | null {
  const changed = list(data["changed"]).map(text).filter(Boolean);
  const conflicts = list(data["conflicts"]).length;
  if (Array.isArray(data["changed"]) && changed.length === 0 && conflicts === 0) return null;
  const more = changed.length > NAMED ? ` and ${String(changed.length - NAMED)} more` : "";
  const files = changed.length === 0 ? "" : `: ${changed.slice(0, NAMED).join(", ")}${more}`;
  const done = data["what"] === "restore" ? "Earlier files were brought back" : "Changes were taken back";
  const stay = conflicts === 1 ? "stays as it is" : "stay as they are";
  const left = conflicts === 0 ? "" : ` ${count(conflicts, "place")} could not be decided and ${stay}.`;
  return { level: conflicts === 0 ? "info" : "warning", text: `${done}${files}.${left}`, detail: "" };
}

function count(number: number, thing: string): string {
  return `${String(number)} ${number === 1 ? thing : `${thing}s`}`;
}

function turnEnd(data: Dict): Pick<Notice, "level" | "text" | "detail"> {
  const known = ENDS[text(data["reason"])];
  const facts = turnFacts(data);
  if (known === undefined) return { level: "end", text: "", detail: facts };
  const message = text(data["message"]);
  return { level: known.level, text: message ? `${known.text} ${sentence(message)}` : known.text, detail: facts };
}

function sentence(words: string): string {
  const ended = words === "" || /[.!?…]$/.test(words) ? words : `${words}.`;
  return /^[a-z]+ /.test(ended) ? ended.charAt(0).toUpperCase() + ended.slice(1) : ended;
}

function turnFacts(data: Dict): string {
  const steps = number(data["steps"]);
  const usage = dict(data["usage"]);
  const input = number(usage["input"]) ?? 0;
  const tokens = input + (number(usage["output"]) ?? 0);
  const hits = number(usage["cached"]);
  const cached = hits === undefined || input === 0 ? "" : ` (${String(Math.round((100 * hits) / input))} % cached)`;
  const cost = number(data["cost"]);
  const parts = [
    steps === undefined || steps === 0 ? "" : count(steps, "step"),
    tokens === 0 ? "" : `${formatCount(tokens)} tokens${cached}`,
    cost === undefined ? "" : formatCost(cost),
  ];
  return parts.filter(Boolean).join(" · ");
}

/** 950, 12.4k, 1.2M. */
export function formatCount(value: number): string {
  if (value < 1000) return String(Math.round(value));
  if (value < 1_000_000) return `${trimmed(value / 1000)}k`;
  return `${trimmed(value / 1_000_000)}M`;
}

function trimmed(value: number): string {
  return value >= 100 ? String(Math.round(value)) : value.toFixed(1).replace(/\.0$/, "");
}

/** US dollars: cents from one cent on, more digits below. */
export function formatCost(value: number): string {
  if (value === 0) return "$0";
  return value >= 0.01 ? `$${value.toFixed(2)}` : `$${value.toPrecision(2)}`;
}
