// The failure simulator: a menu that breaks the connection, cancels a reply as another device would, and makes the simulated
// model fail. It shows visitors how the page recovers. Loaded on first use.

import { Client } from "./client.js";
import { element } from "./element.js";

const OFFLINE_MS = 5000;

const items = [
  // [id, label, description, function that returns whether the item is enabled, command for the simulated model]
  ["drop", "Drop the socket", "Closes the WebSocket, as a bad network does. The reply loses nothing."],
  ["offline", "Go offline for 5 s", "Blocks all traffic for five seconds. The page then reconnects."],
  ["slow", "Slow reader", "Lets one delta a second through. The page requests the missing text and gets fewer, larger deltas."],
  ["cancel", "Cancel from another device", "Stops this reply with a REST call.", ({ live }) => live !== null],
  ...[
    ["fail", "Model fails", "Sends /fail: the model fails in the middle of a reply.", "/fail"],
    ["stall", "Model stalls", "Sends /stall: the model stops until you or the server end the reply.", "/stall"],
    ["long", "Long reply", "Sends /words 2000: enough time to reload, disconnect or open another tab.", "/words 2000"],
    ["crawl", "Slow model", "Sends /slow: one word every half second.", "/slow"],
  ].map(([id, label, description, command]) => [id, label, description, ({ ready }) => ready, command]),
];

/** Fills the menu and runs the command of a chosen item. */
export class FailureSimulator {
  #menu;
  #page;
  #state;
  #buttons = new Map(); // id → button

  /** menu is a details element. page is the object that tools.js describes. */
  constructor(menu, page) {
    this.#menu = menu;
    this.#page = page;
    const simulated = document.documentElement.dataset.model === "simulated";
    for (const [id, label, description, , command] of items) {
      if (command && !simulated) continue;
      const button = element("button", { type: "button", id: `simulate-${id}` }, element("strong", {}, label), element("small", {}, description));
      button.addEventListener("click", () => {
        menu.querySelector("summary").focus(); // the menu closes, so the button loses the focus
        if (command) page.send(command);
        else this.#actions[id]();
      });
      this.#buttons.set(id, button);
    }
    menu.querySelector("div").append(...this.#buttons.values());
    this.#showSlow();
  }

  show(state) {
    this.#state = state;
    for (const [id, , , enabled] of items) {
      const button = this.#buttons.get(id);
      if (button && enabled) button.disabled = !enabled(state);
    }
  }

  #actions = {
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

  /** Cancels with a second client, which uses REST, as another device would. */
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
