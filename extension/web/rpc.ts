/** One JSON-RPC 2.0 peer. It knows neither sessions nor sockets. */

import { dict, isDict, number, text, type Dict } from "./wire.js";

export class RpcError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly data?: unknown,
  ) {
    super(message);
  }
}

/** The connection ended before the answer came; whether the request was taken is unknown. */
export class Disconnected extends Error {
  constructor(message = "The connection ended before the answer came.") {
    super(message);
  }
}

export interface Incoming {
  notification(method: string, params: Dict): void;
  /** A request of the server; it is answered with `answer` or `refuse`, now or later. */
  request(id: number | string, method: string, params: Dict): void;
}

const FRAME_LIMIT = 16 * 1024 * 1024;

interface Waiting {
  resolve: (result: unknown) => void;
  reject: (error: Error) => void;
}

export class Peer {
  private readonly waiting = new Map<string, Waiting>();
  private nextId = 1;

  constructor(
    private readonly send: (frame: string) => void,
    private readonly incoming: Incoming,
  ) {}

  request(method: string, params: Dict): Promise<Dict> {
    const id = this.nextId;
    this.nextId += 1;
    const frame = encode({ id, method, params });
    if (frame.length > FRAME_LIMIT) {
      // The server would refuse it without being able to say which request that was.
      const size = `${String(frame.length)} characters, more than the ${String(FRAME_LIMIT)} a server takes`;
      return Promise.reject(new RpcError(-32600, `This message has ${size}. Put it in a file and name the file.`, null));
    }
    return new Promise((resolve, reject) => {
      this.waiting.set(String(id), {
        resolve: (result) => {
          resolve(dict(result));
        },
        reject,
      });
      this.send(frame);
    });
  }

  notify(method: string, params: Dict): void {
    this.write({ method, params });
  }

  answer(id: number | string, result: Dict): void {
    this.write({ id, result });
  }

  refuse(id: number | string, code: number, message: string): void {
    this.write({ id, error: { code, message } });
  }

  /** Take one frame; what is no JSON-RPC message is ignored. */
  feed(frame: string): void {
    const message = parse(frame);
    if (message === null) return;
    const id = message["id"];
    const known = typeof id === "number" || typeof id === "string";
    if (typeof message["method"] === "string") {
      const params = dict(message["params"]);
      if (known) this.incoming.request(id, message["method"], params);
      else this.incoming.notification(message["method"], params);
    } else if (known) {
      this.settle(String(id), message);
    }
  }

  /** The connection is gone: whoever still waits is told. */
  end(): void {
    const waiting = [...this.waiting.values()];
    this.waiting.clear();
    for (const { reject } of waiting) reject(new Disconnected());
  }

  private settle(id: string, message: Dict): void {
    const waiting = this.waiting.get(id);
    if (waiting === undefined) return;
    this.waiting.delete(id);
    const error = message["error"];
    if (!isDict(error)) waiting.resolve(message["result"]);
    else waiting.reject(new RpcError(number(error["code"]) ?? -32603, text(error["message"]), error["data"]));
  }

  private write(message: Dict): void {
    this.send(encode(message));
  }
}

/** A message as a frame. Half characters, which no server reads, are replaced. */
function encode(message: Dict): string {
  const whole = (_: string, value: unknown): unknown =>
    typeof value === "string" ? value.replace(/\p{Surrogate}/gu, "\uFFFD") : value;
  return JSON.stringify({ jsonrpc: "2.0", ...message }, whole);
}

function parse(frame: string): Dict | null {
  try {
    const message: unknown = JSON.parse(frame);
    return isDict(message) ? message : null;
  } catch {
    return null;
  }
}
