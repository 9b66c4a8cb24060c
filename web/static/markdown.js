// Markdown that is written while it is read: the page only grows, nothing that stands there is made anew.
//
// What makes it safe. The parser (streaming-markdown) calls four functions of a renderer, and all that comes of a reply
// goes through ours: elements are made by name from the table below, text becomes text nodes, and there are no others.
// HTML in a reply is text. Attributes are set here, one by one, to values that are ours, but for two: a link's href, which
// must pass addressOf, and the number that a list starts at. Images are links, so that nothing is fetched. Nothing here or
// in the parser makes markup from a string, and the page's policy (require-trusted-types-for 'script', trusted-types
// 'none') has the browser refuse it. The parser's own renderer, which writes javascript: links, is not used.
//
// What the parser does not do itself is in Markdown.#mend: it reads each character in constant time as long as it does not
// hold back more than MAX_PENDING, and it counts no more than 24 elements within each other. Where a reply goes beyond
// that, what was held back becomes text, and Markdown begins anew behind it.

import { copyButton } from "./copy.js";
import { languageOf } from "./languages.js";
import * as smd from "./lib/streaming-markdown/smd.min.js";

const MAX_DEPTH = 20; // elements within each other
const MAX_PENDING = 2048; // characters
const MAX_ADDRESS = 2048; // characters
const MAX_INDENT = 200; // columns

/** What tokens become. A reply's headings stand below the page's own, which are h1 and h2. */
const tags = {
  [smd.PARAGRAPH]: "p",
  [smd.HEADING_1]: "h3",
  [smd.HEADING_2]: "h4",
  [smd.HEADING_3]: "h5",
  [smd.HEADING_4]: "h6",
  [smd.HEADING_5]: "h6",
  [smd.HEADING_6]: "h6",
  [smd.BLOCKQUOTE]: "blockquote",
  [smd.LIST_UNORDERED]: "ul",
  [smd.LIST_ORDERED]: "ol",
  [smd.LIST_ITEM]: "li",
  [smd.RULE]: "hr",
  [smd.ITALIC_AST]: "em",
  [smd.ITALIC_UND]: "em",
  [smd.STRONG_AST]: "strong",
  [smd.STRONG_UND]: "strong",
  [smd.STRIKE]: "s",
  [smd.CODE_INLINE]: "code",
  [smd.LINK]: "a",
  [smd.RAW_URL]: "a",
  [smd.IMAGE]: "a",
  [smd.EQUATION_INLINE]: "span",
};

/** What becomes more than one element, or has attributes. */
const makers = {
  [smd.CODE_FENCE]: codeBlock,
  [smd.CODE_BLOCK]: codeBlock,
  [smd.EQUATION_BLOCK]: (parent) => element(parent, "span", { class: "formula", ...scrolling("Formula") }),
  [smd.TABLE]: table,
  [smd.TABLE_ROW]: row,
  [smd.TABLE_CELL]: cell,
  [smd.CHECKBOX]: checkbox,
};

const isLink = new Set([smd.LINK, smd.IMAGE]);
const isStructure = new Set([smd.LIST_UNORDERED, smd.LIST_ORDERED, smd.TABLE, smd.TABLE_ROW]); // nothing stands in them but
const isPart = new Set([smd.LIST_ITEM, smd.TABLE_ROW, smd.TABLE_CELL]);
const isProse = new Set([
  smd.PARAGRAPH, smd.HEADING_1, smd.HEADING_2, smd.HEADING_3, smd.HEADING_4, smd.HEADING_5, smd.HEADING_6, smd.LIST_ITEM,
  smd.TABLE_CELL, smd.ITALIC_AST, smd.ITALIC_UND, smd.STRONG_AST, smd.STRONG_UND, smd.STRIKE, smd.LINK, smd.CODE_FENCE,
]);
const isVerbatim = new Set([
  smd.CODE_FENCE, smd.CODE_BLOCK, smd.CODE_INLINE, smd.RAW_URL, smd.IMAGE, smd.EQUATION_BLOCK, smd.EQUATION_INLINE,
]);

