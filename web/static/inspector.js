// The inspector: a drawer that lists every frame and REST call from traffic.js, with a snippet for each call. Loaded on first
// use.

import { snippetsOf } from "./snippets.js";
import { copyButton } from "./copy.js";
import { element } from "./element.js";
import { isDelta, scrub } from "./traffic.js";
import { utf8Length } from "./track.js";

const ROWS = 500; // as many entries as traffic.js keeps
const NEAR_PX = 40; // about two rows: a reader this close to the end wants to follow it
const MAX_PAYLOAD = 20_000; // characters shown of a payload
const MAX_EXCERPT = 200; // characters shown in a row

const filters = { all: ["All", () => true], quiet: ["Without deltas", (entry) => !isDelta(entry.data)], rest: ["REST", (entry) => Boolean(entry.method)] };

const narrow = matchMedia("(max-width: 60rem)"); // as in style.css

/** Shows the entries of traffic.js. While the drawer is closed, the inspector does no work. */
export class Inspector {
  #drawer;
  #button;
  #page;
  #list;
  #counts;
  #pause;
  #filter = "all";
  #paused = false;
  #sessionId = null;
  #shown = 0; // n of the newest entry that #flush has processed
  #rows = new Map(); // entry → its row
  #changed = new Set(); // entries with a row that must be updated
  #frame = 0;
  #follow = true;
  #timer;
  #count = { frames: 0, bytes: 0, deltas: 0 };
  #counted = 0; // n of the newest entry in #count
  #before = 0; // number of deltas at the last tick
  #rate = 0; // number of deltas in the last second

  /** drawer is an empty element. button opens and closes the drawer. page is the object that tools.js describes. */
  constructor(drawer, button, page) {
    this.#drawer = drawer;
    this.#button = button;
    this.#page = page;
    this.#build();
    narrow.addEventListener("change", () => this.#cover());
  }

  /** Sets the open session. A row names its session only if that is not the open session. */
  show({ sessionId }) {
    this.#sessionId = sessionId;
  }

  async toggle() {
    if (!this.#drawer.hidden) return this.close();
    await loadStyle();
    this.#drawer.hidden = false;
    this.#button.setAttribute("aria-expanded", "true");
    this.#cover();
    this.#count = { frames: 0, bytes: 0, deltas: 0 };
    this.#page.traffic.onentry = (entry) => this.#hear(entry);
    for (const entry of this.#page.traffic.entries) this.#add(entry);
    this.#before = this.#count.deltas;
    this.#timer = setInterval(() => this.#tick(), 1000);
    this.#tick();
    this.#refill();
    // Do not move the focus if the user has moved it while the style sheet loaded.
    if (narrow.matches || document.activeElement === this.#button) this.#list.focus();
  }

  /** Closes the drawer and removes all entries. */
  forget() {
    if (!this.#drawer.hidden) this.close();
    this.#clear();
  }

  close() {
    this.#page.traffic.onentry = null;
    clearInterval(this.#timer);
    this.#drawer.hidden = true;
    this.#button.setAttribute("aria-expanded", "false");
    this.#cover();
    this.#button.focus();
  }

  /** On narrow screens the drawer covers the page, which becomes inert. */
  #cover() {
    const over = narrow.matches && !this.#drawer.hidden;
    for (const part of document.querySelectorAll("body > header, body > main")) part.inert = over;
  }

  #build() {
    const button = (label, onclick, more) => element("button", { type: "button", onclick, ...more }, label);
    const filter = element("select", { "aria-label": "Filter", onchange: () => this.#choose(filter.value) },
      ...Object.entries(filters).map(([value, [label]]) => element("option", { value }, label)));
    this.#pause = button("Pause", () => this.#setPaused(!this.#paused), { "aria-pressed": "false" });
    this.#counts = element("p", { className: "counts" });
    this.#list = element("div", { className: "frames", tabIndex: 0, role: "region", "aria-label": "Frames and calls" });
    this.#drawer.append(
      element("div", { className: "bar" }, element("h2", {}, "Inspector"),
        button(element("span", { "aria-hidden": "true" }, "✕"), () => this.close(), { className: "icon", "aria-label": "Close the inspector" })),
      element("div", { className: "controls" }, filter, this.#pause, button("Clear", () => this.#clear())),
      this.#counts, this.#list,
    );
    this.#drawer.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation(); // elsewhere Esc stops the reply
      this.close();
    });
    this.#list.addEventListener("scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = this.#list;
      this.#follow = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    }, { passive: true });
    this.#list.addEventListener("keydown", (event) => this.#step(event));
    // When the browser opens a row, the row's content is created. "toggle" does not bubble, so it is captured.
    this.#list.addEventListener("toggle", ({ target }) => this.#opened(target), true);
  }

  /** Moves between rows with the arrow keys. */
  #step(event) {
    const row = event.target.matches("summary") && event.target.parentElement;
    const to = row && { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
    if (!to) return;
    event.preventDefault();
    to.querySelector("summary").focus();
  }

  #choose(filter) {
    this.#filter = filter;
    this.#refill();
  }

  #setPaused(paused) {
    this.#paused = paused;
    this.#pause.setAttribute("aria-pressed", String(paused));
    if (!paused) this.#later();
    this.#showCounts();
  }

  #clear() {
    this.#page.traffic.clear();
    this.#count = { frames: 0, bytes: 0, deltas: 0 };
    this.#before = this.#rate = 0;
    this.#refill();
    this.#showCounts();
  }

