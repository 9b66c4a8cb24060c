// The context window meter: the tokens of the newest prompt, the numbers of messages that were kept, summarised and dropped, and
// the button for the preview of the next prompt.

import { element } from "./element.js";

const MAX_RESERVE = 4096; // tokens

const policies = {
  fifo: "The newest messages are kept verbatim.",
  priority: "System messages are kept verbatim, then those of the highest priority.",
  semantic: "The messages most similar to the new one are kept verbatim.",
};

const similarities = {
  words: "by shared words",
  embeddings: "by embeddings and shared words",
};

const delays = {
  late: "The model took too long to summarise. The server tries again after the reply.",
  failed: "The model failed to summarise. The server tries again after the reply.",
};

/** Returns the number of tokens that are reserved for the reply: a quarter of the window, at most 4,096, as in the server. */
export function reserveOf(maxTokens) {
  return Math.min(Math.floor(maxTokens / 4), MAX_RESERVE);
}

/** Returns the texts of the meter, and the used and reserved shares of the window (0 to 1), for a ContextReport (client.d.ts). */
export function reading({ promptTokens, maxTokens, folded, dropped }) {
  const counts = [[folded.count, "summarised"], [dropped.count, "dropped"]].filter(([count]) => count > 0);
  return {
    used: Math.min(1, promptTokens / maxTokens),
    reserved: reserveOf(maxTokens) / maxTokens,
    text: `${number(promptTokens)} of ${number(maxTokens)} tokens`,
    note: counts.map(([count, what]) => `${number(count)} ${what}`).join(" · "),
  };
}

/** Returns the rows that explain a report: [term, text]. usage is the session's tokenUsage, if known. */
export function explanation({ policy, kept, folded, dropped, skipped, summarised, similarity, folding, promptTokens, maxTokens }, usage) {
  const rows = [
    ["Prompt", `${number(promptTokens)} of ${number(maxTokens)} tokens; ${number(reserveOf(maxTokens))} are reserved for the reply`],
    ["Policy", `${policy}: ${policies[policy] ?? ""}`],
    ["Kept", `${messages(kept.count)} sent verbatim`],
    ["Summarised", summarised ? `${messages(folded.count)}, sent as a summary` : "no summary was sent"],
    ["Dropped", `${messages(dropped.count)} not sent`],
    ["Skipped", `${messages(skipped.count)} without text`],
  ];
  if (similarity) rows.push(["Compared", similarities[similarity] ?? similarity]);
  if (folding) rows.push(["Summary", delays[folding] ?? folding]);
  if (usage) rows.push(["Session", `${number(usage.total)} tokens in total: ${number(usage.prompt)} in prompts, ${number(usage.completion)} in replies`]);
  return rows;
}

/** Shows the meter in an element that contains a bar and a menu. */
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

  /** on has usage(), which resolves with the session's tokenUsage or null; content(), which returns the composer's text; and
   * preview(), which opens the preview. */
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
    const { used, reserved, text, note } = reading(report);
    this.#fill(used, reserved, `${text}; ${number(reserveOf(report.maxTokens))} are reserved for the reply`, report);
    this.#write(text, note, false);
    if (this.#menu.open) this.#open();
  }

  /** Shows a compressed event, and returns what happened to the older messages, as a participle with the number of tokens. */
  shortened({ tokensBefore, tokensAfter }) {
    const text = tokensAfter ? `summarised: ${number(tokensBefore)} → ${number(tokensAfter)} tokens` : `left out: ${number(tokensBefore)} tokens`;
    if (this.#report) this.#write(reading(this.#report).text, text, false);
    return text;
  }

  /** Shows a context_overflow error: a message needed more tokens than the window has. */
  overflow({ currentTokens, maxTokens }) {
    this.#element.hidden = false;
    this.#fill(1, reserveOf(maxTokens) / maxTokens, `${number(currentTokens)} tokens needed, ${number(maxTokens)} fit`, { promptTokens: maxTokens, maxTokens });
    this.#write(`${number(currentTokens)} needed, ${number(maxTokens)} fit`, "", true);
  }

  #fill(used, reserved, valueText, { promptTokens, maxTokens }) {
    this.#bar.style.setProperty("--used", used);
    this.#bar.style.setProperty("--reserved", reserved);
    const values = { valuemin: 0, valuemax: maxTokens, valuenow: Math.min(promptTokens, maxTokens), valuetext: valueText };
    for (const [name, value] of Object.entries(values)) this.#bar.setAttribute(`aria-${name}`, value);
  }

  #write(text, note, over) {
    this.#element.toggleAttribute("data-over", over);
    this.#summary.textContent = note ? `${text} · ${note}` : text;
  }

  async #open() {
    const report = this.#report;
    const empty = this.#on.content().trim() === "";
    this.#ask.disabled = empty;
    this.#hint.textContent = empty ? "Type a message to preview its prompt." : "";
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
