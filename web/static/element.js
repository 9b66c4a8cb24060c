// Creates elements without markup: strings become text nodes, never HTML.

/** Creates an element. Sets role, and properties with a dash in their name, as attributes. Children are elements or strings. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

/** Copies text to the clipboard. Resolves with true if that succeeded, else with false. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text); // navigator.clipboard exists only on https and localhost
  }
}

function copySelected(text) {
  const { activeElement } = document;
  const field = element("textarea", { className: "unseen", value: text });
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  activeElement?.focus();
  return copied;
}
