// The bar chart of the usage dialog: one measure over the hours or days of a period. The functions that prepare the data and the
// texts (bars, scaleOf, summaryOf, sentenceOf) are pure; the class Chart draws. Loaded on first use.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 210; // pixels
const MARGIN = { top: 12, right: 4, bottom: 24, left: 48 };
const LABEL_PX = 58; // width of the widest label on the time axis

/** The measures to choose from. A part is [name, function, CSS class]. The function takes Figures (client.d.ts) and returns the
 * value of the part. The default classes are p0, p1, …. Parts are stacked, or side by side if beside is true. */
export const measures = {
  messages: {
    label: "Messages",
    unit: "messages",
    parts: [
      ["user", ({ messages: m }) => m.userMessages],
      ["assistant", ({ messages: m }) => m.assistantMessages],
      ["system", ({ messages: m }) => m.total - m.userMessages - m.assistantMessages],
    ],
  },
  sessions: { label: "Sessions created", unit: "sessions", parts: [["created", ({ sessions }) => sessions.total]] },
  tokens: {
    label: "Tokens",
    unit: "tokens",
    parts: [["prompt", ({ tokens }) => tokens.prompt], ["completion", ({ tokens }) => tokens.completion]],
  },
  replies: {
    label: "Replies by ending",
    unit: "replies",
    parts: [
      ["completed", ({ replies }) => replies.completed],
      ["cancelled", ({ replies }) => replies.cancelled],
      ["failed", ({ replies }) => replies.failed, "failed"],
      ["interrupted", ({ replies }) => replies.interrupted, "interrupted"],
    ],
  },
  firstToken: {
    label: "Time to first token",
    unit: "ms",
    beside: true,
    parts: [["median", ({ firstToken }) => firstToken.p50], ["95th percentile", ({ firstToken }) => firstToken.p95]],
  },
};

/** Returns the CSS class of a part. */
export function lookOf({ parts }, part) {
  return parts[part][2] ?? `p${part}`;
}

/** Returns a bar { when, whole, values } for each entry of the series in Metrics (client.d.ts). values has a value for each part,
 * or null if the server has no figure. whole is the height of the bar: the sum of the values, or the highest if beside is
 * true. */
export function bars({ parts, beside }, { series, period }) {
  return series.map((entry) => {
    const values = parts.map(([, read]) => read(entry));
    const known = values.filter((value) => value !== null);
    const whole = beside ? Math.max(0, ...known) : known.reduce((sum, value) => sum + value, 0);
    return { when: momentOf(entry.start, period.granularity), whole, values };
  });
}

/** Returns at most five round axis values, from 0 to the highest value or slightly above. */
export function scaleOf(highest) {
  const rough = Math.max(1, highest) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].find((factor) => factor * power >= rough) * power);
  const count = Math.max(1, Math.ceil(highest / step));
  return Array.from({ length: count + 1 }, (_, i) => i * step);
}

/** Returns a sentence that describes the chart. */
export function summaryOf(measure, metrics) {
  const all = bars(measure, metrics);
  const totals = measure.parts.map(([name, read]) => (measure.beside ? `${name} ${number(read(metrics))} ${measure.unit}` : `${number(read(metrics))} ${name}`));
  if (all.every(({ whole }) => whole === 0)) return `${measure.label}: none in this period.`;
  const most = all.reduce((a, b) => (b.whole > a.whole ? b : a));
  const peak = `most ${metrics.period.granularity === "hour" ? "at" : "on"} ${most.when}: ${number(most.whole)}`;
  return `${measure.label}: ${totals.join(", ")} in total; ${peak}${measure.beside ? ` ${measure.unit}` : ""}.`;
}

/** Returns a text that describes one bar. */
export function sentenceOf({ unit, parts, beside }, { when, whole, values }) {
  const named = parts.map(([name], i) => `${name} ${values[i] === null ? "–" : number(values[i])}`).join(", ");
  if (beside) return `${when}: ${values[0] === null ? "no reply" : `${named} ${unit}`}`;
  const all = `${when}: ${number(whole)} ${whole === 1 ? unit.slice(0, -1) : unit}`;
  return parts.length === 1 ? all : `${all} (${named})`;
}

/** Returns the label of an hour ("14:00") or a day ("21 Nov") in UTC, because the server's periods are in UTC. */
export function momentOf(start, granularity) {
  const options = granularity === "hour" ? { hour: "2-digit", minute: "2-digit" } : { day: "numeric", month: "short" };
  return new Date(start).toLocaleString("en-GB", { ...options, timeZone: "UTC" });
}

/** Formats an axis value, for example as 1,234, 12K or 3.4M. */
export function short(n) {
  return n < 10_000 ? number(n) : n.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
}

function number(n) {
  return n === null ? "–" : n.toLocaleString("en");
}

/** Creates an SVG element. */
export function draw(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.append(...children);
  return made;
}

