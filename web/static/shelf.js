// Which sessions the list holds, in which order, and what of that a page of the API changes. No network, no document.

import { titleOf } from "./words.js";

const PIECE = 5; // characters of an id, the least to find it by: as many as titleOf shows

/** The newest first, as the API has them. Ids sort by creation, within a prefix of the same length, so they tell the order. */
function newestFirst(a, b) {
  return a.sessionId < b.sessionId ? 1 : a.sessionId > b.sessionId ? -1 : 0;
}

/** Shelf is the sessions that were loaded. What is said of one by put and remove while a request was under way wins over
 * its answer, which may be older. */
export class Shelf {
  #sessions = new Map(); // sessionId → Session
  #changed = new Set(); // ids that were put or removed since begin()
  #reach = "~"; // the oldest of the pages that follow on each other; "~" stands after all ids
  /** The cursor of the sessions that were not loaded yet; null if there are none. */
  next = null;

  /** All of them, the newest first. */
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

  /** A request for a page begins. */
  begin() {
    this.#changed.clear();
  }

  /** Takes in the newest page: whoever is missing in the stretch that it covers is gone; what is older stays as it is. */
  refresh({ data, pagination }) {
    const oldest = data.at(-1)?.sessionId;
    const there = new Set(data.map((session) => session.sessionId));
    for (const sessionId of [...this.#sessions.keys()]) {
      const covered = !pagination.hasMore || sessionId >= oldest;
      if (covered && !there.has(sessionId) && !this.#changed.has(sessionId)) this.#sessions.delete(sessionId);
    }
    const adjoins = this.#sessions.has(oldest); // else there may be others between it and what we have
    this.#take(data);
    if (!pagination.hasMore || oldest <= this.#reach || !adjoins) this.#reached(data, pagination);
  }

  /** Takes in the page that came after next. */
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

  /** Drops those that have expired by now (milliseconds since 1970). */
  expire(now) {
    for (const { sessionId, expiresAt } of this.all) if (Date.parse(expiresAt) <= now) this.remove(sessionId);
  }

  /** A turn began with this message. The session counts it and the reply, unless what we know is not older than that:
   * lastActivity is when the newest turn began. */
  turn(message) {
    const session = this.#sessions.get(message.sessionId);
    if (!session || message.role === "assistant" || message.createdAt <= session.lastActivity) return;
    this.put({ ...session, messageCount: session.messageCount + 2, lastActivity: message.createdAt });
  }

  cleared(sessionId) {
    const session = this.#sessions.get(sessionId);
    if (session) this.put({ ...session, messageCount: 0 });
  }

  /** Those that have all the words of a text in their title, or in their id, where chance would have the short ones. */
  find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return this.all.filter((session) => {
      const [title, id] = [titleOf(session).toLowerCase(), session.sessionId.toLowerCase()];
      return words.every((word) => title.includes(word) || (word.length >= PIECE && id.includes(word)));
    });
  }
}
