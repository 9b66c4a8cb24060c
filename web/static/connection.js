// The socket and its successors: it reconnects, subscribes again where each session stood, and hands events to watchers.
// It knows no REST and no ticket; client.js dials.

import { GAP, ParleyError, Track, errorOf } from "./track.js";

const BACKOFF_MS = 500; // doubled with each attempt, drawn from 0 up to it: a herd of clients must not come back at once
const BACKOFF_CAP_MS = 15_000;
const FULL_MS = 5_000; // the least wait where the server said that there are too many of us
/** From dialling to the welcome. */
export const HANDSHAKE_MS = 10_000;
const NEVER = ["no_key", "no_websocket"]; // what another attempt cannot mend
const PROBE_MS = 5_000; // from a ping to any frame

/** Watcher is the async iterator that a caller holds. A caller that does not keep up gets fewer, larger deltas. */
class Watcher {
  #queue = [];
  #takers = [];
  #over = false;
  #error = null;
  #leave;

  constructor(signal, leave) {
    const abort = () => {
      this.#queue = [];
      this.end(signal.reason);
    };
    this.#leave = () => {
      signal?.removeEventListener("abort", abort);
      leave(this);
    };
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort);
  }

  get over() {
    return this.#over;
  }

  push(event) {
    if (this.#over) return;
    const taker = this.#takers.shift();
    if (taker) return taker.resolve({ value: event, done: false });
    const last = this.#queue.at(-1);
    if (event.type !== "delta" || last?.type !== "delta" || last.messageId !== event.messageId || last.end !== event.offset) {
      return void this.#queue.push(event);
    }
    // Events are shared among watchers: a new one, rather than the last one changed.
    this.#queue[this.#queue.length - 1] = { ...event, offset: last.offset, delta: last.delta + event.delta };
  }

  /** Ends the iteration, after what is queued; with an error it throws that. */
  end(error = null) {
    if (this.#over) return;
    this.#over = true;
    this.#error = this.#takers.length > 0 ? null : error;
    for (const taker of this.#takers.splice(0)) error ? taker.reject(error) : taker.resolve({ value: undefined, done: true });
    this.#leave();
  }

  async next() {
    if (this.#queue.length > 0) return { value: this.#queue.shift(), done: false };
    if (!this.#over) return new Promise((resolve, reject) => this.#takers.push({ resolve, reject }));
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

/** Subscription is a session on a socket, and all who watch it there. */
class Subscription {
  watchers = new Set();
  attempts = 0;
  confirmed = false; // frames before `subscribed` belong to an older subscription
  mended = ""; // the cursor at which a gap was last mended
  stranger = false; // the server does not know our cursor: subscribe without one, and say so
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
    for (const watcher of this.watchers) watcher.push(event);
  }

  end(error) {
    for (const waiting of this.#waiting.splice(0)) waiting.reject(error ?? new ParleyError("closed", "The session is no longer watched."));
    for (const watcher of this.watchers) watcher.end(error);
  }
}

/** Connection is one socket and its successors. It is dialled when it is first needed, and then kept until close(). */
export class Connection {
  /** Welcomed, and not lost since. */
  live = false;
  #dial;
  #report;
  #emptied;
  #socket = null;
  #dialling = false;
  #closed = null; // the error that every further call gets
  #wasLive = false;
  #attempt = 0;
  #timer; // of the phase it is in: the handshake, the heartbeat, or the wait before the next attempt
  #heartbeatMs = 25_000;
  #heard = false; // a frame came since the timer was set
  #drainMs = null;
  #ids = 0;
  #pending = new Map(); // id → what to do with the answer
  #subscriptions = new Map(); // sessionId → Subscription

  /** dial makes a WebSocket; report is told of each state; emptied is called when nothing is watched any more. */
  constructor(dial, report, emptied) {
    this.#dial = dial;
    this.#report = report;
    this.#emptied = emptied;
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
        // With the same key, or none, it would be refused for ever.
        if (error.status === 401 || error.status === 403 || NEVER.includes(error.code)) this.close(error);
        else this.#retry(error, (error.retryAfter ?? 0) * 1000);
      },
    );
  }

  /** There is reason to believe that the network changed: try at once, or see whether the socket is still alive. */
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

  /** Whether a watcher that wants to begin at after would miss nothing on this connection. */
  fits(sessionId, after) {
    const subscription = this.#subscriptions.get(sessionId);
    return !subscription || after === undefined || after === subscription.track.cursor;
  }

  /** Returns a watcher of the session, and the subscription that feeds it. */
  join(sessionId, after, signal) {
    this.open();
    let subscription = this.#subscriptions.get(sessionId);
    if (!subscription) {
      subscription = new Subscription(sessionId, after);
      this.#subscriptions.set(sessionId, subscription);
      if (this.live) this.#subscribe(subscription);
    }
    const watcher = new Watcher(signal, (leaving) => this.#leave(subscription, leaving));
    if (!watcher.over) subscription.watchers.add(watcher);
    return { watcher, subscription };
  }

  /** Sends a request and resolves with its answer. Where the socket dies first, nobody knows whether it was carried
   * out, so it is not sent again: it rejects with connection_lost. */
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
    // A socket that was given up may still speak; it is not listened to.
    const own = (handle) => (event) => this.#socket === socket && handle(event);
    socket.onmessage = own((event) => this.#receive(event.data));
    socket.onclose = own((event) => this.#lost(event.code, event.reason));
    // A close follows, but for the WebSocket of Node 20, where a handshake fails. None follows that would say more.
    socket.onerror = own(() => this.#lost(1006, ""));
    this.#timer = setTimeout(() => this.#lost(0, "no welcome"), HANDSHAKE_MS);
  }

  #receive(data) {
    this.#heard = true;
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      return; // not parley.v1
    }
    if (frame.type === "welcome") return this.#welcome(frame);
    if (frame.type === "draining") return void (this.#drainMs = frame.reconnectAfterMs);
    this.#attempt = 0; // only now: a server that welcomes and hangs up must not be called in a tight loop
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

  /** The server's pings are answered below JavaScript and are not seen here, so silence must be asked about. */
  #beat() {
    this.#heard = false;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (this.#heard ? this.#beat() : this.#probe()), this.#heartbeatMs);
  }

  #probe() {
    this.#heard = false;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (this.#heard ? this.#beat() : this.#lost(0, "no answer to a ping")), PROBE_MS);
    this.#call({ type: "ping" }, () => {}, () => {});
  }

  #subscribe(subscription) {
    const { sessionId, track } = subscription;
    subscription.confirmed = false;
    subscription.attempts++;
    this.#call({ type: "subscribe", sessionId, after: track.cursor }, (frame) => {
      if (subscription.stranger || (frame.recovered === false && track.cursor !== undefined)) {
        // What lay after the cursor is not all there any more: the caller begins anew, from here.
        subscription.stranger = false;
        track.reset(frame.cursor);
        subscription.publish({ type: "cleared", sessionId, recovered: false });
      }
      track.cursor ??= frame.cursor;
      subscription.confirm();
    }, (error) => this.#refused(subscription, error));
  }

  /** The server would not subscribe, or the socket died first, which the next welcome mends. */
  #refused(subscription, error) {
    if (error.code === "connection_lost") return;
    if (error.code === "validation_error" && error.field === "after" && subscription.track.cursor !== undefined) {
      // The server never told us that cursor, as far as it knows: its store was restored, or has lost writes. Only once, for
      // without a cursor this cannot be refused again.
      subscription.track.reset(null);
      subscription.stranger = true;
      if (this.live) this.#subscribe(subscription);
      return;
    }
    const passing = ["service_unavailable", "internal_error", "rate_limit_exceeded", "session_busy"].includes(error.code);
    if (!passing) return this.#finish(subscription, error);
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
      // Asked once for what was left out; where it stays away, the terminal frame brings it.
      if (track.cursor !== undefined && subscription.mended !== track.cursor) {
        subscription.mended = track.cursor;
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
    if (this.#subscriptions.size === 0) this.#emptied();
  }

  #leave(subscription, watcher) {
    subscription.watchers.delete(watcher);
    if (subscription.watchers.size > 0 || this.#subscriptions.get(subscription.sessionId) !== subscription) return;
    if (this.live) this.#call({ type: "unsubscribe", sessionId: subscription.sessionId }, () => {}, () => {});
    this.#finish(subscription, null);
  }

  /** The socket closed, or is given up with code 0. */
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
    // A server that goes away in good order says when to come back, and has spread its clients itself.
    const delay = Math.round(this.#drainMs ?? Math.max(floorMs, spread));
    this.#drainMs = null;
    this.#attempt++;
    this.#report({ state: "reconnecting", retryInMs: delay, retryAt: Date.now() + delay, attempt: this.#attempt, error });
    this.#timer = setTimeout(() => this.open(), delay);
  }
}

function lost() {
  return new ParleyError("connection_lost", "The connection was lost before the server answered: it may or may not have been carried out.");
}
