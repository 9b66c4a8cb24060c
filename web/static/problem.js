// The error banner above the composer: the text of the error, a button for the next step, and the countdown of a rate limit.

import { describe } from "./words.js";

/** Shows one error at a time, the newest. */
export class Problem {
  #element;
  #text;
  #button;
  #timer; // of the countdown

  /** element contains a paragraph, the action button and #dismiss. */
  constructor(element) {
    this.#element = element;
    this.#text = element.querySelector("p");
    [this.#button] = element.querySelectorAll("button");
    element.querySelector("#dismiss").addEventListener("click", () => this.hide());
  }

  /** Shows an error, with a button if action is given: [label, function]. Counts down the seconds of retryAfter, if any. */
  show(error, action) {
    this.hide();
    this.#text.textContent = describe(error).text;
    this.#button.hidden = !action;
    this.#button.textContent = action?.[0] ?? "";
    this.#button.onclick = () => {
      this.hide();
      action[1]();
    };
    this.#element.hidden = false;
    if (error.retryAfter) this.#countDown(error);
  }

  hide() {
    clearInterval(this.#timer);
    this.#element.hidden = true;
  }

  #countDown(error) {
    const until = Date.now() + error.retryAfter * 1000;
    this.#timer = setInterval(() => {
      const retryAfter = Math.ceil((until - Date.now()) / 1000);
      this.#text.textContent = retryAfter > 0 ? describe({ ...error, retryAfter }).text : "You can send again now.";
      if (retryAfter <= 0) clearInterval(this.#timer);
    }, 500);
  }
}
