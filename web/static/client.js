// The JavaScript client of Parley and its stream protocol, parley.v1. No dependencies; types in client.d.ts.
//
//     const client = new Client({ baseURL: "http://127.0.0.1:8420/v1", key });
//     for await (const event of client.send(sessionId, "Hi")) {
//       if (event.type === "delta") process.stdout.write(event.delta);
//     }
//
// A viewer is an offset into a text, so a cut is nothing to the caller: the client reconnects, names the last cursor of
// every session it watches, and drops what it was shown before. What was not confirmed is sent again under the same
// idempotency key. stream/client is the same in Go. track.js is that bookkeeping, connection.js the socket.

import { Connection, HANDSHAKE_MS } from "./connection.js";
import { ParleyError, errorOf } from "./track.js";

export { ParleyError, Track, utf8Length } from "./track.js";

const PROTOCOL = "parley.v1";
const SEND_ATTEMPTS = 5; // of one message; after those the server is called unreachable

/** Client talks to one service with one key. Its socket is opened when it is first needed and shared by all sessions. */
export class Client {
  /** Called with each new state of the connection. */
  onstate = null;
  #baseURL;
  #key;
  #fetch;
  #WebSocket;
  #ticket;
  #state = { state: "idle" };
  #connections = []; // the first is the one that counts, see #connectionFor
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

  /** Opens the socket now rather than with the first call that needs it. */
  connect() {
    this.#connections[0].open();
  }

  /** Tries to reconnect at once, or makes sure that the connection is alive. A browser's own events call it as well. */
  wake() {
    if (globalThis.document?.visibilityState === "hidden" || this.#state.state === "idle") return;
    for (const connection of this.#connections) connection.wake();
  }

  /** Ends everything; iterations that are under way throw. */
  close() {
    for (const connection of this.#connections.splice(1)) connection.close();
    this.#connections[0].close();
  }

  /** All events of a session: those after a cursor, or from now on. Watching begins with the call. */
  watch(sessionId, { after, signal } = {}) {
    return this.#connectionFor(sessionId, after).join(sessionId, after, signal).watcher;
  }

  /** Sends a message, once, and iterates the events of the reply, to its end. Nothing is sent before the first next().
   * Leaving the loop, or aborting the signal, only leaves: the reply goes on, and cancel() stops it. */
  async *send(sessionId, content, options = {}) {
    const connection = this.#connectionFor(sessionId);
    // Subscribed first, so that the reply cannot begin unseen.
    const { watcher, subscription } = connection.join(sessionId, undefined, options.signal);
    try {
      const messageId = await this.#begin(connection, subscription, content, options);
      for await (const event of watcher) {
        if (event.messageId === messageId) yield event;
        if (event.messageId === messageId && event.type === "end") return;
        const unseen = await this.#unseenEnd(event, messageId);
        if (unseen) return void (yield unseen);
      }
    } finally {
      watcher.return();
    }
  }

  /** Sends a message and resolves with the reply's id once its turn has begun: for those who watch the session anyway. */
  async start(sessionId, content, options = {}) {
    const connection = this.#connectionFor(sessionId);
    const { watcher, subscription } = connection.join(sessionId, undefined, options.signal);
    try {
      return { messageId: await this.#begin(connection, subscription, content, options) };
    } finally {
      watcher.return();
    }
  }

  /** Stops a reply and resolves with the message as it ended. It may be repeated, so a cut in between is no error. */
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

  deleteSession(sessionId) {
    return this.#rest("DELETE", `/sessions/${part(sessionId)}`);
  }

  /** A page of messages. Of the newest page, stream.cursor is where to watch on from: nothing missed, nothing twice. */
  history(sessionId, query) {
    return this.#rest("GET", `/sessions/${part(sessionId)}/messages${queryOf(query)}`);
  }

  message(sessionId, messageId) {
    return this.#rest("GET", `/sessions/${part(sessionId)}/messages/${part(messageId)}`);
  }

  clear(sessionId) {
    return this.#rest("DELETE", `/sessions/${part(sessionId)}/messages`);
  }

  /** The dry run of the context: what a message would be answered from, and why. Nothing is sent to the model, nothing
   * changes; where sending it would be `context_overflow`, so is this. */
  preview(sessionId, content, { role } = {}) {
    return this.#rest("POST", `/sessions/${part(sessionId)}/context`, { content, role });
  }

  /** What the account has used of its tier's limits since the month began (UTC). */
  usage() {
    return this.#rest("GET", "/analytics/usage");
  }

  /** What happened from startDate up to endDate (ISO 8601, with a zone; 400 days at most), as a whole and in a series. */
  metrics({ startDate, endDate, granularity }) {
    return this.#rest("GET", `/analytics/metrics${queryOf({ startDate, endDate, granularity })}`);
  }

  /** Sends a message and resolves with the reply's id. Where a cut leaves open whether it was taken, it is sent again
   * under the same name, so that it takes effect once. */
  async #begin(connection, subscription, content, { role, metadata, onBusy, idempotencyKey = randomName(), signal }) {
    const frame = { type: "send", sessionId: subscription.sessionId, content, role, metadata, onBusy, idempotencyKey };
    for (let attempt = 1; ; attempt++) {
      while (!subscription.confirmed) await abortable(subscription.ready(), signal);
      try {
        return (await abortable(connection.request(frame), signal)).messageId;
      } catch (error) {
        if (error.code !== "connection_lost" || attempt === SEND_ATTEMPTS) throw error;
      }
    }
  }

  /** What an event of the session means for a reply: it throws if that went with it, and resolves with the reply's end
   * if that will not be shown any more. */
  async #unseenEnd(event, messageId) {
    const { type, sessionId } = event;
    if (!["deleted", "expired", "cleared"].includes(type)) return null;
    const gone = new ParleyError(`session_${type}`, `The session was ${type} before the reply ended.`);
    if (type !== "cleared" || !this.#key) throw gone;
    let message;
    try {
      message = await this.message(sessionId, messageId); // it may have begun after the clearing
    } catch (error) {
      if (error.status === 404) throw gone;
      if (!event.recovered) throw error; // its end may lie behind us
      return null; // its end or the session's will tell
    }
    if (event.recovered || message.status === "streaming") return null;
    return { type: "end", sessionId, messageId, status: message.status, message, error: message.error };
  }

  /** A socket carries one subscription to a session. Who wants to begin elsewhere than that stands gets a socket of
   * his own: replaying on the first would show its watchers the past again. */
  #connectionFor(sessionId, after) {
    const fitting = this.#connections.find((connection) => connection.fits(sessionId, after));
    if (fitting) return fitting;
    const extra = new Connection(() => this.#dial(), () => {}, () => {
      this.#connections.splice(this.#connections.indexOf(extra), 1);
      extra.close();
    });
    this.#connections.push(extra);
    return extra;
  }

  /** A ticket is good for one handshake, so each attempt takes a new one. */
  async #dial() {
    const WebSocket = this.#WebSocket;
    if (!WebSocket) throw new ParleyError("no_websocket", "There is no WebSocket here (Node 20 has none): hand one to the client.");
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
    if (!this.#key) throw new ParleyError("no_key", "This needs a key; the client was made with tickets only.");
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

/** An id as one part of a path: it may come from an address that somebody else has made, and must not lead elsewhere in the API. */
function part(id) {
  return encodeURIComponent(id);
}

/** 32 random digits. crypto.randomUUID would want https. */
function randomName() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // a proxy's page, not ours
  }
}

function queryOf(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  return given.length > 0 ? `?${new URLSearchParams(given)}` : "";
}

/** promise, or the rejection of signal if that comes first. */
function abortable(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
