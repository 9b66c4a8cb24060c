// The message log: one article per message. While a reply streams, its text only grows. The log also decides whether the view
// follows the newest text or stays where the reader is.

import { copyButton } from "./copy.js";
import { element } from "./element.js";
import { Scheduler } from "./scheduler.js";
import { Markdown } from "./markdown.js";

const NEAR_PX = 80; // about three lines: a reader this close to the end wants to follow it
const SLICE = 1000; // characters per step of the scheduler; a step takes under a millisecond

const notes = {
  cancelled: "Stopped. The partial reply is kept.",
  interrupted: "Interrupted: the server stopped during this reply. The partial reply is kept.",
  failed: "The model failed.",
};

/**
 * Shows the messages of one session: replies as Markdown, user and system messages as plain text. Content becomes text nodes and
 * elements that this code chooses, never markup.
 *
 * An article contains .text and .below; .below contains .note (how the reply ended) and .actions (its buttons).
 */
export class Log {
  #log;
  #scroller;
  #onchange;
  #actionsOf;
  #scheduler = new Scheduler(() => this.#keepPlace());
  #articles = new Map(); // messageId → Article
  #live = null; // messageId of the streaming reply
  #follow = true;
  #top = 0; // the last known scrollTop
  #frame = 0;
  #jump = element("button", { type: "button", hidden: true });
  #unseen = 0; // messages added since the view stopped following

  /**
   * onchange is called when a message is added, updated or removed, but not for a delta. actionsOf(message) returns the buttons
   * of a message besides Copy. It is called again when the message's status changes.
   */
  constructor(log, scroller, onchange, actionsOf = () => []) {
    this.#log = log;
    this.#scroller = scroller;
    this.#onchange = onchange;
    this.#actionsOf = actionsOf;
    this.#addJump();
    // Scrolling up stops following the end, and scrolling near the end resumes following. The distance to the end alone does not
    // show that the reader scrolled up: text that was added since the last scroll event also increases the distance.
    scroller.addEventListener("scroll", () => this.#moved(), { passive: true });
    // A phone's keyboard or a rotation changes the height. A view at the end stays at the end.
    new ResizeObserver(() => this.#resized()).observe(scroller);
  }

  get live() {
    return this.#live;
  }

  get empty() {
    return this.#log.childElementCount === 0;
  }

  wipe() {
    this.#log.replaceChildren();
    this.#articles.clear();
    this.#scheduler.clear();
    this.#top = 0;
    this.#following(true);
    this.#setLive(null);
  }

  /** Adds a message at the end, or updates a message that is shown already. */
  add(message) {
    if (!this.#articles.has(message.messageId)) {
      this.#log.append(this.#build(message).element);
      if (!this.#follow) this.#following(false, 1);
    }
    this.#update(message);
    this.#scroll();
  }

  /** Adds older messages before all others, oldest first. The view does not move: scrollTop is corrected for the text written
   * here, and the browser's scroll anchoring compensates for text that the scheduler writes later. */
  prepend(messages) {
    const before = this.#scroller.scrollHeight - this.#scroller.scrollTop;
    this.#log.prepend(...messages.map((message) => this.#build(message).element));
    for (const message of messages) this.#update(message);
    this.#scheduler.run();
    this.#scroller.scrollTop = this.#scroller.scrollHeight - before;
  }

  /** Returns the text of the user message before a reply, or undefined if that message is not shown. */
  question(messageId) {
    let element = this.#articles.get(messageId)?.element;
    while (element && element.dataset.role !== "user") element = element.previousElementSibling;
    return element && this.#articles.get(element.dataset.messageId)?.content;
  }

  /** Returns the text of a message, or undefined if the message is not shown. */
  textOf(messageId) {
    return this.#articles.get(messageId)?.content;
  }

  append(messageId, delta) {
    // A subscription that starts during a reply gets deltas without a created event.
    if (!this.#articles.has(messageId)) this.add({ messageId, role: "assistant", content: "", status: "streaming" });
    const article = this.#articles.get(messageId);
    article.append(delta);
    this.#scheduler.add(article);
  }

  /** Shows a message that is being sent. Returns a function that removes the message from the log. */
  pending(content) {
    const article = new Article({ role: "user", content, status: "pending" });
    article.note.textContent = "Sending…";
    this.#log.append(article.element);
    this.#following(true);
    this.#scroll();
    this.#onchange();
    return () => {
      article.element.remove();
      this.#onchange();
    };
  }

  #build(message) {
    const article = new Article(message);
    this.#articles.set(message.messageId, article);
    return article;
  }

  #update(message) {
    const article = this.#articles.get(message.messageId);
    const streaming = message.status === "streaming";
    article.update(message, this.#actionsOf);
    if (article.busy) this.#scheduler.addSoon(article);
    if (streaming) this.#setLive(message.messageId);
    else if (this.#live === message.messageId) this.#setLive(null);
    else this.#onchange();
  }

  #setLive(live) {
    this.#live = live;
    // Screen readers announce the whole reply once instead of each token.
    this.#log.setAttribute("aria-busy", String(live !== null));
    this.#onchange();
  }

  // ---- Scrolling

  #moved() {
    const top = this.#scroller.scrollTop;
    if (this.#distance() < NEAR_PX) this.#following(true);
    else if (top < this.#top) this.#following(false);
    this.#top = top;
  }

  /** Starts or stops following the end. more is the number of messages that were just added below the view. */
  #following(follow, more = 0) {
    this.#follow = follow;
    this.#unseen = follow ? 0 : this.#unseen + more;
    this.#jump.hidden = follow;
    if (follow) return;
    const label = this.#unseen === 0 ? "Jump to the end" : this.#unseen === 1 ? "1 new message" : `${this.#unseen} new messages`;
    this.#jump.textContent = `${label} ↓`;
  }

  #distance() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  /** Scrolls at most once per frame, because reading scrollHeight forces a layout. */
  #scroll() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#keepPlace();
    });
  }

