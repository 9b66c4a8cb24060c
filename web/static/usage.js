// The usage dialog: the account's usage and limits (GET /analytics/usage) and a chart of its activity (GET /analytics/metrics).
// Loaded on first use.

import { Chart, bars, draw, lookOf, measures, momentOf, summaryOf } from "./chart.js";
import { element } from "./element.js";
import { ParleyError } from "./track.js";
import { describe } from "./words.js";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** The periods to choose from. Each period ends with the current hour or day (UTC). */
const periods = {
  day: { label: "24 hours", units: 24, unitMs: HOUR_MS, granularity: "hour" },
  week: { label: "7 days", units: 7, unitMs: DAY_MS, granularity: "day" },
  month: { label: "30 days", units: 30, unitMs: DAY_MS, granularity: "day" },
};

/** Returns the query for a period that ends with the current hour or day. now is in Unix milliseconds. */
export function queryOf(name, now) {
  const { units, unitMs, granularity } = periods[name];
  const end = (Math.floor(now / unitMs) + 1) * unitMs;
  return { startDate: new Date(end - units * unitMs).toISOString(), endDate: new Date(end).toISOString(), granularity };
}

/** Returns the rows { name, used, limit, percentage, text } for a Usage (client.d.ts). */
export function rowsOf({ requests, tokens, sessions }) {
  return [
    ["Requests", requests.used, requests],
    ["Tokens", tokens.used, tokens],
    ["Active sessions", sessions.active, sessions],
  ].map(([name, used, { limit, percentage }]) => {
    const over = used > limit ? ", over the limit" : "";
    return { name, used, limit, percentage, text: `${number(used)} of ${number(limit)} · ${number(percentage)} %${over}` };
  });
}

/** Returns a billing period as text, for example "1 to 30 November 2026 (UTC)". end is exclusive. */
export function billingPeriodOf({ start, end }) {
  const last = new Date(Date.parse(end) - 1);
  const day = new Date(start).getUTCDate();
  return `${day} to ${last.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" })} (UTC)`;
}

/** Shows the account's usage and the chart in a dialog element. */
export class UsageDialog {
  #dialog;
  #used = element("div", { className: "used" });
  #problem = element("p", { className: "problem", hidden: true });
  #charted = element("section", { className: "charted" });
  #caption = element("figcaption");
  #legend = element("ul", { className: "legend" });
  #readout = element("p", { className: "readout" });
  #table = element("table");
  #svg = draw("svg", { role: "img", tabindex: 0, width: "100%", height: 210 });
  #chart = new Chart(this.#svg, (text) => (this.#readout.textContent = text || " "));
  #buttons = [];
  #client = null;
  #measure = "messages";
  #period = "day";
  #metrics = null;
  #asked = 0;

