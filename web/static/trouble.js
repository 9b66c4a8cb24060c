// The menu that makes trouble, to be watched coming right again: on the network, on another device, in the model.

import { Client } from "./client.js";
import { element } from "./element.js";

const OFFLINE_MS = 5000;

const items = [
  // id, label, what it does, when it can be done, and for whom it is there at all
  ["drop", "Drop the socket", "Cuts the connection, as a bad network does. Nothing of a reply is lost."],
  ["offline", "Go offline for 5 s", "Nothing gets through for five seconds; the page finds its way back."],
  ["slow", "Read slowly", "One delta a second gets through; the page asks for what it missed: fewer, larger deltas."],
  ["cancel", "Cancel from elsewhere", "Another device stops this reply, by a REST call.", ({ live }) => live !== null],
  ...[
    ["fail", "Break the model", "Sends /fail: the model fails in the middle of a reply.", "/fail"],
    ["stall", "Stall the model", "Sends /stall: it falls silent until you stop it, or the server does.", "/stall"],
    ["long", "Long reply", "Sends /words 2000: time enough to reload, cut, open another tab.", "/words 2000"],
    ["crawl", "Slow model", "Sends /slow: half a second a word.", "/slow"],
  ].map(([id, label, what, command]) => [id, label, what, ({ ready }) => ready, command]),
];

/** Trouble fills the menu. */
export class Trouble {
  #menu;
  #page;
  #state;
  #buttons = new Map(); // id → button

  /** menu is a details element; page is as in tools.js. */
  constructor(menu, page) {
    this.#menu = menu;
    this.#page = page;
    const simulated = document.documentElement.dataset.model === "simulated";
    for (const [id, label, what, , command] of items) {
      if (command && !simulated) continue;
      const button = element("button", { type: "button", id: `trouble-${id}` }, element("strong", {}, label), element("small", {}, what));
      button.addEventListener("click", () => {
        menu.querySelector("summary").focus(); // the menu closes over the button
        if (command) page.send(command);
        else this.#acts[id]();
      });
      this.#buttons.set(id, button);
    }
    menu.querySelector("div").append(...this.#buttons.values());
    this.#showSlow();
  }

  show(state) {
    this.#state = state;
    for (const [id, , , possible] of items) {
      const button = this.#buttons.get(id);
      if (button && possible) button.disabled = !possible(state);
    }
  }

  #acts = {
    drop: () => this.#page.traffic.drop(),
    offline: async () => {
      this.#page.say("Offline for 5 seconds…");
      await this.#page.traffic.goOffline(OFFLINE_MS);
      this.#page.say("Online again.");
    },
    slow: () => {
      this.#page.traffic.slow = !this.#page.traffic.slow;
      this.#showSlow();
    },
    cancel: () => this.#cancel(),
  };

  #showSlow() {
    const { slow } = this.#page.traffic;
    this.#buttons.get("slow").setAttribute("aria-pressed", String(slow));
    this.#menu.toggleAttribute("data-on", slow);
  }

  /** By a client of its own, which has no socket: that is another device. */
  async #cancel() {
    const { sessionId, live } = this.#state;
    const other = new Client({ baseURL: this.#page.base, key: this.#page.key() });
    try {
      await other.cancel(sessionId, live);
    } catch (error) {
      this.#page.failed(error);
    } finally {
      other.close();
    }
  }
}
