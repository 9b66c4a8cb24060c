// The messages as they are seen: one article each, whose text only grows while its reply is written.

const NEAR_PX = 80; // how near the end a reader is who wants to see it grow

const notes = {
  cancelled: "Stopped. What was written is kept.",
  interrupted: "Interrupted: the server went away in the middle of it. What was written is kept.",
  failed: "The model failed.",
};

/** Log shows the messages of one session. Whatever it is given becomes text, never markup. */
export class Log {
  #log;
  #scroller;
  #onchange;
  #articles = new Map(); // messageId → { article, text, note, length }
  #live = null; // messageId of the reply that is being written
  #follow = true;
  #top = 0; // where the reader was when last heard of
  #frame = 0;

  /** onchange is called when a reply begins or ends, and when the log becomes empty or does not stay so. */
  constructor(log, scroller, onchange) {
    this.#log = log;
    this.#scroller = scroller;
    this.#onchange = onchange;
    // A reader who moves away from the end is let go at once; whoever returns there is taken along again. Only moving
    // up is moving away: our own scrolling is heard of when the text may have grown beyond it already.
    scroller.addEventListener("scroll", () => this.#moved(), { passive: true });
    // A phone's keyboard, or its being turned, takes room away: who was at the end stays there.
    new ResizeObserver(() => this.#scroll()).observe(scroller);
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
    this.#follow = true;
    this.#settle(null);
  }

  /** Adds a message at the end, or updates it if it is there. */
  add(message) {
    const known = this.#articles.get(message.messageId);
    if (!known) this.#log.append(this.#build(message).article);
    this.#update(message);
    this.#scroll();
  }

  /** Adds older messages, the oldest first, before all others; what is being read stays where it is. */
  prepend(messages) {
    const before = this.#scroller.scrollHeight - this.#scroller.scrollTop;
    const articles = messages.map((message) => this.#build(message).article);
    this.#log.prepend(...articles);
    for (const message of messages) this.#update(message);
    this.#scroller.scrollTop = this.#scroller.scrollHeight - before;
  }

  append(messageId, delta) {
    // Whoever joins in the middle of a reply has no message yet.
    if (!this.#articles.has(messageId)) this.add({ messageId, role: "assistant", content: "", status: "streaming" });
    this.#articles.get(messageId).text.firstChild.appendData(delta);
    this.#scroll();
  }

  /** Shows a message that is on its way to the server; returns what takes it away again. */
  pending(content) {
    const { article } = this.#build({ role: "user", content, status: "pending" });
    article.querySelector(".note").textContent = "Waiting for its turn…";
    this.#log.append(article);
    this.#follow = true;
    this.#scroll();
    this.#onchange();
    return () => {
      article.remove();
      this.#onchange();
    };
  }

  #moved() {
    const top = this.#scroller.scrollTop;
    if (this.#distance() < NEAR_PX) this.#follow = true;
    else if (top < this.#top) this.#follow = false;
    this.#top = top;
  }

  #build(message) {
    const article = document.createElement("article");
    article.dataset.role = message.role;
    article.dataset.status = message.status;
    const text = document.createElement("div");
    text.className = "text";
    text.append(document.createTextNode(message.content));
    const note = document.createElement("p");
    note.className = "note";
    article.append(text, note);
    const entry = { article, text, note };
    if (message.messageId) {
      article.dataset.messageId = message.messageId;
      this.#articles.set(message.messageId, entry);
    }
    return entry;
  }

  #update(message) {
    const { article, text, note } = this.#articles.get(message.messageId);
    const streaming = message.status === "streaming";
    article.dataset.status = message.status;
    // The message is authoritative; where it agrees with what is shown, nothing moves and no selection is lost.
    if (text.firstChild.data !== message.content) text.firstChild.data = message.content;
    if (message.createdAt) article.title = new Date(message.createdAt).toLocaleString();
    if (message.role === "assistant") note.textContent = noteOf(message);
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

  #distance() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  /** Once a frame at most: each look at scrollHeight lays the page out. */
  #scroll() {
    if (!this.#follow || this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.#follow) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    });
  }
}

function noteOf({ status, error, tokens, finishReason }) {
  if (status === "streaming") return "";
  if (status === "failed") return error?.message ? `${notes.failed} ${error.message}` : notes.failed;
  const cut = finishReason === "length" ? " · cut at its length limit" : "";
  return notes[status] ?? `${tokens} ${tokens === 1 ? "token" : "tokens"}${cut}`;
}
