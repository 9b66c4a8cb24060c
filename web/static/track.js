// Turns the frames of a session into events and drops repeated text. Pure, no I/O. Used by connection.js.

const REMEMBERED = 256; // messages with an offset in memory; replays start at the cursor, so only the newest are needed

/** The error of every failed call. code is the server's (`invalid_token`, `context_overflow`, …) or one of the client's own:
 * `connection_lost`, `network_error`, `closed`, `no_key`, `no_websocket`, `session_cleared`, `session_deleted`,
 * `session_expired`. */
export class ParleyError extends Error {
  constructor(code, message, extra = {}) {
    super(message);
    Object.assign(this, extra, { name: "ParleyError", code });
  }
}

/** Returns the error that a response body or an error frame describes; both have the same shape. */
export function errorOf(body, status) {
  const { code, message, ...extra } = body?.error ?? {};
  const requestId = body?.meta?.requestId;
  return new ParleyError(code ?? "internal_error", message ?? `The server returned status ${status} without an error body.`, { ...extra, status, requestId });
}

/** Returns the length of text in UTF-8 bytes, the unit of offsets. */
export function utf8Length(text) {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) continue;
    // Each half of a surrogate pair counts 2: the pair is 4 bytes.
    bytes += unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff) ? 1 : 2;
  }
  return bytes;
}

/** Returns text without its first `bytes` UTF-8 bytes. It never splits a character. */
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

/** Track.accept returns GAP for a delta if text before the delta is missing. */
export const GAP = Symbol("gap");

/** Tracks one session. The events that it returns contain each piece of text exactly once. */
export class Track {
  /** The cursor at which to resume; undefined means from now on. */
  cursor;
  #seen = new Map(); // messageId → offset in bytes, or ENDED

  constructor(cursor) {
    this.cursor = cursor;
  }

  /** Forgets all offsets, because the caller discards the text shown. If cursor is null, forgets the cursor as well. */
  reset(cursor = this.cursor) {
    this.cursor = cursor ?? undefined;
    this.#seen.clear();
  }

  /** Returns the event for a frame, null if the frame contains nothing new, or GAP if text before the frame is missing. With
   * `jump` it accepts the gap: the terminal frame will have the whole text. */
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
    return what === "compressed" || what === "reasoning" ? { ...frame, type: what } : null;
  }

  #created({ sessionId, message, cursor }) {
    if (this.#seen.has(message.messageId)) return null;
    this.#note(message.messageId, message.status === "streaming" ? 0 : ENDED, cursor);
    return { type: "created", sessionId, messageId: message.messageId, message, cursor };
  }

  #delta({ sessionId, messageId, offset, delta, cursor }, jump) {
    // An unknown message began before the subscription. Its first delta starts at the cursor or at the live text's end.
    const seen = this.#seen.get(messageId) ?? offset;
    if (offset > seen && !jump) return GAP;
    const end = offset + utf8Length(delta);
    if (end <= seen) return null; // keeps the cursor, which is after this text
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