  #keepPlace() {
    this.#moved(); // the scroll event may arrive later
    if (!this.#follow) return;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#top = this.#scroller.scrollTop;
  }

  #resized() {
    this.#top = 0; // the browser may have scrolled up, not the reader
    this.#scroll();
  }

  #addJump() {
    this.#jump.addEventListener("click", () => {
      this.#following(true);
      this.#scroller.focus({ preventScroll: true }); // the button is hidden and would lose the focus
      this.#scroll();
    });
    this.#scroller.append(element("div", { className: "jump" }, this.#jump));
  }
}

/** One message. As a job of the Scheduler, it writes its text into the page in slices. */
class Article {
  element;
  note = element("p", { className: "note" });
  #actions = element("div", { className: "actions" });
  #writer; // Markdown or Plain
  #content = ""; // the text received so far
  #written = 0; // characters that are in the page
  #ended = false; // the message is complete
  #closed = false; // writer.end() was called

  constructor({ role, content, status, messageId }) {
    const text = element("div", { className: "text" });
    this.element = element("article", { "data-role": role, "data-status": status }, text, element("div", { className: "below" }, this.note, this.#actions));
    if (messageId) this.element.dataset.messageId = messageId;
    this.#writer = role === "assistant" ? new Markdown(text) : new Plain(text);
    this.#content = content;
    if (role !== "assistant") while (this.step()); // short: 10,000 characters at most
  }

  /** The text received so far. */
  get content() {
    return this.#content;
  }

  /** Whether step() has work left. */
  get busy() {
    return this.#written < this.#content.length || (this.#ended && !this.#closed);
  }

  append(delta) {
    this.#content += delta;
  }

  /** Writes one slice and returns whether work is left. */
  step() {
    const to = Math.min(this.#written + SLICE, this.#content.length);
    if (to > this.#written) this.#writer.write(this.#content.slice(this.#written, to));
    this.#written = to;
    if (to === this.#content.length && this.#ended && !this.#closed) {
      this.#closed = true;
      this.#writer.end();
    }
    return this.busy;
  }

  /** Takes the server's message, which is authoritative. If its text continues the shown text, nothing is re-rendered and no
   * selection is lost. */
  update(message, actionsOf) {
    const { content, status, role, createdAt } = message;
    if (this.#closed && content !== this.#content || !content.startsWith(this.#content.slice(0, this.#written))) this.#restart();
    this.#content = content;
    this.#ended = status !== "streaming";
    if (createdAt) this.element.title = new Date(createdAt).toLocaleString();
    if (role === "assistant") this.note.textContent = noteOf(message);
    if (this.element.dataset.status === status && this.#actions.hasChildNodes()) return;
    this.element.dataset.status = status;
    this.#actions.replaceChildren(copyButton("Copy message", () => this.#content), ...actionsOf(message));
  }

  #restart() {
    this.#writer.reset();
    this.#written = 0;
    this.#closed = false;
  }
}

/** Writes plain text into an element. */
class Plain {
  #text = document.createTextNode("");

  constructor(root) {
    root.append(this.#text);
  }

  write(text) {
    this.#text.appendData(text);
  }

  end() {}

  reset() {
    this.#text.data = "";
  }
}

function noteOf({ status, error, tokens, finishReason }) {
  if (status === "streaming") return "";
  if (status === "failed") return error?.message ? sentence(error.message) : notes.failed;
  const truncated = finishReason === "length" ? " · truncated at the token limit" : "";
  return notes[status] ?? `${tokens} ${tokens === 1 ? "token" : "tokens"}${truncated}`;
}

/** Capitalises an error message and ends it with a full stop. */
function sentence(message) {
  return `${message[0].toUpperCase()}${message.slice(1)}${message.endsWith(".") ? "" : "."}`;
}
