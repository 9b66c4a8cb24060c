import assert from "node:assert/strict";
import { test } from "node:test";
import { explanation, reading, reserveOf } from "../static/meter.js";

const report = (extra) => ({
  policy: "fifo", promptTokens: 812, maxTokens: 4096, kept: { count: 3 }, folded: { count: 0 }, dropped: { count: 0 }, skipped: { count: 0 },
  summarised: false, ...extra,
});
const row = (rows, name) => rows.find(([term]) => term === name)?.[1];

test("a quarter is kept for the reply, 4,096 tokens at most", () => {
  assert.deepEqual([64, 512, 1023, 16_384, 131_072].map(reserveOf), [16, 128, 255, 4096, 4096]);
});

test("the meter reads what the prompt took", () => {
  assert.deepEqual(reading(report()), { used: 812 / 4096, kept: 0.25, text: "812 of 4,096 tokens", note: "" });
  assert.equal(reading(report({ folded: { count: 12 }, dropped: { count: 2 } })).note, "12 folded · 2 dropped");
  assert.equal(reading(report({ dropped: { count: 1200 } })).note, "1,200 dropped");
  assert.equal(reading(report({ promptTokens: 5000 })).used, 1, "it never overflows its bar");
});

test("it is explained in rows", () => {
  const rows = explanation(report({ summarised: true, folded: { count: 1 }, folding: "late" }), { total: 1500, prompt: 1000, completion: 500 });
  assert.equal(row(rows, "Kept"), "3 messages sent word for word");
  assert.equal(row(rows, "Folded"), "1 message in the summary that was sent");
  assert.match(row(rows, "Folding"), /too long/);
  assert.equal(row(rows, "Session"), "1,500 tokens so far: 1,000 in prompts, 500 in replies");
  assert.equal(row(explanation(report()), "Folding"), undefined);
  assert.equal(row(explanation(report()), "Folded"), "no summary was sent");
  assert.match(row(explanation(report({ folding: "failed" })), "Folding"), /could not/);
  assert.equal(row(explanation(report()), "Compared"), undefined);
  assert.equal(row(explanation(report({ similarity: "words" })), "Compared"), "by the words that they share");
  assert.match(row(explanation(report({ similarity: "embeddings" })), "Compared"), /by meaning/);
});
