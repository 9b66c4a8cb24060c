// The session list in the sidebar: search, open and delete, by pointer and keyboard. sessionlist.js holds the data.

import { element } from "./element.js";
import { SessionList } from "./sessionlist.js";
import { describe, timeLeft, titleOf } from "./words.js";

const PAGE = 30; // sessions per request: more than fit on a screen
const API_MAX = 100; // the API's maximum per request
const POLL_MS = 30_000; // in a visible tab; changes by other clients appear within this time
const TEST_KEY_POLL_MS = 1_200_000; // with a test key: at most 72 of its 100 requests a day

/** Shows the list in an element: a search field, a count, the entries, a status text and a button for more. A refresh keeps the
 * nodes of entries that stay, so that focus and pointer stay on them. */
export class Sessions {
  #field;
  #count;
  #list;
  #state;
  #more;
  #on;
  #client = null;
  #known = new SessionList();
  #entries = new Map(); // sessionId → { item, link, title, about, remove }
  #current = null;
  #writing = false;
  #busy = null; // the client that has a request under way
  #next = null; // the arguments of #load for the next request
  #fewRequests = false;
  #readAt = -Infinity; // the time of the last refresh
  #loaded = false;
  #error = null;
  #tabs = new BroadcastChannel("parley.sessions"); // tells other tabs that a list changed; it carries no data

