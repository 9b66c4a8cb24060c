import assert from "node:assert/strict";
import test from "node:test";
import { Track, utf8Length } from "../static/client.js";
import { GAP, skipBytes } from "../static/track.js";
import { SESSION, bytes, message, random } from "./fake.mjs";

const id = "msg_0000000000000001";
const delta = (offset, text, cursor = `c${offset + bytes(text)}`) => ({ type: "message.delta", sessionId: SESSION, messageId: id, offset, delta: text, cursor });
const created = (content = "", status = "streaming") => ({ type: "message.created", sessionId: SESSION, message: { ...message(1, "assistant", content, status) }, cursor: "c0" });
const ended = (content, status = "completed") => ({ type: `message.${status}`, sessionId: SESSION, message: message(1, "assistant", content, status), cursor: "ce" });

test("utf8Length counts bytes, skipBytes splits no character", () => {
  for (const text of ["", "plain", "é", "日本語", "👩‍👩‍👧 a", "\u0000\u007f\u0080\u07ff\u0800\uffff\u{10000}"]) {
    assert.equal(utf8Length(text), bytes(text), JSON.stringify(text));
  }
  assert.equal(skipBytes("é日👍x", 2), "日👍x");
  assert.equal(skipBytes("é日👍x", 5), "👍x");
  assert.equal(skipBytes("é日👍x", 9), "x");
  assert.equal(skipBytes("é日👍x", 10), "");
  assert.equal(skipBytes("é日", 3), "", "a cut inside a character moves to its end");
});

test("accept drops repeated deltas and trims overlapping ones", () => {
  const track = new Track("c");
  assert.equal(track.accept(created()).type, "created");
  assert.equal(track.accept(delta(0, "né")).delta, "né");
  assert.equal(track.accept(delta(0, "n")), null);
  assert.equal(track.cursor, "c3");
  const event = track.accept(delta(1, "é👍x"));
  assert.deepEqual([event.offset, event.delta, event.end], [3, "👍x", 8]);
  assert.equal(track.accept(delta(3, "👍x")), null);
  assert.equal(track.cursor, "c8");
});

test("accept drops repeated created and end frames", () => {
  const track = new Track();
  track.accept(created());
  track.accept(delta(0, "abc"));
  assert.equal(track.accept(created()), null);
  assert.equal(track.cursor, "c3");
  assert.equal(track.accept(ended("abc")).type, "end");
  for (const late of [created(), delta(0, "abc"), delta(3, "d"), ended("abc")]) assert.equal(track.accept(late), null);
  assert.equal(track.cursor, "ce");
});

test("the end event has the server's message, not the delta text", () => {
  const track = new Track();
  track.accept(created());
  track.accept(delta(0, "what a crashed node had not journ"));
  const event = track.accept({ ...ended("what a crashed node had", "interrupted"), error: { code: "interrupted" } });
  assert.deepEqual([event.status, event.message.content, event.error.code], ["interrupted", "what a crashed node had", "interrupted"]);
});

test("subscribed during a reply: a later gap is detected", () => {
  const track = new Track();
  assert.equal(track.accept(delta(120, "ab")).offset, 120);
  assert.equal(track.accept(delta(123, "d")), GAP);
  assert.equal(track.cursor, "c122");
  assert.equal(track.accept(delta(123, "d"), true).offset, 123);
  assert.equal(track.accept(delta(124, "e")).offset, 124);
});

test("a user message is complete at once and has no end event", () => {
  const track = new Track();
  const event = track.accept(created("Hi", "completed"));
  assert.equal(event.message.content, "Hi");
  assert.equal(track.accept(ended("Hi")), null);
});

test("cleared resets the track; unknown frames are ignored", () => {
  const track = new Track();
  track.accept(created());
  assert.equal(track.accept({ type: "session.cleared", sessionId: SESSION }).type, "cleared");
  assert.equal(track.accept(created()).type, "created");
  assert.equal(track.accept({ type: "session.expired", sessionId: SESSION }).type, "expired");
  assert.equal(track.accept({ type: "context.compressed", sessionId: SESSION, summarised: 3 }).summarised, 3);
  assert.equal(track.accept({ type: "reply.reasoning", sessionId: SESSION, messageId: "m" }).type, "reasoning");
  assert.equal(track.accept({ type: "reply.sparkled", sessionId: SESSION }), null, "an unknown frame is ignored");
});

test("1,000 random replays: no byte is lost or repeated", () => {
  const characters = [..."abc é ß 日本語 👍 👩‍👩‍👧 \n\t\""];
  for (let seed = 1; seed <= 1000; seed++) {
    const next = random(seed);
    const text = Array.from({ length: 1 + next() * 60 }, () => characters[Math.floor(next() * characters.length)]).join("");
    const points = [...text];
    const track = new Track();
    let shown = "";
    let end = 0;
    for (let at = 0; at < points.length; ) {
      const from = Math.max(0, at - Math.floor(next() * 8)); // a replay starts a little before the cut
      const to = Math.min(points.length, from + 1 + Math.floor(next() * 12));
      const event = track.accept(delta(bytes(points.slice(0, from).join("")), points.slice(from, to).join("")));
      if (event) {
        assert.equal(event.offset, end);
        shown += event.delta;
        end = event.end;
      }
      at = Math.max(at, to);
    }
    assert.equal(shown, text, `seed ${seed}`);
  }
});