  // ---- New entries

  #hear(entry) {
    if (entry.n > this.#counted) this.#add(entry);
    else if (this.#rows.has(entry)) this.#changed.add(entry);
    this.#later();
  }

  #add(entry) {
    this.#counted = Math.max(this.#counted, entry.n);
    if (entry.method) return;
    this.#count.frames++;
    this.#count.bytes += utf8Length(entry.data);
    if (isDelta(entry.data)) this.#count.deltas++;
  }

  #showCounts() {
    const { frames, bytes } = this.#count;
    const waiting = this.#paused ? ` · paused, ${this.#page.traffic.total - this.#shown} new` : "";
    this.#counts.textContent = `${frames.toLocaleString()} frames · ${size(bytes)} · ${this.#rate} deltas/s${waiting}`;
  }

  /** Runs once a second and counts the deltas of that second. */
  #tick() {
    this.#rate = this.#count.deltas - this.#before;
    this.#before = this.#count.deltas;
    this.#showCounts();
  }

  /** Updates the list at most once per animation frame, even if entries arrive faster. */
  #later() {
    if (!this.#paused) this.#frame ||= requestAnimationFrame(() => this.#flush());
  }

  #refill() {
    this.#list.replaceChildren();
    this.#rows.clear();
    this.#shown = 0;
    this.#follow = true;
    this.#flush();
  }

  #flush() {
    this.#frame = 0;
    const { entries } = this.#page.traffic;
    const [, wanted] = filters[this.#filter];
    const fresh = entries.slice(entries.findLastIndex((entry) => entry.n <= this.#shown) + 1).filter(wanted);
    this.#shown = entries.at(-1)?.n ?? this.#shown;
    this.#list.append(...fresh.map((entry) => this.#row(entry)));
    for (const entry of this.#changed) this.#update(entry);
    this.#changed.clear();
    const [...rows] = this.#rows.keys();
    for (const entry of rows.slice(0, Math.max(0, rows.length - ROWS))) {
      this.#rows.get(entry).remove();
      this.#rows.delete(entry);
    }
    if (this.#follow) this.#list.scrollTop = this.#list.scrollHeight;
  }

  // ---- Rows

  #row(entry) {
    const row = element("details", { className: "frame" }, element("summary", {}));
    row.entry = entry;
    this.#rows.set(entry, row);
    this.#write(row);
    return row;
  }

  #update(entry) {
    const row = this.#rows.get(entry);
    if (!row) return;
    this.#write(row);
    if (row.open) this.#fill(row);
  }

  #write(row) {
    const { entry } = row;
    row.dataset.kind = entry.method ? "rest" : "frame";
    row.toggleAttribute("data-dropped", Boolean(entry.dropped));
    row.title = entry.dropped ? "dropped by the slow reader; the page requests the text again" : "";
    row.toggleAttribute("data-bad", entry.status === "failed" || entry.status >= 400);
    const { name, about, text } = entry.method ? describeCall(entry) : describeFrame(entry, this.#sessionId);
    row.querySelector("summary").replaceChildren(
      element("span", { className: "way", "aria-hidden": "true" }, entry.out ? "↑" : "↓"),
      element("span", { className: "unseen" }, entry.out ? "sent " : entry.dropped ? "received, dropped " : "received "),
      element("time", { title: new Date(entry.at).toLocaleString() }, clock(entry.at)),
      element("span", { className: "name" }, name),
      element("span", { className: "about" }, about),
      element("span", { className: "piece" }, text),
    );
  }

  #opened(row) {
    if (row.open && !row.querySelector(".inside")) this.#fill(row);
  }

  #fill(row) {
    const { entry } = row;
    row.querySelector(".inside")?.remove();
    const inside = element("div", { className: "inside" });
    if (entry.data) inside.append(payload(entry.method ? "Sent" : "Frame", entry.data));
    if (entry.answer) inside.append(payload("Response", entry.answer));
    const snippets = snippetsOf(entry, this.#page.base);
    if (snippets) inside.append(snippetTabs(snippets));
    row.append(inside);
  }
}

