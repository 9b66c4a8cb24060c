import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Client } from "../static/client.js";
import { Clock, SESSION, START, Server, collect, message, random, settled } from "./fake.mjs";

const TEXT = "Ein Wort, né 日本語 👍 und noch eins: 👩‍👩‍👧 fin.";
const REPLY = "msg_0000000000000002";
let clock, server, client;

beforeEach(() => {
  clock = new Clock().install();
  server = new Server();
});

afterEach(async () => {
  client?.close();
  client = null;
  await settled();
  assert.equal(clock.waiting, 0, "a closed client leaves no timer behind");
  clock.uninstall();
});

const connect = (options) => (client = new Client(server.options(options)));
const addConversation = () => (server.messages = [message(1, "user", "Hi"), message(2, "assistant", TEXT)]);
const requestsOf = (type) => server.requests.filter((frame) => frame.type === type);

/** Waits until a condition is true. While the client waits to reconnect, advances the clock to the next attempt. */
async function until(condition) {
  for (let i = 0; !condition(); i++) {
    assert.ok(i < 500, "timed out: the condition stays false");
    await settled();
    if (client.state.state === "reconnecting") await clock.advance(client.state.retryInMs);
  }
}

function assertWhole(events, text = TEXT) {
  const types = events.map((event) => event.type).filter((type) => type !== "delta");
  assert.deepEqual(types, ["created", "created", "end"]);
  let end = 0;
  for (const { offset, end: next } of events.filter((event) => event.type === "delta")) {
    assert.equal(offset, end, "deltas adjoin");
    end = next;
  }
  assert.equal(events.map((event) => event.delta ?? "").join(""), text);
  assert.equal(events.at(-1).message.content, text);
}

const sawEnd = (seen) => () => seen.events.some((event) => event.type === "end");

test("a connection cut after any frame loses and repeats no text", async () => {
  addConversation();
  for (let frames = 0; frames < 25; frames++) {
    let sockets = 0;
    server.allowance = () => (sockets++ === 0 ? frames : Infinity);
    client?.close();
    const seen = collect(connect().watch(SESSION, { after: START }));
    await until(sawEnd(seen));
    assertWhole(seen.events);
    assert.ok(sockets <= 2);
  }
});

test("200 random cuts and overlapping replays lose no text", async () => {
  let cuts = 0;
  for (let seed = 1; seed <= 100; seed++) {
    const next = random(seed);
    const text = Array.from({ length: 1 + Math.floor(next() * 90) }, () => [..."aé日👍 "][Math.floor(next() * 5)]).join("");
    server = new Server();
    server.messages = [message(1, "user", "Hi"), message(2, "assistant", text)];
    server.chunk = (rest) => [...rest].slice(0, 1 + Math.floor(next() * 6)).join("").length;
    server.overlap = () => Math.floor(next() * 5);
    server.allowance = () => 3 + Math.floor(next() * 5); // welcome, subscribed, and some frames
    client?.close();
    const seen = collect(connect().watch(SESSION, { after: START }));
    await until(sawEnd(seen));
    assertWhole(seen.events, text);
    cuts += server.sockets.length - 1;
  }
  assert.ok(cuts >= 200, `${cuts} cuts`);
});

test("connection cut after every token: watch gets the whole text", async () => {
  server.messages = [message(1, "user", "Hi")];
  const seen = collect(connect().watch(SESSION, { after: START }));
  await settled();
  const reply = message(2, "assistant", "", "streaming");
  server.messages.push(reply);
  for (const character of TEXT) {
    reply.content += character;
    server.showAll();
    await settled();
    server.break(server.socket);
    await until(() => client.state.state === "live");
  }
  reply.status = "completed";
  server.showAll();
  await settled();
  assertWhole(seen.events);
  assert.equal(seen.done, false, "the iteration continues after a reply");
});

