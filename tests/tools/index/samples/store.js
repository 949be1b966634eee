"use strict";

const DEFAULTS = { capacity: 16, ttl: 60 };

/** Keeps the newest entries. */
class Store {
  #entries = new Map();

  constructor(options = DEFAULTS) {
    this.options = options;
  }

  get(key) {
    return this.#entries.get(key);
  }

  set(key, value) {
    if (this.#entries.size >= this.options.capacity) this.evict();
    this.#entries.set(key, value);
  }

  evict() {
    const [oldest] = this.#entries.keys();
    this.#entries.delete(oldest);
  }

  static of(...pairs) {
    const store = new Store();
    for (const [key, value] of pairs) store.set(key, value);
    return store;
  }
}

function sized(store) {
  return `size: ${store.get("size")} of "${store.options.capacity}"`;
}

function* counted(limit) {
  for (let n = 0; n < limit; n++) yield n;
}

async function load(url) {
  const answer = await fetch(url);
  return answer.json();
}

module.exports = { Store, sized, counted, load };
