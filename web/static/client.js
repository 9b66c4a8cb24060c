// The JavaScript client of Parley and its stream protocol, parley.v1. No dependencies; types in client.d.ts.
//
//     const client = new Client({ baseURL: "http://127.0.0.1:8420/v1", key });
//     for await (const event of client.send(sessionId, "Hi")) {
//       if (event.type === "delta") process.stdout.write(event.delta);
//     }
//
// A caller does not notice a lost connection. The client reconnects, resumes every watched session at its last cursor, and drops
// text that it has already delivered. It repeats a message that was not confirmed, with the same idempotency key.
//
// This file owns the public API, REST calls and tickets. connection.js owns the WebSocket, track.js the offsets. The Go package
// stream/client has the same API.

import { Connection, HANDSHAKE_MS } from "./connection.js";
import { ParleyError, errorOf } from "./track.js";

export { ParleyError, Track, utf8Length } from "./track.js";

const PROTOCOL = "parley.v1";
const SEND_ATTEMPTS = 5; // per message; if each attempt loses its connection, send() throws connection_lost

/** A client for one server and one key. All sessions share its WebSocket, which opens on first use. */
export class Client {
  /** Called with each new state of the connection. */
  onstate = null;
  #baseURL;
  #key;
  #fetch;
  #WebSocket;
  #ticket;
  #state = { state: "idle" };
  #connections = []; // the first one reports its state; others exist only if #connectionFor needs them
  #wake = () => this.wake();