  constructor(dialog) {
    this.#dialog = dialog;
    this.#readout.setAttribute("aria-live", "polite");
    this.#readout.textContent = " ";
    const select = element("select", { ariaLabel: "Measure" }, ...Object.entries(measures).map(([value, { label }]) => element("option", { value }, label)));
    select.addEventListener("change", () => {
      this.#measure = select.value;
      this.#show();
    });
    this.#buttons = Object.entries(periods).map(([name, { label }]) => {
      const button = element("button", { type: "button", ariaPressed: String(name === this.#period) }, label);
      button.addEventListener("click", () => this.#choose(name));
      button.dataset.period = name;
      return button;
    });
    const scroller = element("div", { className: "figures", tabIndex: 0 }, this.#table);
    scroller.setAttribute("role", "region");
    scroller.setAttribute("aria-label", "Figures");
    this.#charted.append(
      element("div", { className: "choice" }, select, element("div", { className: "periods", role: "group", ariaLabel: "Period" }, ...this.#buttons)),
      element("figure", {}, this.#caption, this.#svg, this.#readout, this.#legend),
      element("details", {}, element("summary", {}, "Show as table"), scroller),
    );
    const close = element("button", { type: "button", className: "icon", ariaLabel: "Close" }, element("span", { ariaHidden: "true" }, "✕"));
    close.addEventListener("click", () => dialog.close());
    dialog.replaceChildren(element("div", { className: "bar" }, element("h2", { id: "usage-title" }, "Usage"), close), this.#problem, this.#used, this.#charted);
  }

  /** Opens the dialog and loads the figures of a client's account. */
  async open(client) {
    await styled("/static/usage.css");
    this.#client = client;
    this.#metrics = null;
    this.#used.replaceChildren(element("p", {}, "Loading…"));
    this.#used.hidden = false;
    this.#charted.hidden = this.#problem.hidden = true;
    this.#dialog.showModal();
    await this.#read(async () => {
      const [usage] = await Promise.all([client.usage(), this.#load()]);
      this.#showUsed(usage);
    });
  }

  async #choose(name) {
    this.#period = name;
    for (const button of this.#buttons) button.ariaPressed = String(button.dataset.period === name);
    await this.#read(() => this.#load());
  }

  /** Runs a request and shows its error, if any. Figures of an earlier period stay visible below the error. */
  async #read(request) {
    try {
      await request();
      this.#problem.hidden = true;
    } catch (error) {
      this.#used.hidden = this.#metrics === null;
      this.#charted.hidden = this.#metrics === null;
      this.#problem.textContent = describe(error).text;
      this.#problem.hidden = false;
    }
  }

  async #load() {
    const asked = ++this.#asked;
    const metrics = await this.#client.metrics(queryOf(this.#period, Date.now()));
    if (asked !== this.#asked) return; // a later request has begun
    this.#metrics = metrics;
    this.#charted.hidden = false;
    this.#show();
  }

  #showUsed(usage) {
    const meters = rowsOf(usage).map(({ name, used, limit, text }) => {
      const bar = element("span", { className: "level", role: "meter", ariaLabel: name });
      bar.ariaValueMin = "0";
      bar.ariaValueMax = String(limit);
      bar.ariaValueNow = String(Math.min(used, limit));
      bar.ariaValueText = text;
      bar.style.setProperty("--used", Math.min(1, used / limit));
      const row = element("div", { className: "limit" }, element("span", {}, name), element("span", { className: "figure" }, text), bar);
      row.toggleAttribute("data-over", used > limit);
      return row;
    });
    const free = usage.quotas.tokensPerMonth ? "limit of requests is" : "limits of requests and tokens are";
    const about = `Tier ${usage.tier}, ${billingPeriodOf(usage.billingPeriod)}. The ${free} not enforced.`;
    this.#used.replaceChildren(element("p", {}, about), ...meters);
  }

  #show() {
    const measure = measures[this.#measure];
    this.#caption.textContent = `${summaryOf(measure, this.#metrics)} Times are UTC.`;
    this.#legend.replaceChildren(...measure.parts.map(([name], part) => element("li", {}, element("span", { className: `swatch ${lookOf(measure, part)}` }), name)));
    this.#legend.hidden = measure.parts.length < 2;
    this.#chart.show(measure, this.#metrics);
    this.#tabulate(measure);
  }

  #tabulate(measure) {
    const heads = [this.#metrics.period.granularity, ...measure.parts.map(([name]) => name)];
    const rows = bars(measure, this.#metrics).map(({ values }, i) => {
      const { start } = this.#metrics.series[i];
      const when = `${momentOf(start, "day")}${this.#metrics.period.granularity === "hour" ? ` ${momentOf(start, "hour")}` : ""}`;
      return element("tr", {}, element("th", { scope: "row" }, when), ...values.map((value) => element("td", {}, value === null ? "–" : number(value))));
    });
    const whole = measure.parts.map(([, read]) => read(this.#metrics));
    const total = element("tr", {}, element("th", { scope: "row" }, "total"), ...whole.map((value) => element("td", {}, value === null ? "–" : number(value))));
    this.#table.replaceChildren(
      element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", {}, ...rows),
      element("tfoot", {}, total),
    );
  }
}

/** Loads a style sheet once. */
function styled(href) {
  if (document.querySelector(`link[href="${href}"]`)) return null;
  const link = element("link", { rel: "stylesheet", href });
  return new Promise((resolve, reject) => {
    link.addEventListener("load", resolve);
    link.addEventListener("error", () => {
      link.remove(); // so that the next call tries again
      reject(new ParleyError("network_error", "Part of the page could not be loaded. The server cannot be reached."));
    });
    document.head.append(link);
  });
}

function number(n) {
  return n.toLocaleString("en");
}