/** Draws in an <svg> of any width. Describes one bar: the bar under the pointer, or the bar chosen with the arrow keys. */
export class Chart {
  #svg;
  #say;
  #measure = null;
  #metrics = null;
  #bars = [];
  #at = null; // index of the chosen bar
  #width = 0;

  /** say(text) shows the description of the chosen bar, or "" for none. */
  constructor(svg, say) {
    this.#svg = svg;
    this.#say = say;
    new ResizeObserver(([{ contentRect }]) => this.#resize(contentRect.width)).observe(svg);
    svg.addEventListener("pointermove", (event) => this.#point(this.#under(event)));
    svg.addEventListener("pointerdown", (event) => this.#point(this.#under(event)));
    svg.addEventListener("pointerleave", () => document.activeElement !== svg && this.#point(null)); // keep a bar chosen by keyboard
    svg.addEventListener("blur", () => this.#point(null));
    svg.addEventListener("keydown", (event) => this.#press(event));
  }

  show(measure, metrics) {
    this.#measure = measure;
    this.#metrics = metrics;
    this.#bars = bars(measure, metrics);
    this.#svg.setAttribute("aria-label", `${summaryOf(measure, metrics)} Use the arrow keys to move between bars.`);
    this.#point(null);
    this.#draw();
  }

  #resize(width) {
    if (Math.round(width) === this.#width) return;
    this.#width = Math.round(width);
    this.#draw();
  }

  #draw() {
    if (!this.#metrics || this.#width === 0) return;
    const steps = scaleOf(Math.max(0, ...this.#bars.map(({ whole }) => whole)));
    this.#svg.setAttribute("viewBox", `0 0 ${this.#width} ${HEIGHT}`);
    this.#svg.setAttribute("height", HEIGHT);
    const y = (value) => HEIGHT - MARGIN.bottom - (value / steps.at(-1)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    this.#svg.replaceChildren(
      ...steps.flatMap((step) => this.#ruleOf(step, y(step))),
      ...this.#bars.map((bar, i) => draw("g", { class: "unit" }, ...this.#columnOf(bar, i, y))),
      ...this.#labels(),
    );
    this.#highlight();
  }

  #ruleOf(step, y) {
    return [
      draw("line", { x1: MARGIN.left, x2: this.#width - MARGIN.right, y1: y, y2: y, class: step === 0 ? "base" : "rule" }),
      draw("text", { x: MARGIN.left - 8, y: y + 4, class: "step" }, short(step)),
    ];
  }

  get #pitch() {
    return (this.#width - MARGIN.left - MARGIN.right) / this.#bars.length;
  }

  /** Returns the elements of one bar: a background of full height, and its parts. */
  #columnOf({ values }, i, y) {
    const pitch = this.#pitch;
    const left = MARGIN.left + i * pitch;
    const wide = Math.max(1, Math.min(40, pitch * 0.72));
    const ground = draw("rect", { x: left, y: MARGIN.top, width: pitch, height: HEIGHT - MARGIN.top - MARGIN.bottom, class: "ground" });
    const { beside, parts } = this.#measure;
    let sum = 0;
    const rects = values.map((value, part) => {
      const from = beside ? 0 : sum;
      sum += value ?? 0;
      const top = y(from + (value ?? 0));
      const width = beside ? wide / parts.length : wide;
      const x = left + (pitch - wide) / 2 + (beside ? part * width : 0);
      return value ? draw("rect", { x, y: top, width, height: Math.max(1, y(from) - top), class: `part ${lookOf(this.#measure, part)}` }) : null;
    });
    return [ground, ...rects.filter(Boolean)];
  }

  /** Returns the labels of the time axis, as many as fit. */
  #labels() {
    const every = Math.max(1, Math.ceil(LABEL_PX / this.#pitch));
    return this.#bars.flatMap(({ when }, i) => {
      if (i % every !== 0 || MARGIN.left + (i + 0.5) * this.#pitch + LABEL_PX / 2 > this.#width + 8) return [];
      return draw("text", { x: MARGIN.left + (i + 0.5) * this.#pitch, y: HEIGHT - 6, class: "when" }, when);
    });
  }

  #under({ clientX }) {
    const i = Math.floor((clientX - this.#svg.getBoundingClientRect().left - MARGIN.left) / this.#pitch);
    return i >= 0 && i < this.#bars.length ? i : null;
  }

  #press(event) {
    const last = this.#bars.length - 1;
    const to = {
      ArrowRight: this.#at === null ? 0 : Math.min(last, this.#at + 1),
      ArrowLeft: this.#at === null ? last : Math.max(0, this.#at - 1),
      Home: 0,
      End: last,
    }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.#point(to);
  }

  #point(at) {
    if (this.#at === at && at !== null) return;
    this.#at = at;
    this.#highlight();
    this.#say(at === null ? "" : sentenceOf(this.#measure, this.#bars[at]));
  }

  #highlight() {
    this.#svg.querySelectorAll(".unit").forEach((unit, i) => unit.toggleAttribute("data-at", i === this.#at));
  }
}
