// The message field with its Send and Stop buttons and its character count.

const MAX_CHARACTERS = 10_000; // Unicode code points, the API's limit for a message

/** Owns the draft, the text in the field. It stays there until take() removes it. */
export class Composer {
  #text;
  #send;
  #stop;
  #count;
  #ready = false;

  /** form contains the field and its buttons. The element count shows the length if it is near the limit. onsend and onstop are
   * called without arguments. */
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
      // Enter belongs to an input method while it composes. For the Enter that ends a composition, Safari only sets keyCode 229.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      onsend();
    });
    this.#stop.addEventListener("click", onstop);
  }

  /** Removes and returns the draft if it can be sent. Otherwise returns null and changes nothing. */
  take() {
    if (this.#send.disabled) return null;
    const content = this.#text.value;
    this.write("");
    return content;
  }

  /** Returns the draft, even if it cannot be sent. */
  get content() {
    return this.#text.value;
  }

  /** Restores a draft that could not be sent, unless the user has typed something new. */
  giveBack(content) {
    if (this.#text.value === "") this.write(content);
  }

  /** Replaces the draft. */
  write(content) {
    this.#text.value = content;
    this.#refresh();
  }

  /** Replaces the draft as if the user typed, so that the browser's undo restores the old draft. */
  type(content) {
    this.#text.focus();
    this.#text.select();
    if (!document.execCommand("insertText", false, content)) this.write(content);
  }

  focus() {
    this.#text.focus();
  }

  /** ready enables Send; writing shows Stop, because a reply is streaming. */
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
