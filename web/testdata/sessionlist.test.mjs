import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { titleOf } from "../static/words.js";
import { SessionList } from "../static/sessionlist.js";

const id = (n) => `session_${String(n).padStart(16, "0")}`;
const at = (seconds) => new Date(1_700_000_000_000 + seconds * 1000).toISOString();
const session = (n, extra) => ({ sessionId: id(n), metadata: {}, messageCount: 0, lastActivity: at(0), expiresAt: at(100), ...extra });
const page = (numbers, hasMore = false) => ({
  data: numbers.map((n) => session(n)),
  pagination: { hasMore, nextCursor: hasMore ? id(numbers.at(-1)) : null },
});
const numbers = (sessions) => sessions.map(({ sessionId }) => Number(sessionId.slice(8)));
let list;

beforeEach(() => {
  list = new SessionList();
  list.begin();
});

test("sessions are sorted newest first", () => {
  list.refresh(page([9, 8, 7], true));
  list.put(session(10));
  list.extend(page([6, 5]));
  assert.deepEqual(numbers(list.all), [10, 9, 8, 7, 6, 5]);
  assert.equal(list.next, null);
});

test("refresh adds new sessions and removes missing ones", () => {
  list.refresh(page([9, 8, 7], true));
  list.extend(page([6, 5, 4], true));
  list.begin();
  list.refresh(page([10, 9, 7], true));
  assert.deepEqual(numbers(list.all), [10, 9, 7, 6, 5, 4]);
  assert.equal(list.next, id(4), "the next page follows the oldest session");
  list.begin();
  list.refresh(page([10, 7]));
  assert.deepEqual(numbers(list.all), [10, 7]);
  assert.equal(list.next, null);
});

test("an older session put into the list does not move the cursor", () => {
  list.put(session(1));
  list.begin();
  list.refresh(page([9, 8, 7], true));
  assert.deepEqual(numbers(list.all), [9, 8, 7, 1]);
  assert.equal(list.next, id(7));
  list.begin();
  list.refresh(page([9, 8, 7, 6], true));
  assert.equal(list.next, id(6), "the next page follows the newest page");
  list.begin();
  list.extend(page([5, 4, 1]));
  assert.deepEqual(numbers(list.all), [9, 8, 7, 6, 5, 4, 1]);
});

test("more new sessions than a page has: extend loads the others", () => {
  list.refresh(page([2, 1]));
  list.begin();
  list.refresh(page([9, 8, 7], true));
  assert.deepEqual(numbers(list.all), [9, 8, 7, 2, 1]);
  assert.equal(list.next, id(7));
  list.extend(page([6, 5, 4], true));
  list.extend(page([3, 2, 1]));
  assert.deepEqual(numbers(list.all), [9, 8, 7, 6, 5, 4, 3, 2, 1]);
  list.begin();
  list.refresh(page([9, 8, 7], true));
  assert.equal(list.next, null, "the list is complete");
});

test("an empty page empties the list", () => {
  list.refresh(page([2, 1]));
  list.begin();
  list.refresh(page([]));
  assert.equal(list.size, 0);
});

test("changes during a request win over its response", () => {
  list.refresh(page([3, 2, 1]));
  list.begin();
  list.put(session(4));
  list.put(session(2, { messageCount: 2 }));
  list.remove(id(1));
  list.refresh(page([3, 2, 1]));
  assert.deepEqual(numbers(list.all), [4, 3, 2]);
  assert.equal(list.get(id(2)).messageCount, 2);
  list.begin();
  list.refresh(page([4, 3, 2]));
  assert.equal(list.get(id(2)).messageCount, 0, "the next response is newer");
});

test("a turn counts as two messages, even if it is reported twice", () => {
  list.put(session(1));
  const begin = (seconds, role = "user") => list.turn({ sessionId: id(1), role, createdAt: at(seconds) });
  const count = () => list.get(id(1)).messageCount;
  begin(1);
  begin(1, "assistant");
  assert.equal(count(), 2);
  begin(1); // the same turn again
  assert.equal(count(), 2);
  begin(2, "system");
  assert.equal(count(), 4);
  list.cleared(id(1));
  assert.equal(count(), 0);
  list.turn({ sessionId: id(7), role: "user", createdAt: at(3) });
  list.cleared(id(7));
  assert.equal(list.size, 1);
});

test("expired sessions are removed", () => {
  list.put(session(1, { expiresAt: at(5) }));
  list.put(session(2, { expiresAt: at(6) }));
  list.expire(Date.parse(at(5)));
  assert.deepEqual(numbers(list.all), [2]);
});

test("find matches words of the title and parts of the id", () => {
  list.put(session(1, { metadata: { title: "A Lighthouse in the fog" } }));
  list.put(session(22, { metadata: { title: "Fog lamps" } }));
  for (const [text, want] of [
    ["", [22, 1]],
    ["  ", [22, 1]],
    ["fog", [22, 1]],
    ["FOG light", [1]],
    [id(22), [22]],
    ["00022", [22]],
    ["lamps 00022", [22]],
    ["22", []],
    ["nothing", []],
  ]) {
    assert.deepEqual(numbers(list.find(text)), want, text);
  }
});

test("titles lose bidi controls", () => {
  const sessionId = "session_0000000000000001";
  assert.equal(titleOf({ sessionId, metadata: { title: "\u202Egpj.\u2066exe\u2069" } }), "gpj.exe");
  assert.equal(titleOf({ sessionId, metadata: { title: "\u202E \u202C" } }), "Session …00001");
});