test("missing text is requested only once, then the client goes on", async () => {
  server.messages = [message(1, "user", "Hi"), message(2, "assistant", "abc", "streaming")];
  const seen = collect(connect().watch(SESSION, { after: START }));
  await settled();
  const afterGap = { type: "message.delta", sessionId: SESSION, messageId: REPLY, offset: 5, delta: "fg", cursor: "c.1.7" };
  server.frame(server.socket, afterGap);
  await settled();
  assert.equal(requestsOf("subscribe").length, 2);
  assert.equal(requestsOf("subscribe")[1].after, "c.1.3");
  server.frame(server.socket, afterGap);
  await settled();
  assert.equal(requestsOf("subscribe").length, 2, "requested only once");
  assert.equal(seen.events.at(-1).delta, "fg");
});

test("each socket uses a new ticket and never the key", async () => {
  connect().connect();
  await settled();
  server.break(server.socket);
  await until(() => client.state.state === "live");
  assert.deepEqual(server.sockets.map((socket) => socket.protocols), [["parley.v1", "ticket.t1"], ["parley.v1", "ticket.t2"]]);
  assert.equal(server.socket.url, "ws://parley.test/v1/stream");
  assert.equal(server.calls[0].headers.Authorization, "Bearer svc_test_x");
  assert.equal(client.state.resumed, true);
});

test("send subscribes first and yields only its reply", async () => {
  server.messages = [message(1, "user", "before")];
  server.onrequest = (socket, frame) => {
    if (frame.type !== "send") return false;
    server.messages.push(message(2, "user", frame.content), message(3, "assistant", TEXT));
    server.frame(socket, { type: "sent", replyTo: frame.id, sessionId: SESSION, messageId: "msg_0000000000000003" });
    server.showAll();
    return true;
  };
  const seen = collect(connect().send(SESSION, "Hi", { onBusy: "reject", metadata: { a: 1 } }));
  await until(() => seen.done);
  assert.deepEqual(server.requests.map((frame) => frame.type), ["subscribe", "send", "unsubscribe"]);
  const { id, idempotencyKey, ...sent } = requestsOf("send")[0];
  assert.match(idempotencyKey, /^[0-9a-f]{32}$/);
  assert.deepEqual(sent, { type: "send", sessionId: SESSION, content: "Hi", onBusy: "reject", metadata: { a: 1 } });
  assert.equal(seen.error, null);
  assert.ok(seen.events.every((event) => event.messageId === "msg_0000000000000003"));
  assert.equal(seen.events.map((event) => event.delta ?? "").join(""), TEXT);
});

test("cut after the message was confirmed: it is not sent again", async () => {
  const reply = message(1, "assistant", "", "streaming");
  server.onrequest = (socket, frame) => {
    if (frame.type !== "send") return false;
    server.frame(socket, { type: "sent", replyTo: frame.id, sessionId: SESSION, messageId: reply.messageId });
    server.messages.push(reply);
    server.break(socket); // before the client gets a frame of the reply
    return true;
  };
  const seen = collect(connect().send(SESSION, "Hi"));
  await until(() => client.state.resumed);
  Object.assign(reply, { content: TEXT, status: "cancelled" });
  server.showAll();
  await until(() => seen.done);
  assert.deepEqual([seen.error, seen.events[0].type, seen.events.at(-1).status], [null, "created", "cancelled"]);
  assert.equal(requestsOf("send").length, 1);
});

test("cut before the message was confirmed: repeated with its key", async () => {
  const reply = message(1, "assistant", TEXT);
  for (const cursor of [START, undefined]) { // older servers send no cursor
    server = new Server();
    server.onrequest = (socket, frame) => {
      if (frame.type !== "send") return false;
      if (server.messages.length === 0) return server.messages.push(reply), server.break(socket), true; // accepted, but not confirmed
      server.frame(socket, { type: "sent", replyTo: frame.id, sessionId: SESSION, messageId: reply.messageId, cursor });
      return true;
    };
    client?.close();
    const seen = collect(connect().send(SESSION, "Hi"));
    await until(() => seen.done);
    const [first, again, ...more] = requestsOf("send");
    assert.deepEqual([seen.error, again.idempotencyKey, more.length], [null, first.idempotencyKey, 0]);
    const { length } = seen.events.filter(({ type }) => type !== "delta");
    assert.deepEqual([seen.events[0].type, length, seen.events.map((event) => event.delta ?? "").join("")], ["created", 2, TEXT]);
    assert.equal(server.sockets.length, 2, "a repeat needs no socket of its own");
  }
});

