// What was seen of a session, and nothing else: the part of the client that can be thought about without a network.

const REMEMBERED = 256; // messages whose end is kept in mind; replays begin at the cursor, so few are needed

/** What went wrong. code is the service's (`invalid_token`, `context_overflow`, …) or one of ours: `connection_lost`,
 * `network_error`, `closed`, `no_key`, `no_websocket`, `session_cleared`, `session_deleted`, `session_expired`. */
export class ParleyError extends Error {
  constructor(code, message, extra = {}) {
    super(message);
    Object.assign(this, extra, { name: "ParleyError", code });
  }
}

/** The error that a body of the service describes (one shape for REST and the socket). */
export function errorOf(body, status) {
  const { code, message, ...extra } = body?.error ?? {};
  const requestId = body?.meta?.requestId;
  return new ParleyError(code ?? "internal_error", message ?? `The server answered ${status}.`, { ...extra, status, requestId });
}

/** The length of text in bytes of UTF-8, which is what offsets count. */
export function utf8Length(text) {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) continue;
    // Each half of a surrogate pair counts 2, so that the pair makes 4.
    bytes += unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff) ? 1 : 2;
  }
  return bytes;
}

/** text without its first `bytes` bytes of UTF-8; never half a character. */
export function skipBytes(text, bytes) {
  let i = 0;
  while (bytes > 0 && i < text.length) {
    const character = String.fromCodePoint(text.codePointAt(i));
    bytes -= utf8Length(character);
    i += character.length;
  }
  return text.slice(i);
}

const ENDED = Infinity;

/** What Track.accept says of a delta that leaves something out. */
export const GAP = Symbol("gap");

/** Track is what was seen of one session: it turns frames into events, each piece of text exactly once. It does no I/O. */
export class Track {
  /** The place to resume from; undefined is "from now on". */
  cursor;
  #seen = new Map(); // messageId → bytes shown so far, or ENDED

  constructor(cursor) {
    this.cursor = cursor;
  }

  /** Forgets what was shown: the caller is told to wipe it, so what comes again is new. With null it forgets the cursor too. */
  reset(cursor = this.cursor) {
    this.cursor = cursor ?? undefined;
    this.#seen.clear();
  }

  /** Returns the event that frame makes, null if it brings nothing new, or GAP if text before it was left out; with
   * `jump` it is taken nevertheless, for the terminal frame has the whole text. */
  accept(frame, jump = false) {
    const [scope, what] = frame.type.split(".");
    if (scope === "message") {
      if (what === "delta") return this.#delta(frame, jump);
      return what === "created" ? this.#created(frame) : this.#end(frame, what);
    }
    if (scope === "session") {
      if (what === "cleared") this.reset();
      return { type: what, sessionId: frame.sessionId, recovered: true };
    }
    return frame.type === "context.compressed" ? { ...frame, type: "compressed" } : null;
  }

  #created({ sessionId, message, cursor }) {
    if (this.#seen.has(message.messageId)) return null;
    this.#note(message.messageId, message.status === "streaming" ? 0 : ENDED, cursor);
    return { type: "created", sessionId, messageId: message.messageId, message, cursor };
  }

  #delta({ sessionId, messageId, offset, delta, cursor }, jump) {
    // A message that is not known was joined in its middle, at our cursor or where it was when we came.
    const seen = this.#seen.get(messageId) ?? offset;
    if (offset > seen && !jump) return GAP;
    const end = offset + utf8Length(delta);
    if (end <= seen) return null; // the cursor stays: it stands further on
    this.#note(messageId, end, cursor);
    if (offset < seen) [delta, offset] = [skipBytes(delta, seen - offset), seen];
    return { type: "delta", sessionId, messageId, offset, end, delta, cursor };
  }

  #end({ sessionId, message, error, cursor }, status) {
    if (this.#seen.get(message.messageId) === ENDED) return null;
    this.#note(message.messageId, ENDED, cursor);
    return { type: "end", sessionId, messageId: message.messageId, status, message, error: error ?? message.error, cursor };
  }

  #note(messageId, seen, cursor) {
    this.#seen.set(messageId, seen);
    if (cursor !== undefined) this.cursor = cursor;
    if (this.#seen.size > REMEMBERED) this.#seen.delete(this.#seen.keys().next().value);
  }
}
