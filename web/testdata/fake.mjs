// A fake parley.v1 server in memory and a fake clock. A test chooses after how many frames a socket of the server breaks.

/** Replaces setTimeout, clearTimeout and Date.now. Time passes only in advance(). */
export class Clock {
  now = 1_000_000;
  #timers = new Map();
  #ids = 0;
  #originals = { setTimeout, clearTimeout, now: Date.now };

  install() {
    globalThis.setTimeout = (run, ms = 0) => (this.#timers.set(++this.#ids, { run, at: this.now + ms }), this.#ids);
    globalThis.clearTimeout = (id) => this.#timers.delete(id);
    Date.now = () => this.now;
    return this;
  }

  uninstall() {
    Object.assign(globalThis, { setTimeout: this.#originals.setTimeout, clearTimeout: this.#originals.clearTimeout });
    Date.now = this.#originals.now;
  }

  get waiting() {
    return this.#timers.size;
  }

  async advance(ms) {
    const until = this.now + ms;
    for (;;) {
      const [id, next] = [...this.#timers].sort((a, b) => a[1].at - b[1].at)[0] ?? [];
      if (!next || next.at > until) break;
      this.#timers.delete(id);
      this.now = Math.max(this.now, next.at);
      next.run();
      await settled();
    }
    this.now = until;
  }
}

/** Resolves when all promises have settled, except those that wait for the clock or for frames. */
export async function settled() {
  for (let i = 0; i < 4; i++) await new Promise(setImmediate);
}

/** Iterates in the background. Returns { events, done, error } and updates it with each event and at the end of the iteration. */
export function collect(iteration) {
  const seen = { events: [], done: false, error: null };
  (async () => {
    try {
      for await (const event of iteration) seen.events.push(event);
    } catch (error) {
      seen.error = error;
    }
    seen.done = true;
  })();
  return seen;
}

export const SESSION = "session_0000000000000001";
export const bytes = (text) => Buffer.byteLength(text);

/** A server with one session. It sends the messages of the session to each subscribed socket, from the cursor of the socket. */
export class Server {
  messages = []; // { messageId, role, content, status }
  sockets = []; // every socket ever opened
  requests = []; // all frames from clients, in order
  calls = []; // all fetches
  answers = {}; // method and path, such as "POST /stream/tickets" → { status, body } or an Error; replaces the default response
  overlap = () => 0; // the number of bytes before the cursor at which a replay starts
  chunk = (rest) => [...rest].slice(0, 3).join("").length; // the length of the next delta in UTF-16 units; splits no character
  allowance = () => Infinity; // the number of frames that the next socket delivers before it breaks
  recovered = true; // the value of `recovered` in `subscribed`
  silent = false; // if true, the server ignores all frames
  onrequest = null; // (socket, frame) → true if it handled the frame

  constructor() {
    const server = this;
    this.WebSocket = class {
      constructor(url, protocols) {
        Object.assign(this, { url, protocols, left: server.allowance(), open: true, position: null });
        server.sockets.push(this);
        setImmediate(() => server.frame(this, { type: "welcome", protocol: "parley.v1", heartbeatSeconds: 25 }));
      }
      send(data) {
        if (this.open) server.receive(this, JSON.parse(data));
      }
      close() {
        this.open = false;
        this.closed = true;
      }
    };
    this.fetch = async (url, { method, headers, body }) => {
      const { pathname, search } = new URL(url);
      const path = pathname.replace("/v1", "");
      this.calls.push({ method, path, search, headers, body });
      const answer = this.answers[`${method} ${path}`] ?? { status: 200, body: { ticket: `t${this.calls.length}` } };
      if (answer instanceof Error) throw answer;
      // A plain object, because settled() cannot wait for the text() of a Response.
      return { ok: answer.status < 400, status: answer.status, text: async () => JSON.stringify(answer.body) };
    };
  }

  get socket() {
    return this.sockets.at(-1);
  }

  options(extra) {
    return { baseURL: "http://parley.test/v1", key: "svc_test_x", fetch: this.fetch, WebSocket: this.WebSocket, ...extra };
  }

  frame(socket, frame) {
    if (!socket.open) return;
    if (socket.left-- <= 0) return this.break(socket);
    socket.onmessage?.({ data: JSON.stringify(frame) });
  }

  break(socket, code = 1006, reason = "") {
    if (!socket.open) return;
    socket.open = false;
    socket.onclose?.({ code, reason });
  }

  receive(socket, frame) {
    this.requests.push(frame);
    queueMicrotask(() => {
      if (this.silent || this.onrequest?.(socket, frame)) return;
      if (frame.type === "ping") this.frame(socket, { type: "pong", replyTo: frame.id });
      if (frame.type === "unsubscribe") socket.position = null;
      if (frame.type === "subscribe") this.#subscribe(socket, frame);
    });
  }

  #subscribe(socket, { id, sessionId, after }) {
    socket.position = after === undefined ? this.head() : parse(after);
    this.frame(socket, { type: "subscribed", replyTo: id, sessionId, cursor: after ?? cursor(socket.position), recovered: this.recovered });
    if (after !== undefined && !socket.position.ended) socket.position.offset = this.#before(socket.position, this.overlap());
    this.show(socket);
  }

  /** Returns the offset of the character that lies `back` bytes before a position, or 0. */
  #before({ index, offset }, back) {
    const text = Buffer.from(this.messages[index].content);
    let at = Math.max(0, offset - back);
    while (at > 0 && (text[at] & 0xc0) === 0x80) at--;
    return at;
  }

  /** Returns the position { index, offset, ended } after the text of the newest message. ended: the message is complete. */
  head() {
    const index = this.messages.length - 1;
    return index < 0 ? { index: -1, offset: 0, ended: true } : { index, offset: bytes(this.messages[index].content), ended: this.messages[index].status !== "streaming" };
  }

  /** Sends a socket the frames between its position and the end of the session. */
  show(socket) {
    let at = socket.position;
    while (at && socket.open) {
      const message = this.messages[at.index];
      if (!message || at.ended) {
        if (!this.messages[at.index + 1]) return;
        at = this.#create(socket, at.index + 1);
        continue;
      }
      const rest = Buffer.from(message.content).subarray(at.offset).toString();
      if (rest !== "") this.#delta(socket, at, message, rest);
      else if (message.status === "streaming") return;
      else this.#end(socket, at, message);
    }
  }

  showAll() {
    for (const socket of this.sockets) this.show(socket);
  }

  #create(socket, index) {
    const message = this.messages[index];
    const reply = message.role === "assistant";
    const at = (socket.position = { index, offset: 0, ended: !reply });
    const shown = reply ? { ...message, content: "", status: "streaming" } : message;
    this.frame(socket, { type: "message.created", sessionId: SESSION, message: shown, cursor: cursor(at) });
    return at;
  }

  #delta(socket, at, message, rest) {
    const delta = rest.slice(0, this.chunk(rest));
    const offset = at.offset;
    at.offset += bytes(delta);
    this.frame(socket, { type: "message.delta", sessionId: SESSION, messageId: message.messageId, offset, delta, cursor: cursor(at) });
  }

  #end(socket, at, message) {
    at.ended = true;
    this.frame(socket, { type: `message.${message.status}`, sessionId: SESSION, message, cursor: cursor(at) });
  }
}

const cursor = ({ index, offset, ended }) => `c.${index}.${ended ? "e" : offset}`;

function parse(text) {
  const [, index, offset] = text.split(".");
  return { index: Number(index), offset: offset === "e" ? 0 : Number(offset), ended: offset === "e" };
}

/** The cursor before the first message. */
export const START = cursor({ index: -1, offset: 0, ended: true });

export function message(n, role, content, status = "completed") {
  return { messageId: `msg_${String(n).padStart(16, "0")}`, sessionId: SESSION, role, content, tokens: 1, status };
}

/** Returns a generator of reproducible numbers in [0, 1). */
export function random(seed) {
  return () => {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}
