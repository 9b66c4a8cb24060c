// The list of sessions: found, opened and deleted, by pointer and by keyboard. shelf.js knows which there are.

import { element } from "./element.js";
import { Shelf } from "./shelf.js";
import { describe, timeLeft, titleOf } from "./words.js";

const PAGE = 30; // sessions that are loaded at once
const MOST = 100; // sessions that the API gives at once
const AGAIN_MS = 30_000; // how often the list is read again while it can be seen
const SPARING_MS = 1_200_000; // how often at most, where a day has few requests

/** Sessions shows the list in an element: a search field, a line that counts, the list, its state and a button for more.
 * An entry that stays keeps its nodes, so that a refresh takes neither the focus nor the place under the pointer away. */
export class Sessions {
  #field;
  #count;
  #list;
  #state;
  #more;
  #on;
  #client = null;
  #shelf = new Shelf();
  #entries = new Map(); // sessionId → { item, link, title, about, remove }
  #current = null;
  #writing = false;
  #busy = null; // the request that is under way
  #next = null; // what is wanted after it, as #load has it
  #sparing = false;
  #readAt = -Infinity; // when the list was read last
  #loaded = false;
  #error = null;
  #tabs = new BroadcastChannel("parley.sessions"); // this browser's other tabs hear that a list changed, and nothing else