const ORDINARY = /^[^\\\n<`_*~$[\]!|()]$/u; // means nothing to the parser, whatever follows
const ALPHANUMERIC = /[\p{L}\p{N}]/u;

/** Markdown writes a text into an element: write any number of times, then end. It does so at once, so whoever has much gives it in pieces. */
export class Markdown {
  #root;
  #parser;
  #open = []; // [{ token, node, … }]: the elements that are not closed, the outermost first
  #text = ""; // not yet in the page
  #early = ""; // what the parser holds back, and the page shows already
  #last = ""; // the character before
  #isWithin = false; // and whether it is an underscore within a word
  #loose = null; // a paragraph for text that has none
  #caret = null;

  constructor(root) {
    this.#root = root;
    this.#begin();
  }

  write(text) {
    for (const character of text) {
      if (!this.#mend(character)) smd.parser_write(this.#parser, character);
      this.#last = character;
    }
    this.#flush();
    this.#showEarly();
  }

  /** Writes what is held back, and closes what is open; nothing may be written behind it. */
  end() {
    this.#endLine(this.#parser);
    smd.parser_end(this.#parser);
    this.#flush();
    while (this.#open.length > 0) this.#close();
  }

  /** Takes everything away, and begins anew. */
  reset() {
    this.#root.replaceChildren();
    this.#open = [];
    this.#text = this.#early = this.#last = "";
    this.#loose = this.#caret = null;
    this.#begin();
  }

  #begin() {
    this.#parser = smd.parser({
      data: null,
      add_token: (_, token) => this.#add(token),
      end_token: () => this.#close(),
      add_text: (_, text) => this.#addText(text),
      set_attr: (_, attribute, value) => this.#set(attribute, value),
    });
  }

  // ---- What the parser needs to be told

  /** Sees each character before the parser does; true if it is dealt with. */
  #mend(character) {
    const p = this.#parser;
    if (p.pending.length > MAX_PENDING || p.len > MAX_DEPTH) this.#release();
    const { token, pending } = p;
    if (character === "\n") this.#endLine(p);
    else if (token === smd.RAW_URL && isBehindAddress(pending, character)) {
      smd.parser_write(p, "\\"); // ends it
      p.pending = "";
    } else if (character === ")" && this.#inAddress() && isOpen(pending.slice(2))) {
      p.pending += ")"; // brackets in pairs are a part of it: …/wiki/Go_(game)
      return true;
    } else if (character === "h" && pending === "<" && isProse.has(token)) {
      this.#addText(pending); // <https://…>
      p.pending = "";
    } else if (character === " " || character === "\t") return p.indent_len > MAX_INDENT;
    this.#isWithin = character === "_" && this.#isWithinWord(p);
    if (this.#isWithin) smd.parser_write(p, "\\");
    return false;
  }

  /** An address and a formula in a line end with it, or else they would swallow the rest of the reply. */
  #endLine(p) {
    if (this.#inAddress()) this.#release();
    else if (p.token === smd.EQUATION_INLINE) {
      this.#addText(p.pending);
      this.#open.at(-1).unclosed = true;
      p.pending = "$";
    } else if (p.token === smd.CODE_FENCE && /^[^\n`]`+$/.test(p.pending)) {
      this.#addText(p.pending); // a fence closes in a line of its own
      p.pending = "";
    }
  }

  /** snake_case is a word; the parser would see emphasis in it. */
  #isWithinWord(p) {
    return (
      (ALPHANUMERIC.test(this.#last) || (this.#isWithin && this.#last === "_")) && !isVerbatim.has(p.token) && !p.pending.startsWith("`") && !this.#inAddress() &&
      !this.#open.some(({ token }) => token === smd.ITALIC_UND || token === smd.STRONG_UND)
    );
  }

  #inAddress() {
    const { token, pending } = this.#parser;
    return isLink.has(token) && pending.startsWith("](");
  }

  /** Makes text of what the parser holds back. */
  #release() {
    const p = this.#parser;
    const isAddress = this.#inAddress();
    if (p.token === smd.RAW_URL) this.#open.at(-1).settled = true; // its text stands there already
    else this.#addText(p.pending);
    if (isAddress) {
      this.#open.at(-1).unclosed = true;
      p.pending = "]"; // ends the link with what follows
    } else if (isVerbatim.has(p.token) && p.len <= MAX_DEPTH) {
      p.pending = "";
    } else {
      this.#flush();
      while (this.#open.length > 0) this.#close();
      this.#loose = null;
      this.#begin();
    }
  }

  // ---- What the parser calls

  #add(token) {
    this.#flush();
    this.#early = this.#text = "";
    if (token === smd.LINE_BREAK) {
      this.#addText("\n"); // the style keeps line breaks, and so does whoever copies the text
      this.#flush();
      this.#open.push({ token });
      return;
    }
    const parent = this.#parentOf(token);
    if (parent !== this.#loose) this.#loose = null;
    const make = makers[token];
    const node = make ? make(parent, this.#open) : parent.appendChild(document.createElement(tags[token]));
    const entry = { token, node };
    if (token === smd.EQUATION_INLINE) {
      node.className = "math";
      entry.mark = this.#parser.pending === "$" ? "$" : "\\";
      node.append(entry.mark === "$" ? "$" : "\\(");
    }
    if (token === smd.CODE_FENCE) entry.language = languageOf("");
    this.#open.push(entry);
  }

  #close() {
    this.#flush();
    this.#early = this.#text = "";
    const entry = this.#open.pop();
    closers[entry?.token]?.(entry);
  }

  #addText(text) {
    // What was shown early comes first.
    if (this.#early) {
      text = text.startsWith(this.#early) ? text.slice(this.#early.length) : text;
      this.#early = "";
    }
    this.#text += text;
  }

  #set(attribute, value) {
    this.#flush();
    const entry = this.#open.at(-1);
    if (entry.settled) return;
    if (attribute === smd.HREF || attribute === smd.SRC) setAddress(entry, value);
    else if (attribute === smd.START && /^\d{1,9}$/.test(value)) entry.node.start = Number(value);
    else if (attribute === smd.CHECKED) {
      entry.node.checked = true;
      entry.node.setAttribute("aria-label", "Done");
    } else if (attribute === smd.LANG) setLanguage(entry, value);
  }

  // ---- Into the page

  #flush() {
    const { token, node } = this.#open.at(-1) ?? {};
    const isHomeless = !node || isStructure.has(token);
    if (this.#text === "" || (isHomeless && !this.#loose && this.#text.trim() === "")) return; // white space waits for what follows
    const parent = isHomeless ? this.#looseParagraph() : node;
    if (parent.lastChild?.nodeType === Node.TEXT_NODE) parent.lastChild.appendData(this.#text);
    else parent.append(this.#text);
    this.#text = "";
    if (this.#caret === parent) return;
    this.#caret?.removeAttribute("data-caret");
    this.#caret = parent;
    parent.setAttribute("data-caret", "");
  }

  /** Where an element belongs: for one that has no business in a list or a table, a paragraph behind that. */
  #parentOf(token) {
    const outer = this.#open.at(-1);
    if (!outer) return this.#root;
    if (!isStructure.has(outer.token) || isPart.has(token)) return outer.node;
    return outer.token === smd.TABLE_ROW ? cell(outer.node) : this.#looseParagraph();
  }

  #looseParagraph() {
    const host = this.#open.findLast(({ token }) => !isStructure.has(token))?.node ?? this.#root;
    if (this.#loose?.parentNode !== host) this.#loose = element(host, "p");
    return this.#loose;
  }

  /** The parser is a character behind; a reader need not be. */
  #showEarly() {
    const { token, pending } = this.#parser;
    if (this.#early !== "" || !isProse.has(token) || !ORDINARY.test(pending)) return;
    this.#text = pending;
    this.#flush();
    this.#early = pending;
  }
}

function setAddress(entry, value) {
  const { token, node } = entry;
  // (address "title"), and what follows an address in a sentence, are none of it.
  const written = token === smd.RAW_URL ? value.replace(/[.,;:!?_'“”»\]]+$/u, "") : value.trim().replace(/\s+(?:"[^"]*"|'[^']*')$/, "");
  const address = addressOf(written);
  entry.settled = true;
  if (token === smd.IMAGE && node.textContent === "") node.append("image");
  if (address) {
    node.href = address;
    node.title = address; // its text may say another
    node.rel = "noopener noreferrer nofollow";
    node.target = "_blank";
  } else if (token !== smd.RAW_URL) {
    node.append(` (${value})`);
  }
}

function setLanguage(entry, fence) {
  entry.language = languageOf(fence);
  const { name } = entry.language;
  if (!name) return;
  entry.node.parentElement.setAttribute("aria-label", `Code, ${name}`);
  entry.node.closest(".code").querySelector(".language").textContent = name;
}

/** What is to be done when an element closes. */
const closers = {
  [smd.LINK]: restoreBrackets,
  [smd.IMAGE]: restoreBrackets,
  [smd.CODE_FENCE]: colour,
  [smd.EQUATION_INLINE]: ({ node, mark, unclosed }) => !unclosed && node.append(mark === "$" ? "$" : "\\)"),
};

/** Colours are loaded when they are needed; where the server is away, code without them is code. */
function colour({ node, language }) {
  if (language.language) import("./highlight.js").then((highlight) => highlight.colour(node, language)).catch(() => {});
}

/** [This] is no link, but the parser finds that out when it has taken the brackets away. */
function restoreBrackets({ token, node, settled, unclosed }) {
  if (settled) return;
  node.prepend(token === smd.IMAGE ? "![" : "[");
  if (!unclosed) node.append("]");
}

// ---- Elements

function element(parent, tag, attributes = {}) {
  const made = parent.appendChild(document.createElement(tag));
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** A box that scrolls on its own can be reached by keyboard, and says what it is. (Regions are landmarks; these are too many.) */
const scrolling = (label) => ({ role: "group", tabindex: "0", "aria-label": label });

function codeBlock(parent) {
  const block = element(parent, "div", { class: "code" });
  const head = element(block, "div", { class: "head" });
  element(head, "span", { class: "language" });
  const code = element(element(block, "pre", scrolling("Code")), "code");
  head.append(copyButton("Copy code", () => code.textContent));
  return code;
}

function table(parent) {
  return element(element(parent, "div", { class: "table", ...scrolling("Table") }), "table");
}

/** The first row is the head. */
function row(parent) {
  const [head, body] = parent.children;
  return element(head ? (body ?? element(parent, "tbody")) : element(parent, "thead"), "tr");
}

function cell(parent) {
  return parent.parentElement?.tagName === "THEAD" ? element(parent, "th", { scope: "col" }) : element(parent, "td");
}

function checkbox(parent) {
  return element(parent, "input", { type: "checkbox", disabled: "", "aria-label": "To do" });
}

// ---- Addresses

/** Whether a character ends the address before it, as it stands in a sentence. */
function isBehindAddress(address, character) {
  return /[<>"`|*]/.test(character) || (character === ")" && !isOpen(address));
}

function isOpen(text) {
  return text.split("(").length > text.split(")").length;
}

/** addressOf returns what a link to value leads to, or "" if it must not be one: http, https and mailto, whole, and plain to see. */
function addressOf(value) {
  const address = value.replace(/^<(.*)>$/, "$1");
  // Spaces, controls, and what cannot be seen or turns the direction of reading.
  if (address.length > MAX_ADDRESS || /[\s\p{C}\u115f\u1160\u3164\uffa0]/u.test(address)) return "";
  const url = URL.parse ? URL.parse(address) : parse(address);
  if (!url || !["http:", "https:", "mailto:"].includes(url.protocol)) return "";
  return url.username || url.password ? "" : url.href; // https://bank.example@elsewhere.example
}

function parse(address) {
  try {
    return new URL(address);
  } catch {
    return null;
  }
}
