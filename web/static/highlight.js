// Colours for code: loaded with the first block that has a language, and the tokenizer and that language with it. Which fences
// name which is in languages.js.
//
// The tokenizer's regular expressions see what a model wrote, and they are not all linear, so they are given little at a
// time: SLICE characters in one go, in lines of MAX_LINE, between gaps of MAX_GAP. Measured on what is worst for each
// language, that is 20 to 70 ms; code that people write takes 1 to 5. Left out of the package for what it costs: html and
// xml (exponential: 80 characters took a second), make, and md.

const SLICE = 4_000; // characters; a comment or string that goes on behind a cut is coloured as if it began there
const MAX_LENGTH = 40_000; // longer code stays as it is
const UNFIT = /[^\n]{400}|\s{80}/; // MAX_LINE, MAX_GAP

// The grammars. Addresses are written out: nothing of a reply becomes a part of one.
const from = {
  bash: () => import("./lib/@speed-highlight/core/dist/languages/bash.js"),
  c: () => import("./lib/@speed-highlight/core/dist/languages/c.js"),
  css: () => import("./lib/@speed-highlight/core/dist/languages/css.js"),
  diff: () => import("./lib/@speed-highlight/core/dist/languages/diff.js"),
  docker: () => import("./lib/@speed-highlight/core/dist/languages/docker.js"),
  go: () => import("./lib/@speed-highlight/core/dist/languages/go.js"),
  html: async () => ({ default: markup }),
  http: () => import("./lib/@speed-highlight/core/dist/languages/http.js"),
  ini: () => import("./lib/@speed-highlight/core/dist/languages/ini.js"),
  java: () => import("./lib/@speed-highlight/core/dist/languages/java.js"),
  js: () => import("./lib/@speed-highlight/core/dist/languages/js.js"),
  json: () => import("./lib/@speed-highlight/core/dist/languages/json.js"),
  lua: () => import("./lib/@speed-highlight/core/dist/languages/lua.js"),
  perl: () => import("./lib/@speed-highlight/core/dist/languages/pl.js"),
  python: () => import("./lib/@speed-highlight/core/dist/languages/py.js"),
  rust: () => import("./lib/@speed-highlight/core/dist/languages/rs.js"),
  sql: () => import("./lib/@speed-highlight/core/dist/languages/sql.js"),
  toml: () => import("./lib/@speed-highlight/core/dist/languages/toml.js"),
  ts: () => import("./lib/@speed-highlight/core/dist/languages/ts.js"),
  yaml: () => import("./lib/@speed-highlight/core/dist/languages/yaml.js"),
};

// HTML and XML, each rule linear.
const markup = [
  { type: "cmnt", match: /<!--[^]*?(?:-->|$)/g },
  {
    match: /<[/!?]?[a-zA-Z][^<>]*>/g,
    sub: [
      { type: "str", match: /"[^"]*"|'[^']*'/g },
      { type: "var", match: /^<[/!?]?[\w:-]+|[/?]?>$/g },
      { type: "class", match: /[\w:@-]+/g },
      { type: "oper", match: /=/g },
    ],
  },
  { type: "var", match: /&#?\w{1,8};/g },
];

/** colour gives the text of a code element its colours, when there is time; whatever is wrong, it stays as it is. */
export async function colour(code, { language }) {
  const source = code.textContent;
  if (!language || source.length > MAX_LENGTH || UNFIT.test(source)) return;
  try {
    const [{ tokenizeWith }, { default: grammar }] = await Promise.all([
      import("./lib/@speed-highlight/core/dist/tokenize.js"),
      from[language](),
    ]);
    const coloured = document.createDocumentFragment();
    for (const slice of slices(source)) {
      await idle();
      tokenizeWith(slice, grammar, (text, type) => coloured.append(type ? span(text, type) : text), { languages: within(grammar) });
    }
    await unselected(code);
    // A block that was rendered anew meanwhile is another element.
    if (code.isConnected && code.textContent === source && coloured.textContent === source) code.replaceChildren(coloured);
  } catch {
    // The server is away, or a browser lacks something: code without colours is code.
  }
}

/** Languages within the language: comments are comments; what stands in a template literal is JavaScript again. */
function within(grammar) {
  const comment = { type: "cmnt", sub: [] };
  return Object.assign(Object.create(null), { js: grammar, todo: comment, jsdoc: comment, regex: { type: "oper", sub: [] } });
}

function span(text, type) {
  const element = document.createElement("span");
  element.className = `hl-${type}`;
  element.textContent = text;
  return element;
}

/** Cuts at the beginning of a line, behind an empty one if there is any. */
function* slices(source) {
  let at = 0;
  while (source.length - at > SLICE) {
    const part = source.slice(at, at + SLICE);
    const cut = part.lastIndexOf("\n\n") > SLICE / 2 ? part.lastIndexOf("\n\n") + 2 : part.lastIndexOf("\n") + 1;
    yield source.slice(at, at + cut);
    at += cut;
  }
  yield source.slice(at);
}

function idle() {
  return new Promise((resolve) => (globalThis.requestIdleCallback ?? setTimeout)(resolve, { timeout: 1000 }));
}

/** Replacing what somebody has selected would undo the selection; so that waits until it is gone. */
async function unselected(code) {
  while (isSelected(code)) await new Promise((resolve) => document.addEventListener("selectionchange", resolve, { once: true }));
}

function isSelected(code) {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(code, true);
}
