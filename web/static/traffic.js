// Lies between client.js and the browser's fetch and WebSocket. It records every frame and call for the inspector, without keys
// and tickets, and simulates network failures. A frame costs one small object; it is parsed only for a slow reader.

import { utf8Length } from "./track.js";

const MAX_ENTRIES = 500; // as many rows as the inspector shows
const MAX_CHARACTERS = 4_000_000; // of all frames and request bodies; responses are not counted
const MAX_TEXT = 200_000; // characters of one text; the rest is dropped
const SLOW_MS = 1000; // between two deltas of a slow reader

const SECRETS = /svc_(?:live|test)_\w+|((?:"ticket"\s*:\s*"|[?&]ticket=))[^"&#\s]+/g;

/** Replaces keys and tickets in a text by "…". */
export function scrub(text) {
  return text.replace(SECRETS, (_, before) => `${before ?? ""}…`);
}

/** Whether a frame is a message.delta. Needs no parsing, because the server writes the type first. */
export function isDelta(data) {
  return data.startsWith('{"type":"message.delta"');
}

/** Keeps the newest frames and calls. An entry is
 * - a frame: { n, at, out, data, dropped }, or
 * - a REST call: { n, at, out: true, method, path, data, status, ms, bytes, answer }. status is 0 until the response arrives, and
 *   "failed" without a response. ms and bytes cover the whole response body, and answer is its text.
 * n counts from 1; at is in Unix milliseconds. Keys and tickets are never kept. */
export class Traffic {
  /** Called with each new entry, and again when the entry changes. */
  onentry = null;
  /** Simulates a slow reader: one delta a second passes. client.js detects the gap and requests the missing text. */
  slow = false;
  /** Oldest first. */
  entries = [];
  /** Number of entries ever recorded, removed entries included. */
  total = 0;
  /** For client.js: the option WebSocket. */
  WebSocket;
  #characters = 0;
  #fetch;
  #sockets = new Set();
  #calls = new AbortController(); // aborts the running calls
  #offline = false;

  constructor({ fetch = (...request) => globalThis.fetch(...request), WebSocket = globalThis.WebSocket } = {}) {
    this.#fetch = fetch;
    const traffic = this;
    this.WebSocket = class {
      constructor(url, protocols) {
        const socket = new RecordedSocket(traffic, traffic.#offline ? null : new WebSocket(url, protocols), () => traffic.#sockets.delete(socket));
        traffic.#sockets.add(socket);
        return socket;
      }
    };
  }

  /** For client.js: the option fetch. Records response bodies that are read with text(). */
  fetch = async (url, { signal, ...options } = {}) => {
    const { pathname, search } = new URL(url, globalThis.location?.href);
    const { method = "GET", body = "" } = options;
    const entry = this.note({ out: true, method, path: scrub(pathname + search), data: scrub(body), status: 0, ms: 0, bytes: 0, answer: "" });
    const began = performance.now();
    const record = (status, answer = "") => {
      Object.assign(entry, { status, ms: performance.now() - began, bytes: utf8Length(answer), answer: scrub(answer).slice(0, MAX_TEXT) });
      this.onentry?.(entry);
    };
    const { signal: offline } = this.#calls;
    try {
      if (this.#offline) throw new TypeError("offline: simulated by the failure simulator");
      const response = await this.#fetch(url, { ...options, signal: signal ? AbortSignal.any([signal, offline]) : offline });
      const read = response.text.bind(response);
      record(response.status);
      response.text = async () => {
        const answer = await read();
        record(response.status, answer);
        return answer;
      };
      return response;
    } catch (error) {
      record("failed");
      throw error;
    }
  };

  /** Records an entry and returns it. */
  note(entry) {
    entry.n = ++this.total;
    entry.at = Date.now();
    if (entry.data.length > MAX_TEXT) entry.data = entry.data.slice(0, MAX_TEXT);
    this.entries.push(entry);
    this.#characters += entry.data.length;
    while (this.entries.length > MAX_ENTRIES || this.#characters > MAX_CHARACTERS) this.#characters -= this.entries.shift().data.length;
    this.onentry?.(entry);
    return entry;
  }

  clear() {
    this.entries = [];
    this.#characters = 0;
  }

  /** Closes every socket without a close frame, as a failing network does (code 1006). */
  drop() {
    for (const socket of this.#sockets) socket.cut();
  }

  /** Blocks all traffic for some milliseconds, then fires the "online" event, as browsers do. Does nothing if already offline. */
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

/** The WebSocket that client.js gets. */
class RecordedSocket {
  onmessage = null;
  onclose = null;
  onerror = null;
  #traffic;
  #socket;
  #closed;
  #throttle = new DeltaThrottle((event) => this.onmessage?.(event));

  /** socket is null while offline; closed is called when the socket has closed. */
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
    this.#throttle.stop();
    this.#socket?.close();
  }

  /** Simulates a lost connection: later events of the real socket are ignored. */
  cut() {
    const socket = this.#socket;
    if (socket) socket.onmessage = socket.onclose = socket.onerror = null;
    this.#end({ code: 1006, reason: "" });
    socket?.close();
  }

  #end(event) {
    this.#throttle.stop();
    this.#closed();
    this.onclose?.(event);
  }

  #receive(event) {
    const entry = this.#traffic.note({ out: false, data: event.data, dropped: false });
    if (!this.#traffic.slow && !this.#throttle.holds) return void this.onmessage?.(event);
    this.#throttle.take(event, entry);
    if (entry.dropped) this.#traffic.onentry?.(entry);
  }
}

/** Simulates a slow reader: passes one delta a second and drops the others. The newest dropped delta passes after that second, so
 * that client.js notices the gap even if no further delta follows.
 *
 * After a gap, client.js subscribes again at its cursor. The first delta after `subscribed` always passes. That delta moves the
 * cursor, so every gap closes, and at most one gap opens per second. Frames other than deltas pass. */
class DeltaThrottle {
  #pass;
  #resubscribed = new Set(); // ids of sessions; the next delta of each must pass
  #held = null; // { sessionId, event, entry }: the newest dropped delta
  #next = 0; // when the next delta may pass
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
      // The held delta is not needed: after this frame the server sends the text again, or the reply or session has ended.
      if (this.#held?.sessionId === sessionId) this.stop();
      if (type === "subscribed") this.#resubscribed.add(sessionId);
      return this.#pass(event);
    }
    const now = Date.now();
    if (this.#resubscribed.delete(sessionId) || (now >= this.#next && !this.#held)) {
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
