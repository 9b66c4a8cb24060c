// Renders Markdown while it streams: elements are only added, never replaced, so that nothing flickers and selections survive.
//
// Safety: the parser (streaming-markdown) calls four functions of a renderer, which this file implements. Elements come from the
// tables below. Text becomes text nodes, so HTML in a reply is shown as text. Attributes are constants, with three exceptions: a
// link's href and title, which must pass addressOf; the start number of a list; and the aria-label of code, which names the
// language. Images become links, so that nothing is fetched. No code here or in the parser makes markup from a string, and the
// page's policy (trusted-types 'none') forbids that. The parser's own renderer is not used, because it creates javascript: links.
//
// Markdown.#preprocess works around the parser's limits. The parser takes constant time per character only while it holds back at
// most MAX_PENDING characters, and supports at most 24 nested elements. Beyond that, the held text is written as text and parsing
// restarts.

import { copyButton } from "./copy.js";
import { languageOf } from "./languages.js";
import * as smd from "./lib/streaming-markdown/smd.min.js";

const MAX_DEPTH = 20; // nested elements, below the parser's limit of 24
const MAX_PENDING = 2048; // characters that the parser holds back: enough for an address of MAX_ADDRESS
const MAX_ADDRESS = 2048; // characters of a link: longer ones are not useful, and some servers reject them
const MAX_INDENT = 200; // columns; further leading blanks are dropped, because no list nests that deep

/** Parser token → element. Headings of a reply start at h3, below the page's own h1 and h2. */
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

/** Tokens that become several elements or have attributes. */
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
const isStructure = new Set([smd.LIST_UNORDERED, smd.LIST_ORDERED, smd.TABLE, smd.TABLE_ROW]); // contain only elements of isPart
const isPart = new Set([smd.LIST_ITEM, smd.TABLE_ROW, smd.TABLE_CELL]);
const isProse = new Set([
  smd.PARAGRAPH, smd.HEADING_1, smd.HEADING_2, smd.HEADING_3, smd.HEADING_4, smd.HEADING_5, smd.HEADING_6, smd.LIST_ITEM,
  smd.TABLE_CELL, smd.ITALIC_AST, smd.ITALIC_UND, smd.STRONG_AST, smd.STRONG_UND, smd.STRIKE, smd.LINK, smd.CODE_FENCE,
]);
const isVerbatim = new Set([
  smd.CODE_FENCE, smd.CODE_BLOCK, smd.CODE_INLINE, smd.RAW_URL, smd.IMAGE, smd.EQUATION_BLOCK, smd.EQUATION_INLINE,
]);

