// Elements made from code: text stays text.

/** Returns an element of that tag with properties (those of "data-…", "aria-…" and "role" as attributes) and children: elements or text. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

/** Copies text to the clipboard; resolves with whether that went well. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text); // an address without https has no navigator.clipboard
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
