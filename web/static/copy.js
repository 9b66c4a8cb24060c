// Buttons that copy, and what they say.

import { copyText, element } from "./element.js";

const SAID_MS = 1500; // how long "Copied" stands there

/** copyButton returns a button that copies what text() returns; name is what screen readers call it. */
export function copyButton(name, text) {
  const button = element("button", { type: "button", className: "copy", "aria-label": name }, "Copy");
  let timer = 0;
  button.addEventListener("click", async () => {
    const said = (await copyText(text())) ? "Copied" : "Cannot copy here";
    button.textContent = said;
    announce(said);
    clearTimeout(timer);
    timer = setTimeout(() => {
      button.textContent = "Copy";
      announce("");
    }, SAID_MS);
  });
  return button;
}

let region = null;

/** A live region is heard only of changes, so it is there before there is anything to say. */
function announce(text) {
  if (!region) {
    region = element("p", { className: "unseen", role: "status" });
    document.body.append(region);
  }
  requestAnimationFrame(() => (region.textContent = text));
}
