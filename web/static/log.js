// The messages as they are seen: one article each, whose text only grows while its reply is written.

import { copyButton } from "./copy.js";
import { element } from "./element.js";
import { Flow } from "./flow.js";
import { Markdown } from "./markdown.js";

const NEAR_PX = 80; // how near the end a reader is who wants to see it grow
const SLICE = 1000; // characters that are written in one go

const notes = {
  cancelled: "Stopped. What was written is kept.",
  interrupted: "Interrupted: the server went away in the middle of it. What was written is kept.",
  failed: "The model failed.",
};

/**
 * Log shows the messages of one session: replies as Markdown, what users and systems say as it stands. Whatever it is given
 * becomes text and elements of its own choice, never markup.
 *
 * An article: .text, and .below it .note (what became of it) and .actions, its buttons.
 */
export class Log {
  #log;
  #scroller;
  #onchange;
  #actionsOf;
  #flow = new Flow(() => this.#grown());
  #articles = new Map(); // messageId → Article
  #live = null; // messageId of the reply that is being written
  #follow = true;
  #top = 0; // where the reader was when last heard of
  #frame = 0;
  #jump = element("button", { type: "button", hidden: true });
  #unseen = 0; // messages since the reader has gone

  /**
   * onchange is called when a reply begins or ends, and when the log becomes empty or does not stay so. actionsOf returns
   * the buttons, besides Copy, of a message; it is asked again when the message's status changes.
   */
  constructor(log, scroller, onchange, actionsOf = () => []) {
    this.#log = log;
    this.#scroller = scroller;
    this.#onchange = onchange;
    this.#actionsOf = actionsOf;
    this.#addJump();
    // A reader who moves away from the end is let go at once; whoever returns there is taken along again. Only moving
    // up is moving away: our own scrolling is heard of when the text may have grown beyond it already.
    scroller.addEventListener("scroll", () => this.#moved(), { passive: true });
    // A phone's keyboard, or its being turned, takes room away: who was at the end stays there.
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
    this.#flow.clear();
    this.#top = 0;
    this.#following(true);
    this.#settle(null);
  }

  /** Adds a message at the end, or updates it if it is there. */
  add(message) {
    if (!this.#articles.has(message.messageId)) {
      this.#log.append(this.#build(message).element);
      if (!this.#follow) this.#following(false, 1);
    }
    this.#update(message);
    this.#scroll();
  }

  /** Adds older messages, the oldest first, before all others; what is being read stays where it is. */
  prepend(messages) {
    const before = this.#scroller.scrollHeight - this.#scroller.scrollTop;
    this.#log.prepend(...messages.map((message) => this.#build(message).element));
    for (const message of messages) this.#update(message);
    this.#flow.run();
    this.#scroller.scrollTop = this.#scroller.scrollHeight - before;
  }

  /** What a reply answers, if that is shown. */
  question(messageId) {
    let element = this.#articles.get(messageId)?.element;
    while (element && element.dataset.role !== "user") element = element.previousElementSibling;
    return element && this.#articles.get(element.dataset.messageId)?.content;
  }

  /** What a message says, if it is shown. */
  textOf(messageId) {
    return this.#articles.get(messageId)?.content;
  }

  append(messageId, delta) {
    // Whoever joins in the middle of a reply has no message yet.
    if (!this.#articles.has(messageId)) this.add({ messageId, role: "assistant", content: "", status: "streaming" });
    const article = this.#articles.get(messageId);
    article.append(delta);
    this.#flow.add(article);
  }

  /** Shows a message that is on its way to the server; returns what takes it away again. */
  pending(content) {
    const article = new Article({ role: "user", content, status: "pending" });
    article.note.textContent = "Waiting for its turn…";
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
    if (article.busy) this.#flow.addSoon(article);
    if (streaming) this.#settle(message.messageId);
    else if (this.#live === message.messageId) this.#settle(null);
    else this.#onchange();
  }

  #settle(live) {
    this.#live = live;
    // Screen readers are told the whole reply once, rather than each token of it.
    this.#log.setAttribute("aria-busy", String(live !== null));
    this.#onchange();
  }

  // ---- Where the reader is

  #moved() {
    const top = this.#scroller.scrollTop;
    if (this.#distance() < NEAR_PX) this.#following(true);
    else if (top < this.#top) this.#following(false);
    this.#top = top;
  }

  /** Follows the text as it grows, or does not; then so many messages more are unseen. */
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

  /** Once a frame at most: each look at scrollHeight lays the page out. */
  #scroll() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#grown();
    });
  }

  #grown() {
    this.#moved(); // it may not have been heard of yet
    if (!this.#follow) return;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#top = this.#scroller.scrollTop;
  }

  #resized() {
    this.#top = 0; // the browser's own moving is none of the reader's
    this.#scroll();
  }

  #addJump() {
    this.#jump.addEventListener("click", () => {
      this.#following(true);
      this.#scroller.focus({ preventScroll: true }); // the button goes away
      this.#scroll();
    });
    this.#scroller.append(element("div", { className: "jump" }, this.#jump));
  }
}

/** Article is one message: what it says, and how much of that is in the page. */
class Article {
  element;
  note = element("p", { className: "note" });
  #actions = element("div", { className: "actions" });
  #pen;
  #content = ""; // as far as it is known
  #written = 0; // characters of it that are in the page
  #ended = false; // nothing will be added
  #closed = false; // the pen knows

  constructor({ role, content, status, messageId }) {
    const text = element("div", { className: "text" });
    this.element = element("article", { "data-role": role, "data-status": status }, text, element("div", { className: "below" }, this.note, this.#actions));
    if (messageId) this.element.dataset.messageId = messageId;
    this.#pen = role === "assistant" ? new Markdown(text) : new Plain(text);
    this.#content = content;
    if (role !== "assistant") while (this.step()); // it is short
  }

  /** All that it says, as far as it is known. */
  get content() {
    return this.#content;
  }

  /** Whether there is something left to write. */
  get busy() {
    return this.#written < this.#content.length || (this.#ended && !this.#closed);
  }

  get content() {
    return this.#content;
  }

  append(delta) {
    this.#content += delta;
  }

  /** Writes a little, and returns whether there is more (see Flow). */
  step() {
    const to = Math.min(this.#written + SLICE, this.#content.length);
    if (to > this.#written) this.#pen.write(this.#content.slice(this.#written, to));
    this.#written = to;
    if (to === this.#content.length && this.#ended && !this.#closed) {
      this.#closed = true;
      this.#pen.end();
    }
    return this.busy;
  }

  /** The message is authoritative; where it agrees with what is shown, nothing moves and no selection is lost. */
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
    this.#pen.reset();
    this.#written = 0;
    this.#closed = false;
  }
}

/** Plain writes text as it stands. */
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
  const cut = finishReason === "length" ? " · cut at its length limit" : "";
  return notes[status] ?? `${tokens} ${tokens === 1 ? "token" : "tokens"}${cut}`;
}

/** The server's words, as they stand alone. */
function sentence(words) {
  return `${words[0].toUpperCase()}${words.slice(1)}${words.endsWith(".") ? "" : "."}`;
}
