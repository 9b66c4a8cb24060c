// Buttons that copy, and what they say.

const SAID_MS = 1500; // how long "Copied" stands there

/** copyButton returns a button that copies what text() returns; name is what screen readers call it. */
export function copyButton(name, text) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", name);
  let timer = 0;
  button.addEventListener("click", async () => {
    const said = (await copy(text())) ? "Copied" : "Cannot copy here";
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

/** Over plain http, other than to this machine, there is no clipboard; then the old way is tried. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text);
  }
}

function copySelected(text) {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.className = "unseen";
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}

let region = null;

/** A live region is heard only of changes, so it is there before there is anything to say. */
function announce(text) {
  if (!region) {
    region = document.createElement("p");
    region.className = "unseen";
    region.setAttribute("role", "status");
    document.body.append(region);
  }
  requestAnimationFrame(() => (region.textContent = text));
}
