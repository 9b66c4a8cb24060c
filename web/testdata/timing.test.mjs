import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Timing } from "../static/timing.js";

const ID = "msg_0000000000000002";
let timing;

beforeEach(() => (timing = new Timing()));

/** Passes the events of a whole reply to timing; each delta is [time, text]. Returns the note of the reply. */
function play(deltas, { tokens = 100, status = "completed", began = 5000, lost = "" } = {}) {
  timing.take({ type: "created", messageId: ID, message: { role: "assistant" } }, began);
  return playRest(deltas, { tokens, status, lost });
}

/** Passes the deltas and the end of a reply to timing, without its beginning. lost is text that no delta contained. */
function playRest(deltas, { tokens = 100, status = "completed", lost = "" } = {}) {
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

test("the note has the first token's time and the rate", () => {
  assert.equal(play([[5210, "aaaa"], [6000, "bbbb"], [7210, "ää"]]), "first token in 210 ms · 33 tokens/s");
});

test("live returns the time to first token while the reply streams", () => {
  timing.take({ type: "created", messageId: ID, message: { role: "assistant" } }, 0);
  assert.equal(timing.live(ID), "");
  timing.take({ type: "delta", messageId: ID, offset: 0, end: 1 }, 430);
  timing.take({ type: "delta", messageId: ID, offset: 1, end: 2 }, 800);
  assert.equal(timing.live(ID), "first token in 430 ms");
  timing.expectReplay(900);
  assert.equal(timing.live(ID), "");
});

test("rates under 10 have a decimal, times under 1 s are in ms", () => {
  assert.equal(play([[5000, "a"], [15_000, "a"]], { tokens: 10 }), "first token in 0 ms · 0.5 tokens/s");
  assert.equal(play([[17_000, "a"]]), "first token in 12 s");
});

test("no rate for a span under 50 ms", () => {
  assert.equal(play([[5100, "a"], [5149, "b"]]), "first token in 100 ms");
  assert.equal(play([[5100, "a"], [5150, "b"]]), "first token in 100 ms · 1,000 tokens/s");
});

test("no note if the reply was not watched from start to end", () => {
  assert.equal(playRest([[5100, "a"], [6100, "b"]]), "", "joined during the reply");
  assert.equal(play([[5100, "a"], [6100, "b"]], { lost: "x" }), "", "text was missed");
  for (const status of ["cancelled", "failed", "interrupted"]) assert.equal(play([[5100, "a"], [6100, "b"]], { status }), "");
  assert.equal(play([]), "", "without text");
});

test("a reply that begins during a replay gets no note", () => {
  timing.expectReplay(4001);
  assert.equal(play([[5100, "a"], [6100, "b"]]), "");
  assert.notEqual(play([[5100, "a"], [6100, "b"]], { began: 5001 }), "");
});

test("a lost connection during the reply: no note", () => {
  timing.take({ type: "created", messageId: ID, message: { role: "assistant" } }, 0);
  timing.expectReplay(10);
  assert.equal(playRest([[2000, "a"], [3000, "b"]]), "");
});

test("the 201st note removes the oldest", () => {
  for (let i = 0; i < 201; i++) {
    const message = { messageId: `msg_${i}`, role: "assistant", status: "completed", content: "a", tokens: 1 };
    timing.take({ type: "created", messageId: message.messageId, message }, 0);
    timing.take({ type: "delta", messageId: message.messageId, offset: 0, end: 1 }, 10);
    timing.take({ type: "end", message }, 20);
  }
  assert.deepEqual([timing.noteOf("msg_0"), timing.noteOf("msg_200")], ["", "first token in 10 ms"]);
});