  constructor({ baseURL, key, ticket, fetch, WebSocket } = {}) {
    this.#baseURL = new URL(baseURL ?? "/v1", globalThis.location?.href).href.replace(/\/+$/, "");
    this.#key = key;
    this.#fetch = fetch ?? ((...request) => globalThis.fetch(...request));
    this.#WebSocket = WebSocket ?? globalThis.WebSocket;
    this.#ticket = ticket ?? (async () => (await this.#rest("POST", "/stream/tickets", {}, AbortSignal.timeout(HANDSHAKE_MS))).ticket);
    this.#connections.push(new Connection(() => this.#dial(), (state) => this.#report(state), () => {}));
    for (const event of ["online", "offline", "pageshow"]) globalThis.addEventListener?.(event, this.#wake);
    globalThis.document?.addEventListener("visibilitychange", this.#wake);
  }

  get state() {
    return this.#state;
  }

  /** Opens the WebSocket now instead of on first use. */
  connect() {
    this.#connections[0].open();
  }

  /** Reconnects at once, or checks that the connection is alive. In browsers, network and visibility events call it too. */
  wake() {
    if (globalThis.document?.visibilityState === "hidden" || this.#state.state === "idle") return;
    for (const connection of this.#connections) connection.wake();
  }

  /** Closes all sockets for good. Running iterations throw. Repeated calls do nothing. */
  close() {
    for (const connection of this.#connections.splice(1)) connection.close();
    this.#connections[0].close();
  }

  /** Iterates the events of a session after a cursor, or from now on. Subscribes at once, not with the first next(). */
  watch(sessionId, { after, signal } = {}) {
    return this.#connectionFor(sessionId, after).join(sessionId, after, signal).iterator;
  }

  /** Sends a message and iterates the reply's events to its end. Sends nothing before the first next(). Leaving the loop or
   * aborting the signal does not stop the reply; cancel() does. */
  async *send(sessionId, content, options = {}) {
    const connection = this.#connectionFor(sessionId);
    // Subscribe before sending, so that no event of the reply is missed.
    let { iterator, subscription } = connection.join(sessionId, undefined, options.signal);
    try {
      const { messageId, cursor } = await this.#begin(connection, subscription, content, options);
      if (cursor !== undefined) {
        // An earlier send with this key began the turn. The reply may have begun, or even ended, before the subscription.
        iterator.return();
        iterator = this.watch(sessionId, { after: cursor, signal: options.signal });
      }
      for await (const event of iterator) {
        if (event.messageId === messageId) yield event;
        if (event.messageId === messageId && event.type === "end") return;
        const unseen = await this.#unseenEnd(event, messageId);
        if (unseen) return void (yield unseen);
      }
    } finally {
      iterator.return();
    }
  }

  /** Sends a message and resolves with the reply's { messageId } when its turn begins, for callers that watch the session. */
  async start(sessionId, content, options = {}) {
    const connection = this.#connectionFor(sessionId);
    const { iterator, subscription } = connection.join(sessionId, undefined, options.signal);
    try {
      const { messageId } = await this.#begin(connection, subscription, content, options);
      return { messageId };
    } finally {
      iterator.return();
    }
  }

  /** Stops a reply and resolves with the final message. If the connection is lost, repeats the request over REST, because
   * cancelling twice is safe. */
  async cancel(sessionId, messageId) {
    const [connection] = this.#connections;
    if (connection.live || !this.#key) {
      try {
        return (await connection.request({ type: "cancel", sessionId, messageId })).message;
      } catch (error) {
        if (error.code !== "connection_lost" || !this.#key) throw error;
      }
    }
    return this.#rest("POST", `/sessions/${part(sessionId)}/messages/${part(messageId)}/cancel`);
  }

  createSession(session) {
    return this.#rest("POST", "/sessions", session);
  }

  session(sessionId) {
    return this.#rest("GET", `/sessions/${part(sessionId)}`);
  }

  sessions(query) {
    return this.#rest("GET", `/sessions${queryOf(query)}`);
  }

  updateSession(sessionId, patch) {
    return this.#rest("PATCH", `/sessions/${part(sessionId)}`, patch);
  }

  deleteSession(sessionId) {
    return this.#rest("DELETE", `/sessions/${part(sessionId)}`);
  }

  /** Returns a page of messages. watch() from the stream.cursor of the newest page continues without gap or repetition. */
  history(sessionId, query) {
    return this.#rest("GET", `/sessions/${part(sessionId)}/messages${queryOf(query)}`);
  }

  message(sessionId, messageId) {
    return this.#rest("GET", `/sessions/${part(sessionId)}/messages/${part(messageId)}`);
  }

  clear(sessionId) {
    return this.#rest("DELETE", `/sessions/${part(sessionId)}/messages`);
  }

  /** Returns the prompt that a message would produce, with reasons. Changes nothing, and calls no model except the embedding
   * model of a semantic session. Throws `context_overflow` if sending the message would. */
  preview(sessionId, content, { role } = {}) {
    return this.#rest("POST", `/sessions/${part(sessionId)}/context`, { content, role });
  }

  /** Returns the account's usage in the current calendar month (UTC), with its limits. */
  usage() {
    return this.#rest("GET", "/analytics/usage");
  }

  /** Returns activity from startDate to endDate (exclusive; ISO 8601 with a zone; at most 400 days), in total and as a series. */
  metrics({ startDate, endDate, granularity }) {
    return this.#rest("GET", `/analytics/metrics${queryOf({ startDate, endDate, granularity })}`);
  }

  /** Sends a message and resolves with the frame `sent`. If the connection is lost, repeats the request with the same idempotency
   * key, so that the message takes effect once. */
  async #begin(connection, subscription, content, { role, metadata, onBusy, idempotencyKey = randomKey(), signal }) {
    const frame = { type: "send", sessionId: subscription.sessionId, content, role, metadata, onBusy, idempotencyKey };
    for (let attempt = 1; ; attempt++) {
      while (!subscription.confirmed) await abortable(subscription.ready(), signal);
      try {
        return await abortable(connection.request(frame), signal);
      } catch (error) {
        if (error.code !== "connection_lost" || attempt === SEND_ATTEMPTS) throw error;
      }
    }
  }

  /** Handles the events that end a session or clear its history. Throws if the reply is gone. Resolves with the reply's end event
   * if the server will not send it, else with null. */
  async #unseenEnd(event, messageId) {
    const { type, sessionId } = event;
    if (!["deleted", "expired", "cleared"].includes(type)) return null;
    const gone = new ParleyError(`session_${type}`, `The session was ${type} before the reply ended.`);
    if (type !== "cleared" || !this.#key) throw gone;
    let message;
    try {
      message = await this.message(sessionId, messageId); // the reply may have begun after the history was cleared
    } catch (error) {
      if (error.status === 404) throw gone;
      if (!event.recovered) throw error; // the client may have missed the reply's end event
      return null; // the end event of the reply or of the session will still arrive
    }
    if (event.recovered || message.status === "streaming") return null;
    return { type: "end", sessionId, messageId, status: message.status, message, error: message.error };
  }

  /** A socket has one subscription per session. A caller that starts at another cursor gets a second socket, because a replay on
   * the first socket would repeat events for other callers. */
  #connectionFor(sessionId, after) {
    const shared = this.#connections.find((connection) => connection.fits(sessionId, after));
    if (shared) return shared;
    const extra = new Connection(() => this.#dial(), () => {}, () => {
      this.#connections.splice(this.#connections.indexOf(extra), 1);
      extra.close();
    });
    this.#connections.push(extra);
    return extra;
  }

  /** Opens a WebSocket with a new ticket, because a ticket is valid for one handshake. */
  async #dial() {
    const WebSocket = this.#WebSocket;
    if (!WebSocket) throw new ParleyError("no_websocket", "No WebSocket in this environment (Node 20 has none): pass one in the options.");
    const ticket = await this.#ticket();
    return new WebSocket(`${this.#baseURL.replace(/^http/, "ws")}/stream`, [PROTOCOL, `ticket.${ticket}`]);
  }

  #report(state) {
    this.#state = state;
    if (state.state === "closed") {
      for (const event of ["online", "offline", "pageshow"]) globalThis.removeEventListener?.(event, this.#wake);
      globalThis.document?.removeEventListener("visibilitychange", this.#wake);
    }
    this.onstate?.(state);
  }

  async #rest(method, path, body, signal) {
    if (!this.#key) throw new ParleyError("no_key", "This call needs a key, and the client has only tickets.");
    const headers = { Authorization: `Bearer ${this.#key}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response, answer;
    try {
      response = await this.#fetch(this.#baseURL + path, { method, headers, body: body && JSON.stringify(body), signal, cache: "no-store" });
      answer = await response.text();
    } catch (cause) {
      throw new ParleyError("network_error", "The server cannot be reached.", { cause });
    }
    const parsed = parse(answer);
    if (!response.ok || parsed === undefined) throw errorOf(parsed, response.status);
    return parsed;
  }
}

/** Encodes an id as one path segment. Ids may come from untrusted addresses and must not lead to other API paths. */
function part(id) {
  return encodeURIComponent(id);
}

/** Returns 32 random hexadecimal digits. crypto.randomUUID exists only on https and localhost. */
function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // for example a proxy's HTML error page
  }
}

function queryOf(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  return given.length > 0 ? `?${new URLSearchParams(given)}` : "";
}

/** Resolves or rejects like promise. If the signal aborts first, rejects with the signal's reason. */
function abortable(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