test("message never confirmed: connection_lost after five attempts", async () => {
  server.onrequest = (socket, frame) => frame.type === "send" && (server.break(socket), true);
  const seen = collect(connect().send(SESSION, "Hi", { idempotencyKey: "mine" }));
  await until(() => seen.done);
  assert.equal(seen.error.code, "connection_lost");
  await until(() => client.state.state === "live");
  assert.deepEqual(requestsOf("send").map((frame) => frame.idempotencyKey), ["mine", "mine", "mine", "mine", "mine"]);
});

test("permanent connection errors are not retried", async () => {
  for (const [lacking, code] of [[{ WebSocket: undefined }, "no_websocket"], [{ key: undefined }, "no_key"]]) {
    const native = globalThis.WebSocket; // Node 22 has one
    globalThis.WebSocket = undefined;
    const seen = collect(connect(lacking).watch(SESSION));
    await settled();
    globalThis.WebSocket = native;
    assert.deepEqual([seen.error?.code, client.state.state], [code, "closed"]);
  }
});

test("an error response rejects with the server's error", async () => {
  server.onrequest = (socket, frame) => {
    if (frame.type !== "send") return false;
    const error = { code: "context_overflow", message: "full", currentTokens: 5000, maxTokens: 4096 };
    server.frame(socket, { type: "error", replyTo: frame.id, error, meta: { requestId: "r1" } });
    return true;
  };
  await assert.rejects(connect().start(SESSION, "Hi"), { code: "context_overflow", message: "full", currentTokens: 5000, maxTokens: 4096, requestId: "r1" });
  assert.equal(client.state.state, "live");
});

test("draining: the client reconnects after the server's delay", async () => {
  const seen = collect(connect().watch(SESSION));
  await settled();
  server.frame(server.socket, { type: "draining", reconnectAfterMs: 1234 });
  server.break(server.socket, 1012);
  assert.deepEqual([client.state.state, client.state.retryInMs], ["reconnecting", 1234]);
  await clock.advance(1233);
  assert.equal(server.sockets.length, 1);
  await clock.advance(1);
  assert.equal(client.state.state, "live");
  assert.equal(seen.done, false);
});

test("close code 4401: the client stays closed", async () => {
  const seen = collect(connect().watch(SESSION));
  await settled();
  server.break(server.socket, 4401, "the key was revoked");
  await settled();
  assert.deepEqual([seen.error.code, seen.error.status, seen.error.message], ["invalid_token", 401, "the key was revoked"]);
  assert.equal(client.state.state, "closed");
  await clock.advance(600_000);
  assert.equal(server.sockets.length, 1);
  assert.throws(() => client.watch(SESSION), { code: "invalid_token" });
});

test("no ticket: retried after a network error, not after a 401", async () => {
  server.answers["POST /stream/tickets"] = new TypeError("fetch failed");
  const seen = collect(connect().watch(SESSION));
  await settled();
  assert.deepEqual([client.state.state, client.state.error.code], ["reconnecting", "network_error"]);
  server.answers["POST /stream/tickets"] = { status: 401, body: { error: { code: "invalid_token", message: "no" } } };
  await until(() => seen.done);
  assert.deepEqual([seen.error.code, seen.error.status, client.state.state], ["invalid_token", 401, "closed"]);
});

