// The tools in the header: the inspector and the failure simulator. Each module is loaded when its tool is first opened.

const $ = (id) => document.getElementById(id);

/** Loads and updates the tools. The tools use page: { traffic, base, key(), send(content), say(text), failed(error) }. */
export class Tools {
  #page;
  #inspector = null;
  #simulator = null;
  #state = { sessionId: null, live: null, ready: false };

  constructor(page) {
    this.#page = page;
    $("inspect").addEventListener("click", () => this.#inspect());
    $("simulator").addEventListener("toggle", () => this.#openSimulator());
  }

  /** Takes the page's state: the open session, the id of the streaming reply, and whether a message can be sent. */
  show(state) {
    this.#state = state;
    this.#inspector?.show(state);
    this.#simulator?.show(state);
  }

  /** Drops all recorded traffic, because the next key may belong to another person. */
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

  async #openSimulator() {
    if (this.#simulator || !$("simulator").open) return;
    const { FailureSimulator } = await import("./simulator.js");
    this.#simulator ??= new FailureSimulator($("simulator"), this.#page);
    this.#simulator.show(this.#state);
  }
}
