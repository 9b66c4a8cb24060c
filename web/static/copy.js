// Copy buttons, and their feedback on screen and to screen readers.

import { copyText, element } from "./element.js";

const FEEDBACK_MS = 1500; // how long "Copied" is shown: long enough to read, and the button is soon usable again

/** Returns a button that copies the result of text(). name is its accessible name. */
export function copyButton(name, text) {
  const button = element("button", { type: "button", className: "copy", "aria-label": name }, "Copy");
  let timer = 0;
  button.addEventListener("click", async () => {
    const feedback = (await copyText(text())) ? "Copied" : "Copying failed";
    button.textContent = feedback;
    announce(feedback);
    clearTimeout(timer);
    timer = setTimeout(() => {
      button.textContent = "Copy";
      announce("");
    }, FEEDBACK_MS);
  });
  return button;
}

let region = null;

/** Announces a text to screen readers. They announce only changes of a live region, so the region must exist before the text. */
function announce(text) {
  if (!region) {
    region = element("p", { className: "unseen", role: "status" });
    document.body.append(region);
  }
  requestAnimationFrame(() => (region.textContent = text));
}