test("backoff doubles up to 15 s and is at least retryAfter", async () => {
  const originalRandom = Math.random;
  Math.random = () => 0.999999;
  server.answers["POST /stream/tickets"] = { status: 503, body: {} };
  connect().connect();
  const waits = [];
  for (let i = 0; i < 8; i++) {
    await settled();
    waits.push(client.state.retryInMs);
    await clock.advance(client.state.retryInMs);
  }
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000, 15000, 15000, 15000]);
  Math.random = () => 0;
  server.answers["POST /stream/tickets"] = { status: 429, body: { error: { code: "rate_limit_exceeded", message: "", retryAfter: 7 } } };
  await clock.advance(15000);
  assert.equal(client.state.retryInMs, 7000);
  Math.random = originalRandom;
});

test("closed after each welcome: the backoff still doubles", async () => {
  const originalRandom = Math.random;
  Math.random = () => 1;
  server.allowance = () => 1;
  connect().watch(SESSION);
  const waits = [];
  for (let i = 0; i < 4; i++) {
    await settled();
    waits.push(client.state.retryInMs);
    await clock.advance(client.state.retryInMs);
  }
  assert.deepEqual(waits, [500, 1000, 2000, 4000]);
  server.allowance = () => Infinity;
  server.break(server.socket);
  await until(() => client.state.state === "live");
  server.break(server.socket);
  assert.equal(client.state.retryInMs, 500, "a confirmed subscription resets the backoff");
  Math.random = originalRandom;
});

test("history cleared while disconnected: watch yields cleared", async () => {
  addConversation();
  const seen = collect(connect().watch(SESSION, { after: START }));
  await until(sawEnd(seen));
  server.recovered = false;
  server.messages = [message(7, "user", "anew")];
  server.onrequest = (socket, frame) => {
    if (frame.type !== "subscribe") return false;
    socket.position = { index: -1, offset: 0, ended: true };
    server.frame(socket, { type: "subscribed", replyTo: frame.id, sessionId: SESSION, cursor: START, recovered: false });
    server.show(socket);
    return true;
  };
  server.break(server.socket);
  await until(() => seen.events.length > 0 && seen.events.at(-1).message?.content === "anew");
  assert.deepEqual(seen.events.slice(-2).map((event) => [event.type, event.recovered]), [["cleared", false], ["created", undefined]]);
});

test("session deleted: watch ends, send throws session_deleted", async () => {
  const watched = collect(connect().watch(SESSION));
  server.onrequest = (socket, frame) => {
    if (frame.type !== "send") return false;
    server.frame(socket, { type: "sent", replyTo: frame.id, sessionId: SESSION, messageId: REPLY });
    server.frame(socket, { type: "session.deleted", sessionId: SESSION });
    return true;
  };
  const sent = collect(client.send(SESSION, "Hi"));
  await until(() => sent.done && watched.done);
  assert.deepEqual([watched.error, watched.events[0].type, sent.error.code], [null, "deleted", "session_deleted"]);
});

test("history cleared: send throws only if its reply is gone", async () => {
  const path = `GET /sessions/${SESSION}/messages/${REPLY}`;
  server.onrequest = (socket, frame) => {
    if (frame.type !== "send") return false;
    server.frame(socket, { type: "sent", replyTo: frame.id, sessionId: SESSION, messageId: REPLY });
    return true;
  };
  const sent = collect(connect().send(SESSION, "Hi"));
  await settled();
  server.answers[path] = { status: 200, body: {} };
  server.frame(server.socket, { type: "session.cleared", sessionId: SESSION });
  await settled();
  assert.equal(sent.done, false);
  server.answers[path] = { status: 404, body: { error: { code: "message_not_found", message: "" } } };
  server.frame(server.socket, { type: "session.cleared", sessionId: SESSION });
  await settled();
  assert.equal(sent.error.code, "session_cleared");
});

test("subscribe is repeated only after temporary errors", async () => {
  const codes = ["service_unavailable", "session_not_found"];
  server.onrequest = (socket, frame) => {
    if (frame.type === "subscribe") server.frame(socket, { type: "error", replyTo: frame.id, error: { code: codes.shift(), message: "" } });
    return frame.type === "subscribe";
  };
  const seen = collect(connect().watch(SESSION));
  await settled();
  assert.equal(seen.done, false);
  await clock.advance(1000);
  assert.equal(seen.error.code, "session_not_found");
  assert.equal(client.state.state, "live");
});