function describeCall({ method, path, status, ms, bytes }) {
  const outcome = status === 0 ? "…" : status === "failed" ? "failed" : `${status} · ${Math.round(ms)} ms · ${size(bytes)}`;
  return { name: `${method} ${path.replace(/^\/v1(?=\/)/, "")}`, about: outcome, text: "" };
}

function describeFrame({ data }, sessionId) {
  const frame = parse(data) ?? {};
  const other = frame.sessionId && frame.sessionId !== sessionId ? `…${frame.sessionId.slice(-5)} · ` : "";
  const about = frame.type === "message.delta" ? `@${frame.offset} +${utf8Length(frame.delta)} B` : size(utf8Length(data));
  const name = frame.type ?? /^\{"type":"([\w.]+)"/.exec(data)?.[1] ?? "?"; // a truncated frame cannot be parsed
  return { name, about: other + about, text: scrub(frame.delta ?? frame.content ?? frame.error?.code ?? "").slice(0, MAX_EXCERPT) };
}

function payload(title, text) {
  const value = parse(text);
  const pretty = scrub(value === undefined ? text : JSON.stringify(value, null, 2));
  const shown = pretty.length > MAX_PAYLOAD ? `${pretty.slice(0, MAX_PAYLOAD)}\n… and ${(pretty.length - MAX_PAYLOAD).toLocaleString()} more characters` : pretty;
  return element("div", { className: "code" }, element("p", {}, title), element("pre", { tabIndex: 0 }, shown), copyButton(`Copy ${title.toLowerCase()}`, () => pretty));
}

/** Returns tabs with the snippets of a call. The arrow keys switch between the tabs. */
function snippetTabs(snippets) {
  const text = element("pre", { tabIndex: 0, role: "tabpanel", "aria-label": "Snippet" });
  const tabs = snippets.map(({ name }) => element("button", { type: "button", role: "tab" }, name));
  const choose = (chosen) => {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === chosen));
      tab.tabIndex = i === chosen ? 0 : -1;
    });
    text.textContent = snippets[chosen].text;
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => choose(i));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (!step) return;
      const next = (i + step + tabs.length) % tabs.length;
      choose(next);
      tabs[next].focus();
    });
  });
  choose(0);
  return element("div", { className: "code same" }, element("div", { className: "tabs", role: "tablist", "aria-label": "Language" }, ...tabs), text,
    copyButton("Copy snippet", () => text.textContent));
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns minutes, seconds and milliseconds; the row's title has the full date. */
function clock(at) {
  return new Date(at).toISOString().slice(14, 23);
}

function size(bytes) {
  return bytes < 10_000 ? `${bytes.toLocaleString()} B` : `${Math.round(bytes / 1000).toLocaleString()} kB`;
}

let style = null;

function loadStyle() {
  style ??= new Promise((resolve) => {
    const link = element("link", { rel: "stylesheet", href: "/static/inspector.css" });
    link.onload = link.onerror = resolve;
    document.head.append(link);
  });
  return style;
}
