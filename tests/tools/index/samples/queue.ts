import { EventEmitter } from "node:events";

/** How a job ended. */
export enum Outcome {
  Done = "done",
  Failed = "failed",
}

export interface Job<T> {
  readonly id: string;
  run(signal: AbortSignal): Promise<T>;
}

export type Listener = (id: string, outcome: Outcome) => void;

export abstract class Backoff {
  abstract delay(attempt: number): number;
}

class Exponential extends Backoff {
  constructor(private readonly base: number) {
    super();
  }

  delay(attempt: number): number {
    return this.base * 2 ** attempt;
  }
}

// Runs jobs one after the other, "run" again when they fail.
export class JobQueue<T> extends EventEmitter {
  private waiting: Job<T>[] = [];
  static instances = 0;

  constructor(private backoff: Backoff = new Exponential(50)) {
    super();
    JobQueue.instances += 1;
  }

  get size(): number {
    return this.waiting.length;
  }

  push(job: Job<T>): void {
    this.waiting.push(job);
  }

  async drain(signal: AbortSignal): Promise<number> {
    let count = 0;
    for (const job of this.waiting) {
      await job.run(signal);
      count += 1;
    }
    return count;
  }
}

export function once<T>(job: Job<T>): Promise<T> {
  return job.run(new AbortController().signal);
}

export const twice = async <T>(job: Job<T>): Promise<[T, T]> => [await once(job), await once(job)];

export namespace limits {
  export function most(): number {
    return 64;
  }
}
