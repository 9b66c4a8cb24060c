import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Timing } from "../static/timing.js";

const ID = "msg_0000000000000002";
let timing;

beforeEach(() => (timing = new Timing()));

/** Plays a reply: deltas as [moment, text]; what it is noted as. */
function play(deltas, { tokens = 100, status = "completed", began = 5000, lost = "" } = {}) {
  timing.take({ type: "created", messageId: ID, message: { role: "assistant" } }, began);
  return goOn(deltas, { tokens, status, lost });
}

function goOn(deltas, { tokens = 100, status = "completed", lost = "" } = {}) {
  let offset = 0;
  let content = lost;
  for (const [now, text] of deltas) {
    const end = offset + Buffer.byteLength(text);
    timing.take({ type: "delta", messageId: ID, offset, end, delta: text }, now);
    offset = end;
    content += text;
  }
  timing.take({ type: "end", messageId: ID, status, message: { messageId: ID, status, content, tokens } }, 99_999);
  return timing.noteOf(ID);
}

test("the first token, and the rate from there to the last", () => {
  assert.equal(play([[5210, "aaaa"], [6000, "bbbb"], [7210, "ää"]]), "first after 0.21 s · 33 tokens/s");
});

test("while it is written, how soon it began", () => {
  timing.take({ type: "created", messageId: ID, message: { role: "assistant" } }, 0);
  assert.equal(timing.live(ID), "");
  timing.take({ type: "delta", messageId: ID, offset: 0, end: 1 }, 430);
  timing.take({ type: "delta", messageId: ID, offset: 1, end: 2 }, 800);
  assert.equal(timing.live(ID), "first after 0.43 s");
  timing.expectReplay(900);
  assert.equal(timing.live(ID), "");
});

test("a rate below ten has a decimal", () => {
  assert.equal(play([[5000, "a"], [15_000, "a"]], { tokens: 10 }), "first after 0.00 s · 0.5 tokens/s");
  assert.equal(play([[17_000, "a"]]), "first after 12 s");
});

test("a span under 50 ms has no rate", () => {
  assert.equal(play([[5100, "a"], [5149, "b"]]), "first after 0.10 s");
  assert.equal(play([[5100, "a"], [5150, "b"]]), "first after 0.10 s · 1,000 tokens/s");
});

test("nothing is said of replies that were not watched from the beginning to the end", () => {
  assert.equal(goOn([[5100, "a"], [6100, "b"]]), "", "joined in its middle");
  assert.equal(play([[5100, "a"], [6100, "b"]], { lost: "x" }), "", "some of it was never seen");
  for (const status of ["cancelled", "failed", "interrupted"]) assert.equal(play([[5100, "a"], [6100, "b"]], { status }), "");
  assert.equal(play([]), "", "without a text");
});

test("what may be a replay is not timed", () => {
  timing.expectReplay(4001);
  assert.equal(play([[5100, "a"], [6100, "b"]]), "");
  assert.notEqual(play([[5100, "a"], [6100, "b"]], { began: 5001 }), "");
});

test("a cut in the middle of a reply ends its timing", () => {
  timing.take({ type: "created", messageId: ID, message: { role: "assistant" } }, 0);
  timing.expectReplay(10);
  assert.equal(goOn([[2000, "a"], [3000, "b"]]), "");
});

test("the oldest notes are forgotten", () => {
  for (let i = 0; i < 201; i++) {
    const message = { messageId: `msg_${i}`, role: "assistant", status: "completed", content: "a", tokens: 1 };
    timing.take({ type: "created", messageId: message.messageId, message }, 0);
    timing.take({ type: "delta", messageId: message.messageId, offset: 0, end: 1 }, 10);
    timing.take({ type: "end", message }, 20);
  }
  assert.deepEqual([timing.noteOf("msg_0"), timing.noteOf("msg_200")], ["", "first after 0.01 s"]);
});