  /** on has open(sessionId); remove(session), which asks and deletes; and leave(), which moves the focus to the composer. */
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
    setInterval(() => this.refresh(), POLL_MS);
    this.#tabs.addEventListener("message", () => this.refresh());
  }

  /** Shows the sessions of another client; null shows none. fewRequests: the key is a test key, so the list is polled rarely. */
  use(client, fewRequests = false) {
    this.#client = client;
    this.#fewRequests = fewRequests;
    this.#readAt = -Infinity;
    this.#next = null;
    this.#known = new SessionList();
    this.#loaded = false;
    this.#error = null;
    this.#field.value = "";
    this.#draw();
    this.refresh();
  }

  /** Removes expired sessions and reads the list again (with a test key: after TEST_KEY_POLL_MS), unless the tab is hidden. */
  refresh() {
    if (document.visibilityState === "hidden") return;
    this.#known.expire(Date.now());
    this.#draw();
    if (this.#fewRequests && performance.now() < this.#readAt + TEST_KEY_POLL_MS) return;
    this.#load((client) => this.#renew(client), this.#known.size === 0);
  }

  /** Adds a new session, or updates a known one. */
  put(session) {
    const known = this.#known.get(session.sessionId);
    this.#known.put({ ...known, ...session });
    this.#draw();
    if (!known && this.#loaded) this.#tabs.postMessage(null);
  }

  /** Removes a session that this tab deleted. */
  remove(sessionId) {
    this.#known.remove(sessionId);
    this.#draw();
    this.#tabs.postMessage(null);
  }

  /** Applies an event of the watched session. */
  take({ type, sessionId, message }) {
    if (type === "created") this.#known.turn({ ...message, sessionId });
    else if (type === "cleared") this.#known.cleared(sessionId);
    else if (type === "deleted" || type === "expired") this.#known.remove(sessionId);
    else return;
    this.#draw();
  }

  /** Marks the open session (null for none) and whether its reply is streaming. */
  mark(sessionId, writing) {
    if (this.#current === sessionId && this.#writing === writing) return;
    [this.#current, this.#writing] = [sessionId, writing];
    for (const [id, entry] of this.#entries) this.#markEntry(id, entry);
  }

  /** Focuses the search field. */
  find() {
    this.#field.focus();
    this.#field.select();
  }

  // ---- Requests

  /** Runs one request at a time. Of the requests that arrive meanwhile, only one runs afterwards: the last with showError, else
   * the first. showError is true if the user asked for the request, or if the list is empty. The errors of other requests are
   * not shown. */
  async #load(request, showError) {
    const client = this.#client;
    if (!client) return;
    if (this.#busy === client) return void (this.#next = showError ? [request, showError] : (this.#next ?? [request, showError]));
    this.#busy = client;
    this.#known.begin();
    try {
      await request(client);
      if (client !== this.#client) return;
      this.#loaded = true;
      this.#error = null;
    } catch (error) {
      if (client !== this.#client) return;
      this.#error = showError ? error : null;
    } finally {
      if (this.#busy === client) this.#busy = null;
    }
    this.#draw();
    const next = this.#next;
    this.#next = null;
    if (next) await this.#load(...next);
  }

  async #renew(client) {
    const limit = Math.min(API_MAX, Math.max(PAGE, this.#known.size));
    const page = await client.sessions({ limit });
    if (client !== this.#client) return;
    this.#known.refresh(page);
    this.#readAt = performance.now();
  }

  async #extend(client) {
    const cursor = this.#known.next;
    if (cursor === null) return;
    const page = await client.sessions({ limit: PAGE, cursor });
    if (client !== this.#client) return;
    const shown = this.#links().length;
    const hadFocus = document.activeElement === this.#more;
    this.#known.extend(page);
    this.#draw();
    if (hadFocus) this.#links()[shown]?.focus(); // the button "Show more" may be hidden now
  }

  // ---- Rendering

  #draw() {
    const found = this.#known.find(this.#field.value);
    this.#place(found);
    const filtered = this.#field.value.trim() !== "";
    this.#more.hidden = this.#known.next === null || this.#error !== null;
    write(this.#count, countOf(found.length, this.#known, filtered, this.#loaded || this.#error !== null));
    this.#explain(found.length, filtered);
  }

  /** Makes the entries match the list. Does not move entries that stay. */
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
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // the browser opens a tab or window
      event.preventDefault();
      this.#on.open(sessionId);
    });
    remove.addEventListener("click", () => this.#on.remove(this.#known.get(sessionId)));
    const entry = { item, link, title, about, remove };
    this.#entries.set(sessionId, entry);
    this.#markEntry(sessionId, entry);
    if (sessionId === this.#current) requestAnimationFrame(() => item.scrollIntoView({ block: "nearest" }));
    return entry;
  }

  #markEntry(sessionId, { item, link }) {
    const current = sessionId === this.#current;
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    item.toggleAttribute("data-writing", current && this.#writing);
  }

  /** Shows why the list is empty or could not be loaded. */
  #explain(found, filtered) {
    const failed = this.#error !== null;
    let text = "";
    if (failed) text = reasonOf(this.#error);
    else if (this.#loaded && this.#known.size === 0) text = "No sessions yet. The first message creates one.";
    else if (this.#loaded && found === 0 && filtered) text = "No matching session.";
    if (text !== this.#state.firstChild?.data) this.#state.replaceChildren(...(text ? [text] : []));
    this.#offerRetry(failed);
    this.#state.hidden = text === "";
  }

  #offerRetry(failed) {
    if (!failed || this.#state.querySelector("button")) return;
    const again = element("button", { type: "button" }, "Try again");
    again.addEventListener("click", () => this.refresh());
    this.#state.append(again);
  }

  // ---- Keyboard

  #links() {
    return [...this.#list.querySelectorAll("a")];
  }

  #press(event) {
    const { key, target } = event;
    const actions = {
      ArrowDown: () => this.#moveFocus(target, 1),
      ArrowUp: () => this.#moveFocus(target, -1),
      Enter: () => target === this.#field && this.#links()[0]?.click(),
      Escape: () => this.#leave(),
    };
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(actions, key)) return;
    if (key === "Enter" && target !== this.#field) return; // links and buttons handle Enter
    event.preventDefault();
    event.stopPropagation(); // elsewhere Esc stops the reply
    actions[key]();
  }

  /** Moves the focus through the search field and the entries, and stops at the last entry. */
  #moveFocus(from, step) {
    const links = this.#links();
    const at = links.indexOf(from.closest("li")?.querySelector("a")) + step;
    if (at < 0) this.#field.focus();
    else links[Math.min(at, links.length - 1)]?.focus();
  }

  #leave() {
    this.#field.value = "";
    this.#draw();
    this.#on.leave();
  }
}

/** Sets an element's text only if it differs, to avoid a needless layout. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function countOf(found, list, filtered, known) {
  if (!known) return "Loading…";
  const all = list.next === null ? `${list.size}` : `${list.size}+`;
  if (filtered) return `${found} of ${all}`;
  if (list.size === 0) return "";
  return list.size === 1 && list.next === null ? "1 session" : `${all} sessions`;
}

function reasonOf(error) {
  const { text } = describe(error);
  return error.code === "network_error" ? "The session list could not be loaded. The server cannot be reached." : text;
}
