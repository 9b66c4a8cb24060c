// Elements, made of text and never of markup.

/** An element with properties and children (elements, or strings that become text). */
export function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/** An element of SVG with attributes. */
export function draw(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.append(...children);
  return made;
}
