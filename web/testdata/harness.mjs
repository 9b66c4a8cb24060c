// The part of package web's tests that runs in the browser, under the page's content security policy. Go calls the functions of
// `tests`.

import { Log } from "/static/log.js";
import { Markdown } from "/static/markdown.js";
import { hostile, links, violations } from "./hostile.mjs";

globalThis.ran = []; // the functions that hostile text has called, and the policy violations
for (const name of ["alert", "confirm", "prompt"]) globalThis[name] = () => ran.push(name);
addEventListener("securitypolicyviolation", (event) => ran.push(`violates ${event.violatedDirective}`));

/** Time of a long hostile text in pieces, by name, as tests.hostile() has measured it. */
const measured = new Map();

const longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask" });

/** Returns a generator of reproducible numbers in [0, 1). */
function random(seed) {
  return () => ((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32);
}

function chunksOf(text, longest, seed) {
  const next = random(seed);
  const chunks = [];
  for (let at = 0; at < text.length; ) chunks.push(text.slice(at, (at += 1 + Math.floor(next() * longest))));
  return chunks;
}

function place() {
  const element = document.createElement("div");
  element.className = "text";
  document.getElementById("log").replaceChildren(element);
  return element;
}

/** Renders chunks. Returns { element, removed: names of the nodes that were removed or changed, ms: the time without end() }. */
function render(chunks) {
  const element = place();
  const removed = [];
  const observer = new MutationObserver(() => {});
  observer.observe(element, { childList: true, characterData: true, characterDataOldValue: true, subtree: true });
  const started = performance.now();
  const markdown = new Markdown(element);
  for (const chunk of chunks) markdown.write(chunk);
  const ms = performance.now() - started;
  markdown.end();
  for (const { removedNodes, type, oldValue, target } of observer.takeRecords()) {
    for (const node of removedNodes) removed.push(node.nodeName);
    if (type === "characterData" && !target.data.startsWith(oldValue)) removed.push(`text of ${target.parentNode?.nodeName}`);
  }
  return { element, removed, ms };
}

/** Returns the letters and digits of a text, which rendering must keep. */
const words = (text) => text.normalize("NFC").match(/[\p{L}\p{N}]+/gu)?.join("") ?? "";

const depthOf = (element) => Math.max(0, ...[...element.querySelectorAll("*")].map((node) => {
  let depth = 0;
  for (; node !== element; node = node.parentNode) depth += 1;
  return depth;
}));

/** Returns the text of an element without the labels of code blocks, because the source does not contain these labels. */
const shown = (element) => {
  const copy = element.cloneNode(true);
  for (const head of copy.querySelectorAll(".head")) head.remove();
  return copy.textContent;
};

globalThis.tests = {
  /** Renders every hostile text, whole and in pieces. Returns { wrong: [failure], count: number of texts }. */
  async hostile() {
    const wrong = [];
    const corpus = hostile();
    for (const [name, text, options = {}] of corpus) {
      document.getElementById("log").hidden = text.length > 50_000; // the layout of a long text would only cost time
      const whole = render([text]);
      const text0 = shown(whole.element);
      const say = (what) => wrong.push(`${name}: ${what}`);
      for (const violation of new Set(violations(whole.element))) say(`has ${violation}`);
      if (whole.removed.length) say(`removes ${[...new Set(whole.removed)]}`);
      if (depthOf(whole.element) > 60) say(`${depthOf(whole.element)} elements within each other`);
      if (options.shows !== undefined) { if (!text0.includes(options.shows)) say(`does not show ${JSON.stringify(options.shows)}, but ${JSON.stringify(text0.slice(0, 200))}`); }
      if (!options.loses && words(text0) !== words(text)) say(`loses words: ${JSON.stringify(text0.slice(0, 300))} of ${JSON.stringify(text.slice(0, 300))}`);
      if (options.link !== undefined && (whole.element.querySelector("a[href]")?.href ?? "") !== options.link) say(`links to ${whole.element.querySelector("a[href]")?.href}`);
      const html = whole.element.outerHTML;
      for (const seed of text.length > 50_000 ? [1] : [1, 2, 3]) {
        const pieces = render(chunksOf(text, text.length > 50_000 ? 400 : 7, seed));
        if (pieces.element.outerHTML.replaceAll(' data-caret=""', "") !== html.replaceAll(' data-caret=""', "")) say(`is rendered differently in pieces:\n${pieces.element.outerHTML.slice(0, 400)}\n${html.slice(0, 400)}`);
        if (text.length > 50_000) measured.set(name, pieces.ms);
        if (pieces.removed.length) say(`in pieces, removes ${[...new Set(pieces.removed)]}`);
      }
      for (const link of whole.element.querySelectorAll("a:not([href])")) link.click();
      await new Promise((resolve) => setTimeout(resolve));
    }
    document.getElementById("log").hidden = false;
    if (ran.length) wrong.push(`ran: ${ran}`);
    const elsewhere = performance.getEntriesByType("resource").map(({ name }) => name).filter((name) => !name.startsWith(location.origin + "/"));
    if (elsewhere.length) wrong.push(`requested ${elsewhere}`);
    return JSON.stringify({ wrong, count: corpus.length });
  },

  /** Renders each long hostile text whole and at an eighth of its length. Returns [{ name, growth }], where growth is the
   * quotient of the two times. A time counts as at least 1 ms, because clocks are coarse below 1 ms. If hostile() has measured a
   * whole text, the first call uses that time. names are the texts to render; [] for all. */
  growth(names) {
    document.getElementById("log").hidden = true;
    const time = (text) => render(chunksOf(text, 400, 1)).ms;
    const short = new Map(hostile(1 / 8).map(([name, text]) => [name, text]));
    const found = [];
    for (const [name, text] of hostile()) {
      if (short.get(name).length === text.length || (names.length && !names.includes(name))) continue;
      const whole = measured.get(name) ?? time(text);
      measured.delete(name);
      found.push({ name, growth: Math.max(1, whole) / Math.max(1, time(short.get(name))) });
    }
    document.getElementById("log").hidden = false;
    return JSON.stringify(found);
  },

  /** Renders count random sequences of Markdown syntax, whole and in pieces. Returns the failures. */
  random(count, seed) {
    const atoms = ["*", "**", "_", "__", "`", "``", "```\n", "```", "\n", "\n\n", "- ", "\n- ", "\n  - ", "1. ", "> ", "\n> ", "# ", "| ", "\n|", "|---|\n", "[", "]", "](", "(", ")", "![",
      "<br>", "<", ">", "$", "$$\n", "\\(", "\\)", "\\[", "\\", "\n    ", "\t", " ", "a", "b c", "~~", "https://d.example/", "javascript:", "[ ] ", "---\n", "é", "\ud83d", "\u0000", "h"];
    const next = random(seed);
    const wrong = [];
    for (let n = 0; n < count && wrong.length < 5; n++) {
      const source = Array.from({ length: 5 + Math.floor(next() * 40) }, () => atoms[Math.floor(next() * atoms.length)]).join("");
      const say = (what) => wrong.push(`${JSON.stringify(source)}: ${what}`);
      const html = ({ element }) => element.outerHTML.replaceAll(' data-caret=""', "");
      const whole = render([source]);
      const pieces = render(chunksOf(source, 4, n));
      const [one, other] = [html(whole), html(pieces)];
      if (one !== other) say(`is rendered differently in pieces:\n${one}\n${other}`);
      for (const violation of violations(whole.element)) say(`has ${violation}`);
      if (whole.removed.length || pieces.removed.length) say(`removes ${whole.removed} ${pieces.removed}`);
      const lossy = /```|\]\(|<br|\d\./.test(source); // names of languages, addresses and list numbers are not shown as text
      if (!lossy && words(shown(whole.element)) !== words(source)) say(`loses words: ${one}`);
    }
    return JSON.stringify(wrong.concat(ran));
  },

  links: () => JSON.stringify(links.filter(([address, want]) => {
    const { element } = render([`[x](${address})`]);
    return (element.querySelector("a[href]")?.getAttribute("href") ?? "") !== want;
  })),

  /** Renders a text, and chunks after it, and returns the HTML. */
  html(text, ...chunks) {
    return render([text, ...chunks]).element.innerHTML.replaceAll(' data-caret=""', "");
  },
};

// ---- The log

let scroller;
/** Creates a log in a new scroller, because the previous log still listens to the events of the old scroller. */
const newLog = (actionsOf) => {
  const old = document.getElementById("scroller");
  scroller = old.cloneNode(true);
  scroller.querySelector(".jump")?.remove();
  scroller.querySelector("#log").replaceChildren();
  old.replaceWith(scroller);
  return new Log(document.getElementById("log"), scroller, () => {}, actionsOf);
};
const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
const settled = async (ready) => { while (!ready()) await frame(); };
const text = () => document.querySelector("article:last-child .text");
const message = (id, content, status = "completed", role = "assistant") => ({ messageId: `msg_${id}`, role, content, status, tokens: 1 });

/** Returns prose of the given length with the common kinds of Markdown. */
function sample(length) {
  const next = random(7);
  const word = () => ["stream", "reply", "cursor", "offset", "*token*", "**durable**", "`text`", "viewer", "[link](https://a.example/)", "of", "the", "a", "in"][Math.floor(next() * 13)];
  let made = "";
  for (let n = 1; made.length < length; n++) {
    made += word() + " ";
    if (n % 60 === 0) made += "\n\n";
    if (n % 300 === 0) made += "## Heading\n\n- one\n- two\n  - three\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```go\nfunc main() {\n\tprintln(\"hello\") // a comment\n}\n```\n\n";
  }
  return made.slice(0, length);
}

/** Resolves in the next task, without waiting for a frame. A socket's messages arrive in such tasks. */
const task = () => new Promise((resolve) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = resolve;
  port2.postMessage(null);
});

Object.assign(globalThis.tests, {
  /** Streams a reply of count tokens as fast as possible, ten per task. Returns { ms: the whole time, longest: the longest task
   * in ms, writes: the number of times that the page was written }. */
  async tokens(count) {
    const content = sample(count * 4.5);
    const log = newLog();
    longTasks.length = 0;
    const started = performance.now();
    log.add(message(1, "", "streaming"));
    let writes = 0;
    const observer = new MutationObserver(() => (writes += 1));
    observer.observe(document.getElementById("log"), { childList: true, characterData: true, subtree: true });
    for (let n = 0; n < count; n++) {
      log.append("msg_1", content.slice(Math.floor(n * 4.5), Math.floor((n + 1) * 4.5)));
      if (n % 10 === 9) await task();
    }
    log.add(message(1, content));
    await settled(() => document.querySelector("article").dataset.status === "completed" && text().textContent.length > content.length * 0.5);
    const ms = performance.now() - started;
    await frame();
    return JSON.stringify({ ms, writes, longest: Math.max(0, ...longTasks) });
  },

  /** Shows count messages of `length` characters, as for a page of history. If line is true, each message is one long line.
   * Returns { ms, longest: the longest task in ms, atEnd: whether the view is at the end }. */
  async history(count, length, line = false) {
    const content = line ? "word ".repeat(length / 5) : sample(length);
    const log = newLog();
    await frame();
    longTasks.length = 0;
    const started = performance.now();
    for (let n = 0; n < count; n++) log.add(message(n, content));
    const all = () => [...document.querySelectorAll("article .text")].every((element) => element.textContent.length > content.length * 0.5);
    do await new Promise((resolve) => setTimeout(resolve, 100)); while (!all());
    const ms = performance.now() - started;
    await frame();
    return JSON.stringify({ ms, longest: Math.max(0, ...longTasks), atEnd: scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 2 });
  },

  /** Ends streamed replies in three ways: with the streamed text, with a longer text, and with another text. Only the third may
   * remove nodes. */
  async ends() {
    const wrong = [];
    const streamed = "Some *text*, and `more` of it\n\n- one\n- two";
    for (const [name, whole, removes] of [["the same", streamed, false], ["more", `${streamed} and three`, false], ["another", "Another *text*", true]]) {
      const log = newLog();
      log.add(message(1, "", "streaming"));
      for (const piece of chunksOf(streamed, 5, 3)) log.append("msg_1", piece);
      await frame();
      getSelection().selectAllChildren(text().querySelector("em"));
      let removed = false;
      const observer = new MutationObserver((records) => (removed ||= records.some(({ removedNodes }) => removedNodes.length > 0)));
      observer.observe(text(), { childList: true, subtree: true });
      log.add(message(1, whole));
      await frame();
      if (removed !== removes) wrong.push(`${name}: ${removed ? "nodes were" : "no node was"} removed`);
      if (!removes && String(getSelection()) !== "text") wrong.push(`${name}: the selection is ${JSON.stringify(String(getSelection()))}`);
      if (words(text().textContent) !== words(whole)) wrong.push(`${name}: shows ${text().textContent}`);
      if (document.querySelector("article").dataset.status !== "completed") wrong.push(`${name}: not completed`);
    }
    return JSON.stringify(wrong);
  },

  /** Checks that prose appears at once with its last character, and that Markdown of users is not rendered. */
  async prose() {
    const wrong = [];
    const log = newLog();
    log.add(message(1, "", "streaming"));
    let sent = "";
    for (const word of "The reply is durable: a viewer (any) holds an offset, 1 of 2.".split(/(?<= )/)) {
      log.append("msg_1", word);
      sent += word;
      await frame();
      if (text().textContent !== sent) wrong.push(`${JSON.stringify(text().textContent)} where ${JSON.stringify(sent)} was sent`);
    }
    for (const role of ["user", "system"]) {
      const plain = "# *not* <b>markdown</b>  \n\n  [x](https://a.example)";
      log.add(message(role, plain, "completed", role));
      if (text().textContent !== plain || text().childElementCount > 0) wrong.push(`${role}: ${text().innerHTML}`);
    }
    return JSON.stringify(wrong);
  },

  /** Checks that deltas are written once per frame. A hidden tab has no frames; there a timer writes them. */
  async hidden() {
    const wrong = [];
    const log = newLog();
    log.add(message(1, "", "streaming"));
    await frame();
    let writes = 0;
    const observer = new MutationObserver(() => (writes += 1));
    observer.observe(text(), { childList: true, characterData: true, subtree: true });
    for (let n = 0; n < 200; n++) { log.append("msg_1", "word "); await Promise.resolve(); }
    await frame();
    if (writes > 2) wrong.push(`200 deltas in one task were written ${writes} times`);
    const { requestAnimationFrame } = globalThis;
    globalThis.requestAnimationFrame = () => 1;
    log.append("msg_1", "unseen");
    await new Promise((resolve) => { const look = setInterval(() => text().textContent.endsWith("unseen") && (clearInterval(look), resolve()), 20); });
    log.append("msg_1", "again");
    document.dispatchEvent(new Event("visibilitychange"));
    if (!text().textContent.endsWith("again")) wrong.push("nothing is written when the tab is shown or hidden");
    log.append("msg_1", "end");
    log.add(message(1, "word ".repeat(200) + "unseenagainend"));
    await Promise.resolve();
    if (!text().textContent.endsWith("end")) wrong.push("the end is not written at once");
    globalThis.requestAnimationFrame = requestAnimationFrame;
    return JSON.stringify(wrong);
  },

  /** Checks that new text does not move the view of a reader who scrolled up, and that a button leads back to the end. */
  async jump() {
    const wrong = [];
    const log = newLog();
    const button = () => document.querySelector(".jump button");
    const distance = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
    for (let n = 0; n < 20; n++) log.add(message(n, sample(600)));
    await frame(); await frame();
    if (distance() > 2) wrong.push(`${distance()} px from the end after loading`);
    if (!button().hidden) wrong.push("the button is there at the end");
    await settled(() => [...document.querySelectorAll("article .text")].every((element) => element.textContent.length > 300));
    await frame(); await frame();
    scroller.scrollTop -= 500;
    log.add(message(19, `${sample(600)} and a little more`)); // before the scroll event arrives
    await frame(); await frame();
    if (button().hidden || button().textContent !== "Jump to the end ↓") wrong.push(`away from the end: the button is hidden: ${button().hidden}, its text is ${button().textContent}`);
    const top = scroller.scrollTop;
    log.add(message(100, "hello", "completed", "user"));
    log.add(message(101, sample(2000), "streaming"));
    await frame(); await frame();
    if (scroller.scrollTop !== top) wrong.push("the reader was moved");
    if (button().textContent !== "2 new messages ↓") wrong.push(`after two more messages, the button says ${button().textContent}`);
    button().click();
    await frame(); await frame();
    if (distance() > 2 || !button().hidden) wrong.push(`after the jump: ${distance()} px from the end, the button is hidden: ${button().hidden}`);
    log.append("msg_101", sample(3000));
    await frame(); await frame();
    if (distance() > 2) wrong.push(`${distance()} px from the end while text grows`);
    return JSON.stringify(wrong);
  },

  /** Scrolls away from the end. */
  async away() {
    scroller.scrollTop -= 600;
    await frame(); await frame();
  },

  /** Checks that older messages, added at the top, do not move the text in view, neither at once nor when they are rendered. */
  async prepend() {
    const wrong = [];
    const log = newLog();
    // Each message ends with a mark, so that the test can tell when all of them are rendered.
    const rendered = () => settled(() => [...document.querySelectorAll("article .text")].every((element) => element.textContent.endsWith("END")));
    const older = (first, count, length) => Array.from({ length: count }, (_, n) => message(first + n, `${sample(length)}\n\nEND`));
    for (const one of older(100, 20, 500)) log.add(one);
    await rendered();
    await frame(); await frame();
    scroller.scrollTop = 300;
    await frame(); await frame();
    const read = [...document.querySelectorAll("article")].find((article) => article.getBoundingClientRect().top > 100);
    const before = read.getBoundingClientRect().top;
    const check = (when) => {
      const moved = read.getBoundingClientRect().top - before;
      if (Math.abs(moved) > 2) wrong.push(`moved by ${moved} px ${when}`);
    };
    log.prepend(older(0, 50, 4000));
    check("at once");
    await rendered();
    await frame(); await frame(); // scroll anchoring acts in the next frame
    check("after rendering");
    return JSON.stringify(wrong);
  },

  /** Checks that Copy copies the Markdown source, and that a message gets new buttons when its status changes. */
  async actions() {
    const wrong = [];
    const asked = [];
    const log = newLog((about) => { asked.push(about.status); const button = document.createElement("button"); button.textContent = "Again"; return [button]; });
    log.add(message(1, "", "streaming"));
    log.append("msg_1", "# Raw *Markdown*");
    log.add(message(1, "# Raw *Markdown*"));
    const labels = [...document.querySelectorAll(".actions button")].map((button) => button.getAttribute("aria-label") ?? button.textContent);
    if (labels.join() !== "Copy message,Again") wrong.push(`wrong buttons: ${labels}`);
    if (asked.join() !== "streaming,completed") wrong.push(`actionsOf was called for ${asked}`);
    const copied = [];
    const swap = (clipboard) => Object.defineProperty(navigator, "clipboard", { value: clipboard, configurable: true });
    swap({ writeText: async (text) => copied.push(text) });
    const texts = new Set(); // all texts of the button and of the live region, which change back after 1.5 s
    const observer = new MutationObserver(() => { for (const at of document.querySelectorAll(".copy, p[role=status]")) texts.add(`${at.localName} ${at.textContent}`); });
    observer.observe(document.body, { subtree: true, childList: true, characterData: true });
    document.querySelector(".copy").click();
    await settled(() => texts.has("button Copied") && texts.has("p Copied"));
    if (copied.join() !== "# Raw *Markdown*") wrong.push(`copied ${copied}`);
    swap(undefined);
    const { execCommand } = document;
    document.execCommand = () => { copied.push(document.activeElement.value); return false; };
    copied.length = 0;
    document.querySelector(".copy").click();
    await settled(() => texts.has("button Copying failed"));
    observer.disconnect();
    if (copied.join() !== "# Raw *Markdown*") wrong.push(`without a clipboard: ${copied}`);
    document.execCommand = execCommand;
    delete navigator.clipboard;
    if (document.querySelector("textarea")) wrong.push("the temporary text field is still there");
    return JSON.stringify(wrong);
  },

  /** Renders a code block and returns its highlighted tokens as "class:text …". */
  async coloured(language, code) {
    const { element } = render([`\`\`\`${language}\n${code}\n\`\`\`\n`]);
    const deadline = performance.now() + 60_000; // reached only if the code is never highlighted
    while (!element.querySelector("code span") && performance.now() < deadline) await frame();
    if (element.querySelector("code").textContent !== code) return "the text has changed";
    return [...element.querySelectorAll("code span")].map((span) => `${span.className.slice(3)}:${span.textContent.trim()}`).join(" ");
  },

  /** Returns the lowest contrast between a text in the log and its background: { ratio, what: the element }. */
  contrast() {
    const luminance = ([r, g, b]) => [r, g, b].map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
    const ground = (element) => { for (; element; element = element.parentElement) { const c = numbers(getComputedStyle(element).backgroundColor); if (c[3] !== 0) return c; } };
    let least = { ratio: 99 };
    for (const element of document.querySelectorAll("article *")) {
      if (![...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())) continue;
      const [a, b] = [luminance(numbers(getComputedStyle(element).color)), luminance(ground(element))];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (ratio < least.ratio) least = { ratio, what: `${element.localName}.${element.className} ${element.textContent.slice(0, 20)}` };
    }
    return JSON.stringify(least);
  },

  /** Shows a conversation and waits until its code is highlighted. */
  async show(question, reply, status = "completed") {
    const log = newLog();
    log.add(message(1, question, "completed", "user"));
    log.add({ ...message(2, reply, status), tokens: 412 });
    await settled(() => text().querySelector("code span"));
    await frame();
  },
});
document.documentElement.dataset.ready = "";
