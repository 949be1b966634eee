/** The socket to the server: it opens, says hello, and comes back after any abnormal end. */

import { Disconnected, Peer, type Incoming } from "./rpc.js";
import { dict, type Dict } from "./wire.js";

export type Status =
  | { kind: "connecting" }
  | { kind: "online" }
  /** `retryAt`: milliseconds of the clock at which the next try begins. */
  | { kind: "offline"; retryAt: number }
  /** The token is not accepted: only a new link helps. */
  | { kind: "refused" };

/** A server speaks at least every 20 s; silence of this long means that the way to it is broken. */
const SILENCE_MS = 50_000;
const PATIENCE_MS = 8000;
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 10_000;

export interface ConnectionEvents extends Incoming {
  status(status: Status): void;
  /** The socket is open and initialized; also after each reconnect. */
  ready(agent: Dict): void;
}

export interface Endpoint {
  /** `ws://…/acp` */
  url: string;
  token: string;
  /** Whether the token is still accepted; false only when the server says so. */
  accepted(): Promise<boolean>;
}

export class Connection {
  peer: Peer | null = null;
  status: Status = { kind: "connecting" };
  private socket: WebSocket | null = null;
  private attempts = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private watchdog: ReturnType<typeof setTimeout> | undefined;
  private readonly waiters: ((peer: Peer) => void)[] = [];
  private stopped = false;

  constructor(
    private readonly endpoint: Endpoint,
    private readonly events: ConnectionEvents,
  ) {}

  open(): void {
    if (this.stopped || this.socket !== null) return;
    clearTimeout(this.timer);
    if (this.status.kind !== "offline") this.become({ kind: "connecting" });
    const socket = new WebSocket(this.endpoint.url, ["acp.v1", `bearer.${this.endpoint.token}`]);
    const peer = new Peer((frame) => {
      if (socket.readyState === WebSocket.OPEN) socket.send(frame);
    }, this.events);
    this.socket = socket;
    socket.onopen = () => {
      this.listen(socket, peer);
      void this.hello(peer, socket);
    };
    socket.onmessage = ({ data }) => {
      this.listen(socket, peer);
      if (typeof data === "string") peer.feed(data);
    };
    socket.onclose = () => {
      this.closed(socket, peer);
    };
  }

  /** Try at once, when the person asks for it or the network comes back. */
  retry(): void {
    if (this.status.kind === "offline") this.open();
  }

  /** The peer, as soon as there is one. Rejects when that takes longer than a person would wait. */
  online(): Promise<Peer> {
    if (this.peer !== null) return Promise.resolve(this.peer);
    return new Promise((resolve, reject) => {
      this.waiters.push(resolve);
      setTimeout(() => {
        reject(new Disconnected("The server cannot be reached. What you wrote is kept."));
      }, PATIENCE_MS);
    });
  }

  close(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    clearTimeout(this.watchdog);
    this.socket?.close(1000);
  }

  private async hello(peer: Peer, socket: WebSocket): Promise<void> {
    try {
      const agent = await peer.request("initialize", {
        protocolVersion: 1,
        clientInfo: { name: "etude-web", title: "Etude", version: "1" },
        clientCapabilities: {
          fs: { readTextFile: false, writeTextFile: false },
          elicitation: { form: {} },
          session: { compaction: {} },
          _meta: { etude: { attach: true, steer: true, live: true } },
        },
      });
      this.attempts = 0;
      this.peer = peer;
      for (const waiter of this.waiters.splice(0)) waiter(peer);
      this.become({ kind: "online" });
      this.events.ready(dict(agent));
    } catch {
      socket.close();
    }
  }

  private closed(socket: WebSocket, peer: Peer): void {
    if (this.socket !== socket) return;
    this.socket = null;
    this.peer = null;
    clearTimeout(this.watchdog);
    peer.end();
    if (!this.stopped) void this.again();
  }

  private async again(): Promise<void> {
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.attempts) * (0.75 + Math.random() / 2);
    this.attempts += 1;
    this.become({ kind: "offline", retryAt: Date.now() + wait });
    if (!(await this.endpoint.accepted())) {
      this.become({ kind: "refused" });
      return;
    }
    this.timer = setTimeout(() => {
      this.open();
    }, wait);
  }

  private listen(socket: WebSocket, peer: Peer): void {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => {
      // A close handshake on a dead way takes long: let go of the socket at once.
      socket.close();
      this.closed(socket, peer);
    }, SILENCE_MS);
  }

  private become(status: Status): void {
    this.status = status;
    this.events.status(status);
  }
}
