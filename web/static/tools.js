// The tools in the bar: the inspector, and the menu that makes trouble. Each is loaded when it is first opened.

const $ = (id) => document.getElementById(id);

/** Tools are the page's. page is { traffic, base, key(), send(content), say(text), failed(error) }: what the tools look at and do. */
export class Tools {
  #page;
  #inspector = null;
  #trouble = null;
  #state = { sessionId: null, live: null, ready: false };

  constructor(page) {
    this.#page = page;
    $("inspect").addEventListener("click", () => this.#inspect());
    $("trouble").addEventListener("toggle", () => this.#openTrouble());
  }

  /** What is so: the session that is shown, the id of the reply that is being written, and whether a message may be sent. */
  show(state) {
    this.#state = state;
    this.#inspector?.show(state);
    this.#trouble?.show(state);
  }

  /** Forgets what was seen: the next who looks may be somebody else. */
  forget() {
    this.#page.traffic.clear();
    this.#inspector?.forget();
  }

  async #inspect() {
    if (!this.#inspector) {
      const { Inspector } = await import("./inspector.js");
      this.#inspector ??= new Inspector($("inspector"), $("inspect"), this.#page);
      this.#inspector.show(this.#state);
    }
    await this.#inspector.toggle();
  }

  async #openTrouble() {
    if (this.#trouble || !$("trouble").open) return;
    const { Trouble } = await import("./trouble.js");
    this.#trouble ??= new Trouble($("trouble"), this.#page);
    this.#trouble.show(this.#state);
  }
}
