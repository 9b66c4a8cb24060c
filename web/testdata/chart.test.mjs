import assert from "node:assert/strict";
import { test } from "node:test";
import { bars, measures, momentOf, scaleOf, sentenceOf, short, summaryOf } from "../static/chart.js";
import { billingPeriodOf, queryOf, rowsOf } from "../static/usage.js";

const figures = (user, prompt, p50 = null) => ({
  sessions: { total: 1 },
  messages: { total: 2 * user + 1, userMessages: user, assistantMessages: user },
  tokens: { prompt, completion: 10 },
  replies: { completed: user, cancelled: 1, failed: 0, interrupted: 0 },
  firstToken: { p50, p95: p50 && 2 * p50 },
});
const metrics = {
  period: { granularity: "hour" },
  ...figures(7, 300, 120),
  series: [
    { start: "2026-11-21T13:00:00.000Z", ...figures(2, 100) },
    { start: "2026-11-21T14:00:00.000Z", ...figures(5, 200, 120) },
  ],
};

test("the height of a stacked bar is the sum, else the maximum", () => {
  assert.deepEqual(bars(measures.messages, metrics), [
    { when: "13:00", whole: 5, values: [2, 2, 1] },
    { when: "14:00", whole: 11, values: [5, 5, 1] },
  ]);
  assert.deepEqual(bars(measures.firstToken, metrics).map(({ whole, values }) => [whole, values]), [[0, [null, null]], [240, [120, 240]]]);
  for (const measure of Object.values(measures)) {
    assert.ok(bars(measure, metrics).every(({ values }) => values.length === measure.parts.length && values.every((value) => value !== undefined)));
  }
});

test("axis values are round and cover the highest bar", () => {
  for (const [highest, steps] of [
    [0, [0, 1]],
    [1, [0, 1]],
    [3, [0, 1, 2, 3]],
    [4, [0, 1, 2, 3, 4]],
    [5, [0, 2, 4, 6]],
    [11, [0, 5, 10, 15]],
    [100, [0, 50, 100]],
    [240, [0, 100, 200, 300]],
  ]) {
    assert.deepEqual(scaleOf(highest), steps, String(highest));
  }
  for (let highest = 1; highest < 1e9; highest = Math.ceil(highest * 1.37)) {
    const steps = scaleOf(highest);
    assert.ok(steps.length <= 5 && steps.at(-1) >= highest && steps.at(-2) < highest, `${highest}: ${steps}`);
  }
});

test("summaryOf describes the chart, sentenceOf describes a bar", () => {
  assert.equal(summaryOf(measures.messages, metrics), "Messages: 7 user, 7 assistant, 1 system in total; most at 14:00: 11.");
  assert.equal(summaryOf(measures.firstToken, metrics), "Time to first token: median 120 ms, 95th percentile 240 ms in total; most at 14:00: 240 ms.");
  const nothing = { ...metrics, series: metrics.series.map((entry) => ({ ...entry, sessions: { total: 0 } })) };
  assert.equal(summaryOf(measures.sessions, nothing), "Sessions created: none in this period.");
  const [first, second] = bars(measures.firstToken, metrics);
  assert.equal(sentenceOf(measures.firstToken, first), "13:00: no reply");
  assert.equal(sentenceOf(measures.firstToken, second), "14:00: median 120, 95th percentile 240 ms");
  assert.equal(sentenceOf(measures.messages, bars(measures.messages, metrics)[0]), "13:00: 5 messages (user 2, assistant 2, system 1)");
  assert.equal(sentenceOf(measures.sessions, bars(measures.sessions, metrics)[0]), "13:00: 1 session");
});

test("labels are UTC times and short numbers", () => {
  assert.equal(momentOf("2026-11-21T00:00:00.000Z", "hour"), "00:00");
  assert.equal(momentOf("2026-11-21T00:00:00.000Z", "day"), "21 Nov");
  assert.deepEqual([0, 9999, 12_345, 3_400_000].map(short), ["0", "9,999", "12.3K", "3.4M"]);
});

test("a period ends with the current hour or day", () => {
  const now = Date.parse("2026-11-21T17:45:00Z");
  assert.deepEqual(queryOf("day", now), { startDate: "2026-11-20T18:00:00.000Z", endDate: "2026-11-21T18:00:00.000Z", granularity: "hour" });
  assert.deepEqual(queryOf("week", now), { startDate: "2026-11-15T00:00:00.000Z", endDate: "2026-11-22T00:00:00.000Z", granularity: "day" });
  assert.equal(queryOf("month", now).startDate, "2026-10-23T00:00:00.000Z");
});

test("usage rows say which figure is over its limit", () => {
  const rows = rowsOf({
    requests: { used: 1234, limit: 500_000, percentage: 0.25 },
    tokens: { used: 1_320_000, limit: 1_000_000, percentage: 132 },
    sessions: { active: 3, limit: 100, percentage: 3 },
  });
  assert.deepEqual(rows.map(({ text }) => text), [
    "1,234 of 500,000 · 0.25 %", "1,320,000 of 1,000,000 · 132 %, over the limit", "3 of 100 · 3 %",
  ]);
  assert.equal(billingPeriodOf({ start: "2026-11-01T00:00:00.000Z", end: "2026-12-01T00:00:00.000Z" }), "1 to 30 November 2026 (UTC)");
});
