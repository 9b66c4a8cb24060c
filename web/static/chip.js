// The label in the header that shows the state of the connection: live, reconnecting in 3 s, resumed, ….

const RESUMED_MS = 4000; // how long "resumed" is shown after a reconnect: long enough to notice

const words = { idle: "", connecting: "connecting…", live: "live", resumed: "resumed", closed: "disconnected" };

/** Shows the state of a client's connection in an element. */
export class Chip {
  #element;
  #timer; // of the countdown, or of "resumed"

  constructor(element) {
    this.#element = element;
  }

  /** Shows a ConnectionState of client.js. */
  show(state) {
    clearInterval(this.#timer);
    const name = state.state === "live" && state.resumed ? "resumed" : state.state;
    this.#element.dataset.state = name;
    this.#element.textContent = words[name];
    if (name === "reconnecting") this.#countDown(state.retryAt);
    if (name === "resumed") this.#timer = setTimeout(() => this.show({ state: "live", resumed: false }), RESUMED_MS);
  }

  #countDown(retryAt) {
    const tick = () => {
      const seconds = Math.ceil((retryAt - Date.now()) / 1000);
      this.#element.textContent = seconds > 0 ? `reconnecting in ${seconds} s` : "reconnecting…";
    };
    tick();
    this.#timer = setInterval(tick, 250);
  }
}
