// Syntax highlighting of code blocks. The first block that needs this module, the tokenizer or a grammar loads it. languages.js
// maps the names in fences to grammars.
//
// The tokenizer's regular expressions run on untrusted text, and some of them need more than linear time. So the input is
// limited: SLICE characters per run, lines under 400 characters, fewer than 80 blanks in a row. With the worst input for each
// language, a run then takes 20 to 70 ms; ordinary code takes 1 to 5 ms. Four grammars of the package are not used, because they
// take too much time: html and xml (exponential: 80 characters took a second), make and md.

const SLICE = 4_000; // characters; a comment or string that continues into the next slice is coloured wrongly
const MAX_LENGTH = 40_000; // characters; longer code is not highlighted
const TOO_COSTLY = /[^\n]{400}|\s{80}/;

// The grammars. Their paths are literals, so that no text of a reply becomes part of a path.
const grammars = {
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

// Our own grammar for HTML and XML. Each rule takes linear time.
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

/** Highlights a code element when the browser is idle. After an error the code stays plain. */
export async function colour(code, { language }) {
  const source = code.textContent;
  if (!language || source.length > MAX_LENGTH || TOO_COSTLY.test(source)) return;
  try {
    const [{ tokenizeWith }, { default: grammar }] = await Promise.all([
      import("./lib/@speed-highlight/core/dist/tokenize.js"),
      grammars[language](),
    ]);
    const coloured = document.createDocumentFragment();
    for (const slice of slices(source)) {
      await idle();
      tokenizeWith(slice, grammar, (text, type) => coloured.append(type ? span(text, type) : text), { languages: nested(grammar) });
    }
    await unselected(code);
    // The block may have been replaced meanwhile.
    if (code.isConnected && code.textContent === source && coloured.textContent === source) code.replaceChildren(coloured);
  } catch {
    // The import failed or the browser lacks a feature: the code stays plain.
  }
}

/** Returns the grammars that may be nested in a grammar: comments get one colour, and template literals contain JavaScript. */
function nested(grammar) {
  const comment = { type: "cmnt", sub: [] };
  return Object.assign(Object.create(null), { js: grammar, todo: comment, jsdoc: comment, regex: { type: "oper", sub: [] } });
}

function span(text, type) {
  const element = document.createElement("span");
  element.className = `hl-${type}`;
  element.textContent = text;
  return element;
}

/** Splits code into slices of at most SLICE characters, at a line start and preferably after an empty line. */
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

/** Waits until nothing in the code is selected, because replacing the nodes would remove the user's selection. */
async function unselected(code) {
  while (isSelected(code)) await new Promise((resolve) => document.addEventListener("selectionchange", resolve, { once: true }));
}

function isSelected(code) {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(code, true);
}
