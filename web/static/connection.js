// Keeps one WebSocket open: reconnects with backoff, subscribes again at each session's cursor, detects dead connections, and
// delivers events to iterators. Makes no REST calls; client.js opens the WebSocket with a ticket.

import { GAP, ParleyError, Track, errorOf } from "./track.js";

const BACKOFF_MS = 500; // maximum of the first delay; doubles with each attempt. Delays are random, to spread many clients
const BACKOFF_CAP_MS = 15_000; // a client finds a restarted server within 15 s
const FULL_MS = 5_000; // minimum delay after close code 4429, too many connections
/** Timeout from opening the socket to `welcome`: several round trips on a slow mobile network. */
export const HANDSHAKE_MS = 10_000;
const PERMANENT = ["no_key", "no_websocket"]; // errors that a retry cannot fix
const PROBE_MS = 5_000; // timeout from a ping to any frame: far above a round trip, and short for a waiting user

/** The async iterator of one caller. Queued deltas of a message are joined, so a slow caller gets fewer, larger deltas. */
class EventIterator {
  #queue = [];
  #waiting = [];
  #ended = false;
  #error = null;
  #onend;

  constructor(signal, onend) {
    const abort = () => {
      this.#queue = [];
      this.end(signal.reason);
    };
    this.#onend = () => {
      signal?.removeEventListener("abort", abort);
      onend(this);
    };
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort);
  }

  get ended() {
    return this.#ended;
  }

  push(event) {
    if (this.#ended) return;
    const waiting = this.#waiting.shift();
    if (waiting) return waiting.resolve({ value: event, done: false });
    const last = this.#queue.at(-1);
    if (event.type !== "delta" || last?.type !== "delta" || last.messageId !== event.messageId || last.end !== event.offset) {
      return void this.#queue.push(event);
    }
    // Iterators share event objects, so the last event must not be changed.
    this.#queue[this.#queue.length - 1] = { ...event, offset: last.offset, delta: last.delta + event.delta };
  }

  /** Ends the iteration after the queued events. If error is given, the iteration then throws it. */
  end(error = null) {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = this.#waiting.length > 0 ? null : error;
    for (const waiting of this.#waiting.splice(0)) error ? waiting.reject(error) : waiting.resolve({ value: undefined, done: true });
    this.#onend();
  }

  async next() {
    if (this.#queue.length > 0) return { value: this.#queue.shift(), done: false };
    if (!this.#ended) return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
    const error = this.#error;
    this.#error = null;
    if (error) throw error;
    return { value: undefined, done: true };
  }

  async return(value) {
    this.#queue = [];
    this.end();
    this.#error = null;
    return { value, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}

/** The subscription to one session on a connection, and the iterators that it feeds. */
class Subscription {
  iterators = new Set();
  attempts = 0;
  confirmed = false; // frames before `subscribed` belong to an older subscription
  gapCursor = ""; // the cursor after which missing text was last requested
  cursorRejected = false; // the server does not know the cursor: subscribe without a cursor and report `cleared`
  #waiting = [];

  constructor(sessionId, after) {
    this.sessionId = sessionId;
    this.track = new Track(after);
  }

  ready() {
    if (this.confirmed) return Promise.resolve();
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  confirm() {
    this.confirmed = true;
    for (const waiting of this.#waiting.splice(0)) waiting.resolve();
  }

  publish(event) {
    for (const iterator of this.iterators) iterator.push(event);
  }

  end(error) {
    for (const waiting of this.#waiting.splice(0)) waiting.reject(error ?? new ParleyError("closed", "The subscription has ended."));
    for (const iterator of this.iterators) iterator.end(error);
  }
}

/** Opens a WebSocket on first use and replaces it after a loss, until close(). */
export class Connection {
  /** Whether the server has sent `welcome` and the socket is open. */
  live = false;
  #dial;
  #report;
  #onidle;
  #socket = null;
  #dialling = false;
  #closed = null; // after close(): the error that later calls throw
  #wasLive = false;
  #attempt = 0;
  #timer; // of the current phase: handshake, heartbeat, ping, or delay before the next attempt
  #heartbeatMs = 25_000; // the server's value replaces it
  #received = false; // a frame has arrived since the timer was set
  #drainMs = null; // delay given by a draining server
  #ids = 0;
  #pending = new Map(); // request id → { resolve, reject }
  #subscriptions = new Map(); // sessionId → Subscription

  /** dial() resolves with a WebSocket; report(state) is called with each new state; onidle() when the last subscription has
   * ended. */
  constructor(dial, report, onidle) {
    this.#dial = dial;
    this.#report = report;
    this.#onidle = onidle;
  }

  open() {
    if (this.#closed) throw this.#closed;
    if (this.#socket || this.#dialling) return;
    clearTimeout(this.#timer);
    this.#dialling = true;
    this.#report({ state: "connecting", attempt: this.#attempt });
    this.#dial().then(
      (socket) => this.#adopt(socket),
      (error) => {
        this.#dialling = false;
        if (this.#closed) return;
        // Another attempt with the same key, or without a key, would fail in the same way.
        if (error.status === 401 || error.status === 403 || PERMANENT.includes(error.code)) this.close(error);
        else this.#retry(error, (error.retryAfter ?? 0) * 1000);
      },
    );
  }

  /** Reconnects at once, or probes a live socket, because the network may have changed. */
  wake() {
    if (this.live) this.#probe();
    else if (!this.#closed && !this.#socket && !this.#dialling) this.open();
  }

  close(error) {
    if (this.#closed) return;
    this.#closed = error ?? new ParleyError("closed", "The client was closed.");
    this.#abandon(this.#closed);
    const subscriptions = [...this.#subscriptions.values()];
    this.#subscriptions.clear();
    for (const subscription of subscriptions) subscription.end(this.#closed);
    this.#report({ state: "closed", error });
  }

  /** Whether an iterator that starts at `after` can share this connection. */
  fits(sessionId, after) {
    const subscription = this.#subscriptions.get(sessionId);
    return !subscription || after === undefined || after === subscription.track.cursor;
  }

  /** Returns a new iterator of the session's events, and the subscription that feeds it. */
  join(sessionId, after, signal) {
    this.open();
    let subscription = this.#subscriptions.get(sessionId);
    if (!subscription) {
      subscription = new Subscription(sessionId, after);
      this.#subscriptions.set(sessionId, subscription);
      if (this.live) this.#subscribe(subscription);
    }
    const iterator = new EventIterator(signal, (ended) => this.#leave(subscription, ended));
    if (!iterator.ended) subscription.iterators.add(iterator);
    return { iterator, subscription };
  }

  /** Sends a request frame and resolves with the response. If the socket closes first, nobody knows whether the request took
   * effect. The promise then rejects with connection_lost, without a retry. */
  request(frame) {
    return new Promise((resolve, reject) => this.#call(frame, resolve, reject));
  }

  #call(frame, resolve, reject) {
    if (!this.live) return reject(lost());
    const id = String(++this.#ids);
    this.#pending.set(id, { resolve, reject });
    this.#socket.send(JSON.stringify({ ...frame, id }));
  }

  #adopt(socket) {
    this.#dialling = false;
    if (this.#closed) return socket.close();
    this.#socket = socket;
    // An abandoned socket may still fire events.
    const ifCurrent = (handle) => (event) => this.#socket === socket && handle(event);
    socket.onmessage = ifCurrent((event) => this.#receive(event.data));
    socket.onclose = ifCurrent((event) => this.#lost(event.code, event.reason));
    // The WebSocket of Node 20 fires no "close" after a failed handshake. In browsers, "close" follows, with the same code 1006.
    socket.onerror = ifCurrent(() => this.#lost(1006, ""));
    this.#timer = setTimeout(() => this.#lost(0, `no welcome within ${HANDSHAKE_MS / 1000} s`), HANDSHAKE_MS);
  }

  #receive(data) {
    this.#received = true;
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      return; // not parley.v1
    }
    if (frame.type === "welcome") return this.#welcome(frame);
    if (frame.type === "draining") return void (this.#drainMs = frame.reconnectAfterMs);
    this.#attempt = 0; // not reset at `welcome`: a server that welcomes and closes must not cause a tight loop
    if (frame.replyTo === undefined) return this.#deliver(frame);
    const pending = this.#pending.get(frame.replyTo);
    this.#pending.delete(frame.replyTo);
    if (frame.type === "error") pending?.reject(errorOf(frame));
    else pending?.resolve(frame);
  }

  #welcome(frame) {
    this.live = true;
    this.#heartbeatMs = (frame.heartbeatSeconds ?? 25) * 1000;
    this.#beat();
    for (const subscription of this.#subscriptions.values()) this.#subscribe(subscription);
    this.#report({ state: "live", resumed: this.#wasLive });
    this.#wasLive = true;
  }

  /** The browser answers WebSocket pings without telling JavaScript, so a quiet socket is probed with a ping frame of the
   * protocol. */
  #beat() {
    this.#received = false;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (this.#received ? this.#beat() : this.#probe()), this.#heartbeatMs);
  }

  #probe() {
    this.#received = false;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (this.#received ? this.#beat() : this.#lost(0, `no response to a ping within ${PROBE_MS / 1000} s`)), PROBE_MS);
    this.#call({ type: "ping" }, () => {}, () => {});
  }

  #subscribe(subscription) {
    const { sessionId, track } = subscription;
    subscription.confirmed = false;
    subscription.attempts++;
    this.#call({ type: "subscribe", sessionId, after: track.cursor }, (frame) => {
      if (subscription.cursorRejected || (frame.recovered === false && track.cursor !== undefined)) {
        // Messages after the cursor are gone: the caller starts again from frame.cursor.
        subscription.cursorRejected = false;
        track.reset(frame.cursor);
        subscription.publish({ type: "cleared", sessionId, recovered: false });
      }
      track.cursor ??= frame.cursor;
      subscription.confirm();
    }, (error) => this.#refused(subscription, error));
  }

  /** Handles a failed subscribe. After a lost connection, the next `welcome` subscribes again. */
  #refused(subscription, error) {
    if (error.code === "connection_lost") return;
    if (error.code === "validation_error" && error.field === "after" && subscription.track.cursor !== undefined) {
      // The server has no record of the cursor: its store was restored or lost writes. Without a cursor this error cannot recur.
      subscription.track.reset(null);
      subscription.cursorRejected = true;
      if (this.live) this.#subscribe(subscription);
      return;
    }
    const temporary = ["service_unavailable", "internal_error", "rate_limit_exceeded", "session_busy"].includes(error.code);
    if (!temporary) return this.#finish(subscription, error);
    const { attempts } = subscription;
    setTimeout(() => {
      const wanted = this.#subscriptions.get(subscription.sessionId) === subscription && subscription.attempts === attempts;
      if (wanted && this.live) this.#subscribe(subscription);
    }, Math.max((error.retryAfter ?? 0) * 1000, BACKOFF_MS * (1 + Math.random())));
  }

  #deliver(frame) {
    const subscription = this.#subscriptions.get(frame.sessionId);
    if (!subscription?.confirmed) return;
    const { track } = subscription;
    let event = track.accept(frame);
    if (event === GAP) {
      // Request the missing text once per cursor. If the server does not send it, the terminal frame contains it.
      if (track.cursor !== undefined && subscription.gapCursor !== track.cursor) {
        subscription.gapCursor = track.cursor;
        return this.#subscribe(subscription);
      }
      event = track.accept(frame, true);
    }
    if (!event) return;
    subscription.publish(event);
    if (event.type === "deleted" || event.type === "expired") this.#finish(subscription, null);
  }

  #finish(subscription, error) {
    if (this.#subscriptions.get(subscription.sessionId) === subscription) this.#subscriptions.delete(subscription.sessionId);
    subscription.end(error);
    if (this.#subscriptions.size === 0) this.#onidle();
  }

  #leave(subscription, iterator) {
    subscription.iterators.delete(iterator);
    if (subscription.iterators.size > 0 || this.#subscriptions.get(subscription.sessionId) !== subscription) return;
    if (this.live) this.#call({ type: "unsubscribe", sessionId: subscription.sessionId }, () => {}, () => {});
    this.#finish(subscription, null);
  }

  /** The socket closed, or was abandoned (code 0). */
  #lost(code, reason) {
    this.#abandon(lost());
    if (code === 4401) {
      return this.close(new ParleyError("invalid_token", reason || "The key was revoked or has expired.", { status: 401, closeCode: code }));
    }
    this.#retry(new ParleyError("connection_lost", reason || "The connection was lost.", { closeCode: code }), code === 4429 ? FULL_MS : 0);
  }

  #abandon(error) {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    this.live = false;
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject } of pending) reject(error);
    for (const subscription of this.#subscriptions.values()) subscription.confirmed = false;
    socket?.close();
  }

  #retry(error, floorMs) {
    const spread = Math.random() * Math.min(BACKOFF_CAP_MS, BACKOFF_MS * 2 ** this.#attempt);
    // A draining server sets the delay, so that a load balancer can notice the drain first.
    const delay = Math.round(this.#drainMs ?? Math.max(floorMs, spread));
    this.#drainMs = null;
    this.#attempt++;
    this.#report({ state: "reconnecting", retryInMs: delay, retryAt: Date.now() + delay, attempt: this.#attempt, error });
    this.#timer = setTimeout(() => this.open(), delay);
  }
}

function lost() {
  return new ParleyError("connection_lost", "The connection was lost before the server responded. The request may or may not have taken effect.");
}