  /** on: open(sessionId), remove(session) to ask and delete, leave() for when the reader is done here. */
  constructor(nav, on) {
    this.#on = on;
    this.#field = nav.querySelector("input");
    [this.#count, this.#state] = nav.querySelectorAll("p");
    this.#list = nav.querySelector("ul");
    this.#more = nav.querySelector("button");
    this.#field.addEventListener("input", () => this.#draw());
    this.#more.addEventListener("click", () => this.#load((client) => this.#extend(client), true));
    nav.addEventListener("keydown", (event) => this.#press(event));
    document.addEventListener("visibilitychange", () => this.refresh());
    setInterval(() => this.refresh(), AGAIN_MS);
    this.#tabs.addEventListener("message", () => this.refresh());
  }

  /** Shows the sessions of another client's key; null shows none. sparing says that its requests are few (a test key has 100 a
   * day), so that the list is seldom read of itself. */
  use(client, sparing = false) {
    this.#client = client;
    this.#sparing = sparing;
    this.#readAt = -Infinity;
    this.#next = null;
    this.#shelf = new Shelf();
    this.#loaded = false;
    this.#error = null;
    this.#field.value = "";
    this.#draw();
    this.refresh();
  }

  /** Reads the list again, with one request, unless nobody can see it. */
  refresh() {
    if (document.visibilityState === "hidden") return;
    this.#shelf.expire(Date.now());
    this.#draw();
    if (this.#sparing && performance.now() < this.#readAt + SPARING_MS) return;
    this.#load((client) => this.#renew(client), this.#shelf.size === 0);
  }

  /** A session was made or is known better than the list has it. */
  put(session) {
    const known = this.#shelf.get(session.sessionId);
    this.#shelf.put({ ...known, ...session });
    this.#draw();
    if (!known && this.#loaded) this.#tabs.postMessage(null);
  }

  /** A session was deleted here. */
  remove(sessionId) {
    this.#shelf.remove(sessionId);
    this.#draw();
    this.#tabs.postMessage(null);
  }

  /** Takes in an event of a session that is watched. */
  take({ type, sessionId, message }) {
    if (type === "created") this.#shelf.turn({ ...message, sessionId });
    else if (type === "cleared") this.#shelf.cleared(sessionId);
    else if (type === "deleted" || type === "expired") this.#shelf.remove(sessionId);
    else return;
    this.#draw();
  }

  /** Which session is shown (null for none), and whether its reply is being written. */
  mark(sessionId, writing) {
    if (this.#current === sessionId && this.#writing === writing) return;
    [this.#current, this.#writing] = [sessionId, writing];
    for (const [id, entry] of this.#entries) this.#stand(id, entry);
  }

  /** Puts the focus where one types what to look for. */
  find() {
    this.#field.focus();
    this.#field.select();
  }

  // ---- Reading

  /** One request at a time; of those that are wanted meanwhile one follows, the one that somebody asked for. tell says that a
   * failure is shown; where there are sessions and nobody asked, it is not worth a word: the next request mends it. */
  async #load(request, tell) {
    const client = this.#client;
    if (!client) return;
    if (this.#busy === client) return void (this.#next = tell ? [request, tell] : (this.#next ?? [request, tell]));
    this.#busy = client;
    this.#shelf.begin();
    try {
      await request(client);
      if (client !== this.#client) return;
      this.#loaded = true;
      this.#error = null;
    } catch (error) {
      if (client !== this.#client) return;
      this.#error = tell ? error : null;
    } finally {
      if (this.#busy === client) this.#busy = null;
    }
    this.#draw();
    const next = this.#next;
    this.#next = null;
    if (next) await this.#load(...next);
  }

  async #renew(client) {
    const limit = Math.min(MOST, Math.max(PAGE, this.#shelf.size));
    const page = await client.sessions({ limit });
    if (client !== this.#client) return;
    this.#shelf.refresh(page);
    this.#readAt = performance.now();
  }

  async #extend(client) {
    const cursor = this.#shelf.next;
    if (cursor === null) return;
    const page = await client.sessions({ limit: PAGE, cursor });
    if (client !== this.#client) return;
    const shown = this.#links().length;
    const asked = document.activeElement === this.#more;
    this.#shelf.extend(page);
    this.#draw();
    if (asked) this.#links()[shown]?.focus(); // the button may be gone
  }

  // ---- Showing

  #draw() {
    const found = this.#shelf.find(this.#field.value);
    this.#place(found);
    const filtered = this.#field.value.trim() !== "";
    this.#more.hidden = this.#shelf.next === null || this.#error !== null;
    write(this.#count, countOf(found.length, this.#shelf, filtered, this.#loaded || this.#error !== null));
    this.#explain(found.length, filtered);
  }

  /** Brings the entries into line; those that are there and stay are not touched. */
  #place(found) {
    const wanted = new Set(found.map(({ sessionId }) => sessionId));
    const focused = this.#links().indexOf(document.activeElement?.closest("li")?.querySelector("a"));
    for (const [sessionId, { item }] of this.#entries) {
      if (wanted.has(sessionId)) continue;
      const held = item.contains(document.activeElement);
      item.remove();
      this.#entries.delete(sessionId);
      if (held) (this.#links()[focused] ?? this.#links().at(-1) ?? this.#field).focus();
    }
    let before = this.#list.firstChild;
    for (const session of found) {
      const { item } = this.#entry(session);
      if (item === before) before = before.nextSibling;
      else this.#list.insertBefore(item, before);
    }
  }

  #entry(session) {
    const entry = this.#entries.get(session.sessionId) ?? this.#build(session.sessionId);
    const name = titleOf(session);
    const left = timeLeft(session.expiresAt);
    write(entry.title, name);
    write(entry.about, `${left} left · ${session.messageCount} ${session.messageCount === 1 ? "message" : "messages"}`);
    entry.link.title = `${name}\n${session.sessionId}`;
    entry.remove.setAttribute("aria-label", `Delete ${name}`);
    return entry;
  }

  #build(sessionId) {
    const title = element("span", { className: "title" });
    const about = element("span", { className: "about" });
    const link = element("a", { href: `/?session=${sessionId}` }, title, about);
    const remove = element("button", { type: "button", className: "icon" }, element("span", { ariaHidden: "true" }, "✕"));
    const item = element("li", {}, link, remove);
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // another tab, or window
      event.preventDefault();
      this.#on.open(sessionId);
    });
    remove.addEventListener("click", () => this.#on.remove(this.#shelf.get(sessionId)));
    const entry = { item, link, title, about, remove };
    this.#entries.set(sessionId, entry);
    this.#stand(sessionId, entry);
    if (sessionId === this.#current) requestAnimationFrame(() => item.scrollIntoView({ block: "nearest" }));
    return entry;
  }

  #stand(sessionId, { item, link }) {
    const current = sessionId === this.#current;
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    item.toggleAttribute("data-writing", current && this.#writing);
  }

  /** What stands where no entries are, and why. */
  #explain(found, filtered) {
    const failed = this.#error !== null;
    let text = "";
    if (failed) text = reasonOf(this.#error);
    else if (this.#loaded && this.#shelf.size === 0) text = "No sessions yet. The first message makes one.";
    else if (this.#loaded && found === 0 && filtered) text = "No session is called that.";
    if (text !== this.#state.firstChild?.data) this.#state.replaceChildren(...(text ? [text] : []));
    this.#offerAgain(failed);
    this.#state.hidden = text === "";
  }

  #offerAgain(failed) {
    if (!failed || this.#state.querySelector("button")) return;
    const again = element("button", { type: "button" }, "Try again");
    again.addEventListener("click", () => this.refresh());
    this.#state.append(again);
  }

  // ---- The keyboard

  #links() {
    return [...this.#list.querySelectorAll("a")];
  }

  #press(event) {
    const { key, target } = event;
    const acts = {
      ArrowDown: () => this.#walk(target, 1),
      ArrowUp: () => this.#walk(target, -1),
      Enter: () => target === this.#field && this.#links()[0]?.click(),
      Escape: () => this.#away(),
    };
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(acts, key)) return;
    if (key === "Enter" && target !== this.#field) return; // links and buttons know it
    event.preventDefault();
    event.stopPropagation(); // Esc would stop the reply
    acts[key]();
  }

  /** From the field to the entries and back; it stops at the last. */
  #walk(from, step) {
    const links = this.#links();
    const at = links.indexOf(from.closest("li")?.querySelector("a")) + step;
    if (at < 0) this.#field.focus();
    else links[Math.min(at, links.length - 1)]?.focus();
  }

  #away() {
    this.#field.value = "";
    this.#draw();
    this.#on.leave();
  }
}

/** Sets a text where it is another one, so that nothing is laid out anew for nothing. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function countOf(found, shelf, filtered, known) {
  if (!known) return "Loading…";
  const all = shelf.next === null ? `${shelf.size}` : `the newest ${shelf.size}`;
  if (filtered) return `${found} of ${all}`;
  if (shelf.size === 0) return "";
  return shelf.size === 1 ? "1 session" : `${all} sessions`;
}

function reasonOf(error) {
  const { text } = describe(error);
  return error.code === "network_error" ? "The list could not be loaded: the server cannot be reached." : text;
}
