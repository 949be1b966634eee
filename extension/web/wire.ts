/** What travels on the wire: JSON-RPC frames, the ACP updates we show, and Etude's marks in `_meta.etude`. */

export type Dict = Record<string, unknown>;

/** Etude's mark on a frame. Stored frames carry `seq`; live ones `live`, `messageId` and `offset`. */
export interface Mark {
  seq?: number;
  part?: number;
  parts?: number;
  term?: number;
  /** Integer microseconds UTC. */
  ts?: number;
  live?: boolean;
  messageId?: string;
  /** Unicode code points from the start of the message. */
  offset?: number;
  requestId?: string;
  reason?: string;
  turn?: number;
  step?: number;
}

/** A notification about one session, as the fold takes it. */
export interface Notification {
  method: string;
  params: Dict;
}

export interface SessionRow {
  sessionId: string;
  cwd: string;
  title?: string | null;
  updatedAt?: string | null;
}

export interface PermissionOption {
  optionId: string;
  name: string;
  kind: string;
}

export interface Choice {
  value: string;
  name: string;
  description?: string;
}

export interface PlanEntry {
  content: string;
  status: string;
}

/** What `GET /api/server` says about the server and the caller. */
export interface ServerInfo {
  version: string;
  workspaces: string[];
  models: string[];
  mode: string;
  model?: string;
  user: string;
}

export function isDict(value: unknown): value is Dict {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function dict(value: unknown): Dict {
  return isDict(value) ? value : {};
}

export function list(value: unknown): unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

export function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

export function number(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

/** `_meta.etude` of the parameters, or of the update inside them. */
export function markOf(params: Dict): Mark {
  const outer = dict(dict(params["_meta"])["etude"]);
  if (Object.keys(outer).length > 0) return outer;
  return dict(dict(dict(params["update"])["_meta"])["etude"]);
}

export function textBlock(content: string): Dict {
  return { type: "text", text: content };
}

/** The text of one ACP content block; other kinds are named, so that nothing vanishes silently. */
export function blockText(block: unknown): string {
  const { type, text: content, uri, name, resource } = dict(block);
  if (type === "text") return text(content);
  if (type === "resource_link") return `[${text(name) || text(uri)}]`;
  if (type === "resource") return `[${text(dict(resource)["uri"])}]`;
  return type === undefined ? "" : `[${text(type)}]`;
}
