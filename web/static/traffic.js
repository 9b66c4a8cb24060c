// What goes over the network, seen and disturbed: this stands between client.js and the browser's own fetch and WebSocket.
// While nobody looks, a frame costs one small object; nothing is parsed.

import { utf8Length } from "./track.js";

const KEPT = 500; // entries
const KEPT_CHARACTERS = 4_000_000; // of all their texts
const LONGEST = 200_000; // characters of one text; of a longer one its beginning
const SLOW_MS = 1000; // from one delta to the next, where it is read slowly

const SECRETS = /svc_(?:live|test)_\w+|((?:"ticket"\s*:\s*"|[?&]ticket=))[^"&#\s]+/g;

/** text with "…" where keys and tickets stood. */
export function scrub(text) {
  return text.replace(SECRETS, (_, before) => `${before ?? ""}…`);
}

/** Whether a frame's text is a message.delta: servers write the type first. */
export function isDelta(data) {
  return data.startsWith('{"type":"message.delta"');
}

/** Traffic keeps the newest entries of what was sent and received. An entry is
 * - a frame: { n, at, out, data, dropped }, or
 * - a REST call: { n, at, out: true, method, path, data, status, ms, bytes, answer }; status is 0 before the answer, and "failed" if none came.
 * n counts from 1, at is in Unix milliseconds, ms lasts until the answer was read whole, of which bytes
 * is the length. Keys and tickets are never kept. */
export class Traffic {
  /** Called with each entry as it comes, and again when it has changed. */
  onentry = null;
  /** Where true, only one delta a second is let through. client.js sees a gap and asks for what was left out. */
  slow = false;
  /** Oldest first. */
  entries = [];
  /** How many there have been. */
  total = 0;
  /** For the options of client.js. */
  WebSocket;
  #characters = 0;
  #fetch;
  #wires = new Set();
  #calls = new AbortController(); // those under way
  #offline = false;

  constructor({ fetch = (...request) => globalThis.fetch(...request), WebSocket = globalThis.WebSocket } = {}) {
    this.#fetch = fetch;
    const traffic = this;
    this.WebSocket = class {
      constructor(url, protocols) {
        const wire = new Wire(traffic, traffic.#offline ? null : new WebSocket(url, protocols), () => traffic.#wires.delete(wire));
        traffic.#wires.add(wire);
        return wire;
      }
    };
  }

  /** For the options of client.js. Only what is read with text() is seen. */
  fetch = async (url, { signal, ...options } = {}) => {
    const { pathname, search } = new URL(url, globalThis.location?.href);
    const { method = "GET", body = "" } = options;
    const entry = this.note({ out: true, method, path: scrub(pathname + search), data: scrub(body), status: 0, ms: 0, bytes: 0, answer: "" });
    const began = performance.now();
    const settle = (status, answer = "") => {
      Object.assign(entry, { status, ms: performance.now() - began, bytes: utf8Length(answer), answer: scrub(answer).slice(0, LONGEST) });
      this.onentry?.(entry);
    };
    const { signal: line } = this.#calls;
    try {
      if (this.#offline) throw new TypeError("offline, as the Trouble menu has it");
      const response = await this.#fetch(url, { ...options, signal: signal ? AbortSignal.any([signal, line]) : line });
      const read = response.text.bind(response);
      settle(response.status);
      response.text = async () => {
        const answer = await read();
        settle(response.status, answer);
        return answer;
      };
      return response;
    } catch (error) {
      settle("failed");
      throw error;
    }
  };

  /** Keeps an entry, and returns it. */
  note(entry) {
    entry.n = ++this.total;
    entry.at = Date.now();
    if (entry.data.length > LONGEST) entry.data = entry.data.slice(0, LONGEST);
    this.entries.push(entry);
    this.#characters += entry.data.length;
    while (this.entries.length > KEPT || this.#characters > KEPT_CHARACTERS) this.#characters -= this.entries.shift().data.length;
    this.onentry?.(entry);
    return entry;
  }

  clear() {
    this.entries = [];
    this.#characters = 0;
  }

  /** Cuts every socket, as a network does: without a reason. */
  drop() {
    for (const wire of this.#wires) wire.cut();
  }

  /** Nothing works for so long, or as long as it is so already. Then, as browsers do, it says that the network is back. */
  async goOffline(ms) {
    if (this.#offline) return;
    this.#offline = true;
    this.drop();
    this.#calls.abort();
    await new Promise((resolve) => setTimeout(resolve, ms));
    this.#calls = new AbortController();
    this.#offline = false;
    globalThis.dispatchEvent?.(new Event("online"));
  }
}

/** Wire is a socket as client.js sees it. */
class Wire {
  onmessage = null;
  onclose = null;
  onerror = null;
  #traffic;
  #socket;
  #closed;
  #slowly = new Slowly((event) => this.onmessage?.(event));

  /** socket is null where there is no network; closed is called once the wire is of no use any more. */
  constructor(traffic, socket, closed) {
    this.#traffic = traffic;
    this.#socket = socket;
    this.#closed = closed;
    if (!socket) return void setTimeout(() => this.cut());
    socket.onmessage = (event) => this.#receive(event);
    socket.onclose = (event) => this.#end(event);
    socket.onerror = (event) => this.onerror?.(event);
  }

  send(data) {
    this.#traffic.note({ out: true, data: scrub(data), dropped: false });
    this.#socket.send(data);
  }

  close() {
    this.#slowly.stop();
    this.#socket?.close();
  }

  /** The network is cut here: what still comes is not heard. */
  cut() {
    const socket = this.#socket;
    if (socket) socket.onmessage = socket.onclose = socket.onerror = null;
    this.#end({ code: 1006, reason: "" });
    socket?.close();
  }

  #end(event) {
    this.#slowly.stop();
    this.#closed();
    this.onclose?.(event);
  }

  #receive(event) {
    const entry = this.#traffic.note({ out: false, data: event.data, dropped: false });
    if (!this.#traffic.slow && !this.#slowly.holds) return void this.onmessage?.(event);
    this.#slowly.take(event, entry);
    if (entry.dropped) this.#traffic.onentry?.(entry);
  }
}

/** Slowly reads a socket as a slow network does, as far as a page can: of the deltas it lets one a second through and
 * leaves the others out, the newest of them for last, so that a gap is noticed also where nothing follows.
 *
 * What it lets through after leaving something out is a gap, and client.js subscribes again at its cursor. The delta
 * that answers it is always let through: it moves the cursor on, so each gap is mended and there is at most one a
 * second. All that is no delta passes. */
class Slowly {
  #pass;
  #owed = new Set(); // sessions that are to be shown what they asked for
  #held = null; // { sessionId, event, entry }: the newest that was left out
  #next = 0; // when the next may pass
  #timer;

  constructor(pass) {
    this.#pass = pass;
  }

  get holds() {
    return this.#held !== null;
  }

  take(event, entry) {
    const { type, sessionId } = JSON.parse(event.data);
    if (type !== "message.delta") {
      // What was held is in what this brings, or gone with what this ends.
      if (this.#held?.sessionId === sessionId) this.stop();
      if (type === "subscribed") this.#owed.add(sessionId);
      return this.#pass(event);
    }
    const now = Date.now();
    if (this.#owed.delete(sessionId) || (now >= this.#next && !this.#held)) {
      this.#next = now + SLOW_MS;
      return this.#pass(event);
    }
    entry.dropped = true;
    if (!this.#held) this.#timer = setTimeout(() => this.#release(), this.#next - now);
    this.#held = { sessionId, event, entry };
  }

  stop() {
    clearTimeout(this.#timer);
    this.#held = null;
  }

  #release() {
    const { event } = this.#held;
    this.#held = null;
    this.#next = Date.now() + SLOW_MS;
    this.#pass(event);
  }
}
