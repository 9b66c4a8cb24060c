// The data of the session list: merges pages of the API with changes by events and by this tab. Pure: no network, no document.

import { titleOf } from "./words.js";

const MIN_ID_PART = 5; // shortest part of an id that a search matches; titleOf shows as many characters

/** Compares sessions: newest first, as in the API. Ids sort by creation time. */
function newestFirst(a, b) {
  return a.sessionId < b.sessionId ? 1 : a.sessionId > b.sessionId ? -1 : 0;
}

/** The sessions loaded so far. Changes by put and remove during a request override its response, which may be older. */
export class SessionList {
  #sessions = new Map(); // sessionId → Session
  #changed = new Set(); // ids that put or remove changed since begin()
  #reach = "~"; // the oldest id up to which the list has no gap; "~" sorts after all ids
  /** The cursor of the next page, null after the last one. */
  next = null;

  /** All sessions, newest first. */
  get all() {
    return [...this.#sessions.values()].sort(newestFirst);
  }

  get size() {
    return this.#sessions.size;
  }

  get(sessionId) {
    return this.#sessions.get(sessionId);
  }

  put(session) {
    this.#changed.add(session.sessionId);
    this.#sessions.set(session.sessionId, session);
  }

  remove(sessionId) {
    this.#changed.add(sessionId);
    return this.#sessions.delete(sessionId);
  }

  /** Must be called before a page is requested. */
  begin() {
    this.#changed.clear();
  }

  /** Merges the newest page. Removes sessions that are in the range of the page but not in the page; older sessions stay. */
  refresh({ data, pagination }) {
    const oldest = data.at(-1)?.sessionId;
    const there = new Set(data.map((session) => session.sessionId));
    for (const sessionId of [...this.#sessions.keys()]) {
      const covered = !pagination.hasMore || sessionId >= oldest;
      if (covered && !there.has(sessionId) && !this.#changed.has(sessionId)) this.#sessions.delete(sessionId);
    }
    const adjoins = this.#sessions.has(oldest); // if not, unknown sessions may lie between the page and the list
    this.#take(data);
    if (!pagination.hasMore || oldest <= this.#reach || !adjoins) this.#reached(data, pagination);
  }

  /** Adds the page that was requested with the cursor `next`. */
  extend({ data, pagination }) {
    this.#take(data);
    this.#reached(data, pagination);
  }

  #reached(data, { hasMore, nextCursor }) {
    this.#reach = hasMore ? data.at(-1).sessionId : "";
    this.next = nextCursor;
  }

  #take(data) {
    for (const session of data) if (!this.#changed.has(session.sessionId)) this.#sessions.set(session.sessionId, session);
  }

  /** Removes the sessions that have expired at now (milliseconds since 1970). */
  expire(now) {
    for (const { sessionId, expiresAt } of this.all) if (Date.parse(expiresAt) <= now) this.remove(sessionId);
  }

  /** Counts the message that begins a turn, and the reply to it, unless the session's data includes them already. lastActivity is
   * the time at which the newest turn began. */
  turn(message) {
    const session = this.#sessions.get(message.sessionId);
    if (!session || message.role === "assistant" || message.createdAt <= session.lastActivity) return;
    this.put({ ...session, messageCount: session.messageCount + 2, lastActivity: message.createdAt });
  }

  cleared(sessionId) {
    const session = this.#sessions.get(sessionId);
    if (session) this.put({ ...session, messageCount: 0 });
  }

  /** Returns the sessions that have each word of a text in the title or in the id. */
  find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return this.all.filter((session) => {
      const [title, id] = [titleOf(session).toLowerCase(), session.sessionId.toLowerCase()];
      return words.every((word) => title.includes(word) || (word.length >= MIN_ID_PART && id.includes(word)));
    });
  }
}