test("a second watch from another cursor gets its own socket", async () => {
  addConversation();
  const first = collect(connect().watch(SESSION));
  await settled();
  const second = collect(client.watch(SESSION, { after: START }));
  await until(sawEnd(second));
  assertWhole(second.events);
  assert.deepEqual(first.events, []);
  assert.equal(server.sockets.length, 2);
  server.messages.push(message(3, "user", "both see it"));
  server.showAll();
  await settled();
  assert.equal(first.events.length, 1);
  assert.equal(second.events.at(-1).message.content, "both see it");
});

test("iterators of a session share a socket and a subscription", async () => {
  const leaving = [new AbortController(), new AbortController()];
  const seen = leaving.map(({ signal }) => collect(sameClient().watch(SESSION, { signal })));
  await settled();
  assert.equal(requestsOf("subscribe").length, 1);
  leaving[0].abort();
  await settled();
  assert.deepEqual([seen[0].error.name, requestsOf("unsubscribe").length], ["AbortError", 0]);
  server.messages.push(message(1, "user", "Hi"));
  server.showAll();
  leaving[1].abort();
  await settled();
  assert.deepEqual([requestsOf("unsubscribe").length, server.sockets.length], [1, 1]);
});

test("late frames of an ended subscription are ignored", async () => {
  addConversation();
  const leaving = new AbortController();
  collect(connect().watch(SESSION, { after: START, signal: leaving.signal }));
  await settled();
  leaving.abort();
  server.onrequest = (socket, frame) => {
    const late = { type: "message.delta", sessionId: SESSION, messageId: REPLY, offset: 30, delta: "late", cursor: "c.1.34" };
    if (frame.type === "subscribe") server.frame(socket, late);
    return false;
  };
  const seen = collect(client.watch(SESSION, { after: START }));
  await until(sawEnd(seen));
  assertWhole(seen.events);
});

const sameClient = () => client ?? connect();

test("a slow iterator gets fewer, larger deltas", async () => {
  addConversation();
  const watcher = connect().watch(SESSION, { after: START });
  await settled();
  const events = [];
  while (events.at(-1)?.type !== "end") events.push((await watcher.next()).value);
  assert.deepEqual(events.map((event) => event.type), ["created", "created", "delta", "end"]);
  assert.equal(events[2].delta, TEXT);
});

test("a silent socket gets a ping, then is replaced", async () => {
  connect().connect();
  await settled();
  await clock.advance(24_000);
  assert.equal(requestsOf("ping").length, 0);
  await clock.advance(30_000);
  assert.ok(requestsOf("ping").length >= 1);
  assert.equal(client.state.state, "live");
  server.silent = true;
  await clock.advance(65_000);
  assert.ok(server.sockets[0].closed);
  server.silent = false;
  await until(() => client.state.state === "live");
});

test("no welcome within 10 s: the client reconnects", async () => {
  server.frame = () => {};
  connect().connect();
  await settled();
  await clock.advance(10_000);
  assert.equal(client.state.state, "reconnecting");
});

test("failed handshake, no close event: the client reconnects", async () => {
  server.frame = () => {};
  connect().connect();
  await settled();
  server.socket.onerror({});
  assert.equal(client.state.state, "reconnecting");
  assert.ok(client.state.retryInMs <= 500);
  server.socket.onclose({ code: 1006, reason: "" }); // a late event, which is ignored
  await clock.advance(client.state.retryInMs);
  assert.equal(server.sockets.length, 2);
});

test("wake reconnects at once, or sends a ping on a live socket", async () => {
  server.answers["POST /stream/tickets"] = { status: 503, body: {} };
  connect().connect();
  await settled();
  delete server.answers["POST /stream/tickets"];
  client.wake();
  await settled();
  assert.equal(client.state.state, "live");
  client.wake();
  await settled();
  assert.equal(requestsOf("ping").length, 1);
});