const ORDINARY = /^[^\\\n<`_*~$[\]!|()]$/u; // characters that are always plain text to the parser
const ALPHANUMERIC = /[\p{L}\p{N}]/u;

/** Writes Markdown into an element: call write any number of times, then end. write is synchronous, so callers pass long text in
 * slices. */
export class Markdown {
  #root;
  #parser;
  #open = []; // [{ token, node, … }]: open elements, outermost first
  #text = ""; // text not yet in the page
  #early = ""; // text that the parser still holds back but the page already shows
  #last = ""; // the previous character
  #isWithin = false; // whether #last is an underscore inside a word
  #loose = null; // the paragraph for text outside any block
  #caret = null;

  constructor(root) {
    this.#root = root;
    this.#begin();
  }

  write(text) {
    for (const character of text) {
      if (!this.#preprocess(character)) smd.parser_write(this.#parser, character);
      this.#last = character;
    }
    this.#flush();
    this.#showEarly();
  }

  /** Writes held text and closes all elements. Do not call write afterwards. */
  end() {
    this.#endLine(this.#parser);
    smd.parser_end(this.#parser);
    this.#flush();
    while (this.#open.length > 0) this.#close();
  }

  /** Removes everything and starts again. */
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

  // ---- Workarounds for the parser

  /** Gets each character before the parser does. Returns true if the parser must not get the character. */
  #preprocess(character) {
    const p = this.#parser;
    if (p.pending.length > MAX_PENDING || p.len > MAX_DEPTH) this.#release();
    const { token, pending } = p;
    if (character === "\n") this.#endLine(p);
    else if (token === smd.RAW_URL && isBehindAddress(pending, character)) {
      smd.parser_write(p, "\\"); // ends the address
      p.pending = "";
    } else if (character === ")" && this.#inAddress() && isOpen(pending.slice(2))) {
      p.pending += ")"; // balanced brackets belong to the address: …/wiki/Go_(game)
      return true;
    } else if (character === "h" && pending === "<" && isProse.has(token)) {
      this.#addText(pending); // <https://…>
      p.pending = "";
    } else if (character === " " || character === "\t") return p.indent_len > MAX_INDENT;
    this.#isWithin = character === "_" && this.#isWithinWord(p);
    if (this.#isWithin) smd.parser_write(p, "\\");
    return false;
  }

  /** Ends an address or an inline formula at the end of its line. Otherwise, an address or formula without a closing mark would
   * take the rest of the reply. */
  #endLine(p) {
    if (this.#inAddress()) this.#release();
    else if (p.token === smd.EQUATION_INLINE) {
      this.#addText(p.pending);
      this.#open.at(-1).unclosed = true;
      p.pending = "$";
    } else if (p.token === smd.CODE_FENCE && /^[^\n`]`+$/.test(p.pending)) {
      this.#addText(p.pending); // a closing fence stands alone on its line
      p.pending = "";
    }
  }

  /** Whether an underscore is inside a word, as in snake_case. To the parser, it would begin emphasis. */
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

  /** Writes, as text, the characters that the parser holds back. */
  #release() {
    const p = this.#parser;
    const isAddress = this.#inAddress();
    if (p.token === smd.RAW_URL) this.#open.at(-1).settled = true; // the address is already in the page
    else this.#addText(p.pending);
    if (isAddress) {
      this.#open.at(-1).unclosed = true;
      p.pending = "]"; // ends the link at the next character
    } else if (isVerbatim.has(p.token) && p.len <= MAX_DEPTH) {
      p.pending = "";
    } else {
      this.#flush();
      while (this.#open.length > 0) this.#close();
      this.#loose = null;
      this.#begin();
    }
  }

  // ---- Called by the parser

  #add(token) {
    this.#flush();
    this.#early = this.#text = "";
    if (token === smd.LINE_BREAK) {
      this.#addText("\n"); // the style sheet preserves line breaks, and copied text keeps them
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
    // The page may show the beginning of text already.
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

  // ---- Writing to the page

  #flush() {
    const { token, node } = this.#open.at(-1) ?? {};
    const isLoose = !node || isStructure.has(token);
    if (this.#text === "" || (isLoose && !this.#loose && this.#text.trim() === "")) return; // white space alone opens no paragraph
    const parent = isLoose ? this.#looseParagraph() : node;
    if (parent.lastChild?.nodeType === Node.TEXT_NODE) parent.lastChild.appendData(this.#text);
    else parent.append(this.#text);
    this.#text = "";
    if (this.#caret === parent) return;
    this.#caret?.removeAttribute("data-caret");
    this.#caret = parent;
    parent.setAttribute("data-caret", "");
  }

  /** Returns the parent for a new element. If a list or table cannot contain the element, the parent is a paragraph after the
   * list or table. */
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

  /** Shows the last character now if it is plain text, although the parser still holds it back. So the reader sees each delta
   * in full. */
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
  // Drop a title, as in (address "title"), and punctuation after an address in a sentence.
  const written = token === smd.RAW_URL ? value.replace(/[.,;:!?_'“”»\]]+$/u, "") : value.trim().replace(/\s+(?:"[^"]*"|'[^']*')$/, "");
  const address = addressOf(written);
  entry.settled = true;
  if (token === smd.IMAGE && node.textContent === "") node.append("image");
  if (address) {
    node.href = address;
    node.title = address; // the link's text may name another address
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

/** Token → function to call when its element closes. */
const closers = {
  [smd.LINK]: restoreBrackets,
  [smd.IMAGE]: restoreBrackets,
  [smd.CODE_FENCE]: colour,
  [smd.EQUATION_INLINE]: ({ node, mark, unclosed }) => !unclosed && node.append(mark === "$" ? "$" : "\\)"),
};

/** Highlights code, and loads the highlighter on first use. If loading fails, the code stays plain. */
function colour({ node, language }) {
  if (language.language) import("./highlight.js").then((highlight) => highlight.colour(node, language)).catch(() => {});
}

/** Restores the brackets of [text] that is not a link, because the parser has dropped them. */
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

/** Returns the attributes of a box that scrolls: focusable, with a name. The role is group, because with the role region each
 * code block would be a landmark. */
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

/** The first row is the table's head. */
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

// ---- Link addresses

/** Whether a character ends the bare address before it. */
function isBehindAddress(address, character) {
  return /[<>"`|*]/.test(character) || (character === ")" && !isOpen(address));
}

function isOpen(text) {
  return text.split("(").length > text.split(")").length;
}

/** Returns the address for a link, or "" if the address must not become a link. Links may have complete http, https and mailto
 * addresses without invisible characters. */
function addressOf(value) {
  const address = value.replace(/^<(.*)>$/, "$1");
  // White space, control characters, invisible characters and bidi controls.
  if (address.length > MAX_ADDRESS || /[\s\p{C}\u115f\u1160\u3164\uffa0]/u.test(address)) return "";
  const url = URL.parse ? URL.parse(address) : parse(address);
  if (!url || !["http:", "https:", "mailto:"].includes(url.protocol)) return "";
  return url.username || url.password ? "" : url.href; // a user name misleads: https://bank.example@elsewhere.example
}

function parse(address) {
  try {
    return new URL(address);
  } catch {
    return null;
  }
}
