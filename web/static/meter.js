// The context window: how much of it the newest reply was written from, and what a message would be written from now.

import { element } from "./element.js";

const MOST_KEPT = 4096; // tokens: a quarter of the window is kept for the reply, but no more than these

const policies = {
  fifo: "The newest messages stay word for word.",
  priority: "System messages stay word for word, then those of the highest priority.",
  semantic: "The messages nearest to the new one stay word for word.",
};

const similarities = {
  words: "by the words that they share",
  embeddings: "by meaning, and by the words that they share",
};

const foldings = {
  late: "The model took too long to summarise; it is tried again behind the reply.",
  failed: "The model could not summarise; it is tried again behind the reply.",
};

/** How many tokens of a window are kept for the reply (design section 5). */
export function reserveOf(maxTokens) {
  return Math.min(Math.floor(maxTokens / 4), MOST_KEPT);
}

/** What the meter shows of a report (ContextReport of client.d.ts): shares of the window, and words. */
export function reading({ promptTokens, maxTokens, folded, dropped }) {
  const counts = [[folded.count, "folded"], [dropped.count, "dropped"]].filter(([count]) => count > 0);
  return {
    used: Math.min(1, promptTokens / maxTokens),
    kept: reserveOf(maxTokens) / maxTokens,
    text: `${number(promptTokens)} of ${number(maxTokens)} tokens`,
    note: counts.map(([count, what]) => `${number(count)} ${what}`).join(" · "),
  };
}

/** The rows that explain a report: [term, text]. usage is the session's tokenUsage, if it is known. */
export function explanation({ policy, kept, folded, dropped, skipped, summarised, similarity, folding, promptTokens, maxTokens }, usage) {
  const rows = [
    ["Prompt", `${number(promptTokens)} of ${number(maxTokens)} tokens; ${number(reserveOf(maxTokens))} are kept for the reply`],
    ["Policy", `${policy}: ${policies[policy] ?? ""}`],
    ["Kept", `${messages(kept.count)} sent word for word`],
    ["Folded", summarised ? `${messages(folded.count)} in the summary that was sent` : "no summary was sent"],
    ["Dropped", `${messages(dropped.count)} left out`],
    ["Skipped", `${messages(skipped.count)} without a text to send`],
  ];
  if (similarity) rows.push(["Compared", similarities[similarity] ?? similarity]);
  if (folding) rows.push(["Folding", foldings[folding] ?? folding]);
  if (usage) rows.push(["Session", `${number(usage.total)} tokens so far: ${number(usage.prompt)} in prompts, ${number(usage.completion)} in replies`]);
  return rows;
}

/** Meter shows the window in an element that holds a bar and a menu. */
export class Meter {
  #element;
  #bar;
  #menu;
  #summary;
  #heading;
  #list;
  #hint;
  #ask;
  #on;
  #report = null;

  /** on: usage() resolves with the session's tokenUsage; content() is what is written in the composer; preview() asks what would be
   * sent. */
  constructor(root, on) {
    this.#element = root;
    this.#bar = root.querySelector(".level");
    this.#menu = root.querySelector("details");
    this.#summary = root.querySelector("summary");
    this.#heading = root.querySelector("h2");
    this.#list = root.querySelector("dl");
    this.#hint = root.querySelector("div > p");
    this.#ask = root.querySelector("button");
    this.#on = on;
    this.#menu.addEventListener("toggle", () => this.#menu.open && this.#open());
    this.#ask.addEventListener("click", () => on.preview());
  }

  /** Shows the report of a reply; null hides the meter. */
  show(report) {
    this.#report = report;
    this.#element.hidden = !report;
    if (!report) return void (this.#menu.open = false);
    const { used, kept, text, note } = reading(report);
    this.#fill(used, kept, `${text}; ${number(reserveOf(report.maxTokens))} are kept for the reply`, report);
    this.#say(text, note, false);
    if (this.#menu.open) this.#open();
  }

  /** Folding made room behind the newest reply: a compressed event. */
  folded({ tokensBefore, tokensAfter }) {
    if (this.#report) this.#say(reading(this.#report).text, `folded: ${number(tokensBefore)} → ${number(tokensAfter)} tokens`, false);
  }

  /** A message would have needed more than the window has (a context_overflow error). */
  overflow({ currentTokens, maxTokens }) {
    this.#element.hidden = false;
    this.#fill(1, reserveOf(maxTokens) / maxTokens, `${number(currentTokens)} tokens needed, ${number(maxTokens)} fit`, { promptTokens: maxTokens, maxTokens });
    this.#say(`${number(currentTokens)} needed, ${number(maxTokens)} fit`, "", true);
  }

  #fill(used, kept, valueText, { promptTokens, maxTokens }) {
    this.#bar.style.setProperty("--used", used);
    this.#bar.style.setProperty("--kept", kept);
    const values = { valuemin: 0, valuemax: maxTokens, valuenow: Math.min(promptTokens, maxTokens), valuetext: valueText };
    for (const [name, value] of Object.entries(values)) this.#bar.setAttribute(`aria-${name}`, value);
  }

  #say(text, note, over) {
    this.#element.toggleAttribute("data-over", over);
    this.#summary.textContent = note ? `${text} · ${note}` : text;
  }

  async #open() {
    const report = this.#report;
    const empty = this.#on.content().trim() === "";
    this.#ask.disabled = empty;
    this.#hint.textContent = empty ? "Write a message, and you can see what it would be answered from." : "";
    this.#hint.hidden = !empty;
    this.#heading.hidden = this.#list.hidden = !report;
    if (!report) return;
    this.#list.replaceChildren(...rowsOf(explanation(report)));
    const usage = await this.#on.usage();
    if (usage && report === this.#report) this.#list.replaceChildren(...rowsOf(explanation(report, usage)));
  }
}

function rowsOf(rows) {
  return rows.flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, text)]);
}

function number(n) {
  return n.toLocaleString("en");
}

function messages(count) {
  return count === 1 ? "1 message" : `${number(count)} messages`;
}