test("cancel uses the socket, or REST if no socket is live", async () => {
  server.answers[`POST /sessions/${SESSION}/messages/${REPLY}/cancel`] = { status: 200, body: message(2, "assistant", "http", "cancelled") };
  assert.equal((await connect().cancel(SESSION, REPLY)).content, "http");
  client.connect();
  await settled();
  server.onrequest = (socket, frame) => {
    if (frame.type === "cancel") server.frame(socket, { type: "cancelled", replyTo: frame.id, message: message(2, "assistant", "socket", "cancelled") });
    return frame.type === "cancel";
  };
  assert.equal((await client.cancel(SESSION, REPLY)).content, "socket");
  server.onrequest = (socket, frame) => frame.type === "cancel" && (server.break(socket), true);
  assert.equal((await client.cancel(SESSION, REPLY)).content, "http");
});

test("after close, watch and send throw the error closed", async () => {
  const seen = collect(connect().watch(SESSION));
  await settled();
  client.close();
  await settled();
  assert.deepEqual([seen.error.code, client.state.state, server.socket.closed], ["closed", "closed", true]);
  await assert.rejects(client.send(SESSION, "Hi").next(), { code: "closed" });
});

test("without a key the client makes no REST calls", async () => {
  const seen = collect(connect({ key: undefined, ticket: async () => "given" }).watch(SESSION));
  await settled();
  assert.deepEqual([server.socket.protocols[1], seen.done], ["ticket.given", false]);
  await assert.rejects(client.history(SESSION), { code: "no_key" });
});

test("ids are encoded and cannot lead to other API paths", async () => {
  const client = connect();
  for (const act of ["session", "updateSession", "deleteSession", "clear", "preview"]) await client[act]("../keys/key_1?a=#b", "Hi");
  assert.equal(server.calls.length, 5);
  for (const { path, search } of server.calls) assert.match(path + search, /^\/sessions\/\.\.%2Fkeys%2Fkey_1%3Fa%3D%23b(\/[a-z]+)?$/);
});

test("preview is a REST call and opens no socket", async () => {
  const path = `POST /sessions/${SESSION}/context`;
  server.answers[path] = { status: 200, body: { context: { policy: "fifo" }, messages: [] } };
  assert.equal((await connect().preview(SESSION, "Hi")).context.policy, "fifo");
  await client.preview(SESSION, "Be brief.", { role: "system" });
  assert.deepEqual(server.calls.map(({ body }) => JSON.parse(body)), [{ content: "Hi" }, { content: "Be brief.", role: "system" }]);
  server.answers[path] = { status: 413, body: { error: { code: "context_overflow", message: "", currentTokens: 700, maxTokens: 512 } } };
  await assert.rejects(client.preview(SESSION, "Hi"), { code: "context_overflow", status: 413, currentTokens: 700, maxTokens: 512 });
  assert.equal(server.sockets.length, 0);
});

test("metrics sends the period as its query, usage sends no query", async () => {
  server.answers["GET /analytics/usage"] = { status: 200, body: { tier: "pro" } };
  server.answers["GET /analytics/metrics"] = { status: 200, body: { series: [] } };
  assert.equal((await connect().usage()).tier, "pro");
  const [startDate, endDate] = ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00+01:00"];
  assert.deepEqual((await client.metrics({ startDate, endDate, granularity: "hour" })).series, []);
  await client.metrics({ startDate, endDate });
  const queries = server.calls.map(({ search }) => search);
  assert.deepEqual(queries, [
    "",
    "?startDate=2026-11-01T00%3A00%3A00Z&endDate=2026-11-02T00%3A00%3A00%2B01%3A00&granularity=hour",
    "?startDate=2026-11-01T00%3A00%3A00Z&endDate=2026-11-02T00%3A00%3A00%2B01%3A00",
  ]);
  server.answers["GET /analytics/usage"] = { status: 403, body: { error: { code: "insufficient_scope", message: "", requiredScope: "read:analytics" } } };
  await assert.rejects(client.usage(), { code: "insufficient_scope", requiredScope: "read:analytics" });
});
