// The field in which a message is written, and its buttons.

const MAX_CHARACTERS = 10_000;

/** The composer. It keeps what was typed until somebody takes it. */
export class Composer {
  #text;
  #send;
  #stop;
  #count;
  #ready = false;

  /** form holds the field and its buttons, count says how much room is left. onsend and onstop are called with nothing. */
  constructor(form, count, { onsend, onstop }) {
    this.#text = form.querySelector("textarea");
    this.#send = form.querySelector("[type=submit]");
    this.#stop = form.querySelector("[type=button]");
    this.#count = count;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      onsend();
    });
    this.#text.addEventListener("input", () => this.#refresh());
    this.#text.addEventListener("keydown", (event) => {
      // While an input method composes, Enter is its own; Safari says so by 229 only for the Enter that ends it.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      onsend();
    });
    this.#stop.addEventListener("click", onstop);
  }

  /** What is written there, if it can be sent; it is taken out. Else null, and nothing changes. */
  take() {
    if (this.#send.disabled) return null;
    const content = this.#text.value;
    this.write("");
    return content;
  }

  /** What is written there, whether or not it can be sent. */
  get content() {
    return this.#text.value;
  }

  /** Gives back what could not be sent, unless something else has been written meanwhile. */
  giveBack(content) {
    if (this.#text.value === "") this.write(content);
  }

  /** Replaces what is written. */
  write(content) {
    this.#text.value = content;
    this.#refresh();
  }

  /** Replaces what is written as if it were typed: the browser's undo brings back what was there. */
  type(content) {
    this.#text.focus();
    this.#text.select();
    if (!document.execCommand("insertText", false, content)) this.write(content);
  }

  focus() {
    this.#text.focus();
  }

  /** ready: a message may be sent; writing: a reply is being written, and can be stopped. */
  show({ ready, writing }) {
    this.#ready = ready;
    this.#stop.hidden = !writing;
    this.#refresh();
  }

  #refresh() {
    const { value } = this.#text;
    const length = value.length > MAX_CHARACTERS * 0.9 ? [...value].length : value.length;
    this.#send.disabled = !this.#ready || value.trim() === "" || length > MAX_CHARACTERS;
    this.#count.textContent =
      length > MAX_CHARACTERS * 0.9 ? `${length.toLocaleString()} of ${MAX_CHARACTERS.toLocaleString()}` : "";
    this.#count.toggleAttribute("data-over", length > MAX_CHARACTERS);
  }
}
