import assert from "node:assert/strict";
import { test } from "node:test";
import { explanation, reading, reserveOf } from "../static/meter.js";

const report = (extra) => ({
  policy: "fifo", promptTokens: 812, maxTokens: 4096, kept: { count: 3 }, folded: { count: 0 }, dropped: { count: 0 }, skipped: { count: 0 },
  summarised: false, ...extra,
});
const row = (rows, name) => rows.find(([term]) => term === name)?.[1];

test("reserveOf: a quarter of the window, at most 4,096 tokens", () => {
  assert.deepEqual([64, 512, 1023, 16_384, 131_072].map(reserveOf), [16, 128, 255, 4096, 4096]);
});

test("reading returns the shares of the bar and the texts", () => {
  assert.deepEqual(reading(report()), { used: 812 / 4096, reserved: 0.25, text: "812 of 4,096 tokens", note: "" });
  assert.equal(reading(report({ folded: { count: 12 }, dropped: { count: 2 } })).note, "12 summarised · 2 dropped");
  assert.equal(reading(report({ dropped: { count: 1200 } })).note, "1,200 dropped");
  assert.equal(reading(report({ promptTokens: 5000 })).used, 1, "the used share is at most 1");
});

test("explanation has a row for each part of a report", () => {
  const rows = explanation(report({ summarised: true, folded: { count: 1 }, folding: "late" }), { total: 1500, prompt: 1000, completion: 500 });
  assert.equal(row(rows, "Kept"), "3 messages sent verbatim");
  assert.equal(row(rows, "Summarised"), "1 message, sent as a summary");
  assert.match(row(rows, "Summary"), /too long/);
  assert.equal(row(rows, "Session"), "1,500 tokens in total: 1,000 in prompts, 500 in replies");
  assert.equal(row(explanation(report()), "Summary"), undefined);
  assert.equal(row(explanation(report()), "Summarised"), "no summary was sent");
  assert.match(row(explanation(report({ folding: "failed" })), "Summary"), /failed/);
  assert.equal(row(explanation(report()), "Compared"), undefined);
  assert.equal(row(explanation(report({ similarity: "words" })), "Compared"), "by shared words");
  assert.match(row(explanation(report({ similarity: "embeddings" })), "Compared"), /by embeddings/);
});
