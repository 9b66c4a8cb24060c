import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Client } from "../static/client.js";
import { Traffic, isDelta, scrub } from "../static/traffic.js";
import { Clock, SESSION, START, Server, bytes, collect, message, random, settled } from "./fake.mjs";

const KEY = "svc_live_0123456789abcdefghijklmnopqrstuvwxyz";
let clock, server, traffic, client;

beforeEach(() => {
  clock = new Clock().install();
  server = new Server();
  server.chunk = (rest) => rest.length; // one large delta; a real server sends up to 16 KiB
  traffic = new Traffic({ fetch: server.fetch, WebSocket: server.WebSocket });
  client = new Client({ ...server.options(), key: KEY, fetch: traffic.fetch, WebSocket: traffic.WebSocket });
});

afterEach(async () => {
  client.close();
  await settled();
  assert.equal(clock.waiting, 0, "no timer is left behind");
  clock.uninstall();
});

const types = () => traffic.entries.map((entry) => (entry.method ? `${entry.method} ${entry.path}` : `${entry.out ? ">" : "<"} ${JSON.parse(entry.data).type}`));
const countRequests = (type) => server.requests.filter((frame) => frame.type === type).length;

/** Advances the clock until the client is live. */
async function live() {
  for (let i = 0; client.state.state !== "live"; i++) {
    assert.ok(i < 100, "timed out: the client is not live");
    await settled();
    if (client.state.state === "reconnecting") await clock.advance(client.state.retryInMs);
  }
}

/** Makes the server add text to its reply. */
async function write(reply, text) {
  reply.content += text;
  server.showAll();
  await settled();
}

const adjoins = (events) =>
  events.filter((event) => event.type === "delta").reduce((end, event) => (assert.equal(event.offset, end, "deltas adjoin"), event.end), 0);
const textOf = (events) => events.map((event) => event.delta ?? "").join("");

test("every frame and call becomes an entry, in order", async () => {
  server.messages = [message(1, "user", "Hi"), message(2, "assistant", "abc")];
  const seen = collect(client.watch(SESSION, { after: START }));
  await settled();
  assert.equal(textOf(seen.events), "abc");
  assert.deepEqual(types(), [
    "POST /v1/stream/tickets", "< welcome", "> subscribe", "< subscribed", "< message.created", "< message.created", "< message.delta", "< message.completed",
  ]);
  assert.deepEqual(traffic.entries.map((entry) => entry.n), [1, 2, 3, 4, 5, 6, 7, 8]);
  const [{ status, answer, bytes: length, data }] = traffic.entries;
  assert.deepEqual({ status, answer, length, data }, { status: 200, answer: '{"ticket":"…"}', length: 15, data: "{}" });
});

test("keys and tickets are never kept", async () => {
  client.connect();
  await live();
  await traffic.fetch(`http://parley.test/v1/keys?ticket=abc.def&x=${KEY}`, { method: "POST", headers: { Authorization: `Bearer ${KEY}` }, body: `{"a":"${KEY}"}` })
    .then((response) => response.text());
  client.start(SESSION, `this is ${KEY}, not mine`).catch(() => {});
  await settled();
  const kept = JSON.stringify(traffic.entries);
  assert.ok(!kept.includes("svc_live") && !kept.includes("abc.def") && !kept.includes('t1"'), kept);
  assert.equal(types()[2], "POST /v1/keys?ticket=…&x=…");
  assert.equal(server.sockets[0].protocols[1], "ticket.t1", "the socket itself gets the ticket");
  assert.equal(server.requests.find((frame) => frame.type === "send").content, `this is ${KEY}, not mine`, "the request itself is sent unchanged");
  assert.equal(scrub('{"ticket":"a.b-c","n":1}'), '{"ticket":"…","n":1}');
  assert.equal(scrub("no secret: svc_ ticket"), "no secret: svc_ ticket");
});

test("traffic keeps at most 500 entries and 4,000,000 characters", () => {
  for (let i = 0; i < 2000; i++) traffic.note({ out: false, data: "x" });
  assert.deepEqual([traffic.entries.length, traffic.entries[0].n, traffic.total], [500, 1501, 2000]);
  for (let i = 0; i < 100; i++) traffic.note({ out: false, data: "y".repeat(300_000) });
  assert.equal(traffic.entries.length, 20);
  traffic.clear();
  for (let i = 0; i < 600; i++) traffic.note({ out: false, data: "z" });
  assert.equal(traffic.entries.length, 500, "cleared entries are not counted");
});

test("a dropped socket closes with 1006 and is replaced", async () => {
  const reply = message(2, "assistant", "one ", "streaming");
  server.messages = [message(1, "user", "Hi"), reply];
  const seen = collect(client.watch(SESSION, { after: START }));
  await live();
  await settled();
  traffic.drop();
  assert.equal(client.state.state, "reconnecting");
  assert.equal(client.state.error.closeCode, 1006);
  assert.ok(server.sockets[0].closed, "the real socket is closed too");
  await write(reply, "two ");
  await live();
  await settled();
  assert.equal(textOf(seen.events), "one two ");
  server.sockets[0].close = assert.fail;
  traffic.drop();
  await live();
  assert.equal(server.sockets.length, 3, "a closed socket is forgotten");
});

test("goOffline blocks all traffic for the given time", async () => {
  const reply = message(2, "assistant", "one ", "streaming");
  server.messages = [message(1, "user", "Hi"), reply];
  const seen = collect(client.watch(SESSION, { after: START }));
  await live();
  traffic.goOffline(5000);
  const calls = server.calls.length;
  await assert.rejects(client.session(SESSION), { code: "network_error" });
  assert.equal(traffic.entries.at(-1).status, "failed");
  await write(reply, "two ");
  await clock.advance(4999);
  assert.equal(client.state.state, "reconnecting");
  assert.deepEqual([server.calls.length, server.sockets.length], [calls, 1]);
  await clock.advance(1);
  await live();
  await settled();
  assert.equal(textOf(seen.events), "one two ");
});

test("goOffline aborts running calls", async () => {
  const hanging = new Traffic({
    fetch: (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
    WebSocket: server.WebSocket,
  });
  const answer = hanging.fetch("http://parley.test/v1/sessions");
  hanging.goOffline(10);
  await assert.rejects(answer, { name: "AbortError" });
  await clock.advance(10);
});

test("slow reader: whole replies with about one delta a second", async () => {
  for (let seed = 1; seed <= 40; seed++) {
    const next = random(seed);
    server.requests.length = 0;
    traffic.slow = true;
    const reply = message(2 * seed, "assistant", "", "streaming");
    server.messages = [message(2 * seed - 1, "user", "Hi"), reply];
    const seen = collect(client.watch(SESSION, { after: START }));
    await live();
    let ms = 0;
    for (let i = 0; i < 150; i++) {
      await write(reply, [..."aé日👍 "][Math.floor(next() * 5)].repeat(1 + Math.floor(next() * 4)));
      const wait = Math.floor(next() * 80);
      ms += wait;
      await clock.advance(wait);
    }
    await clock.advance(2000); // no further delta comes; the last dropped delta must arrive nevertheless
    assert.equal(textOf(seen.events), reply.content, `seed ${seed}: before the end`);
    assert.equal(adjoins(seen.events), bytes(reply.content));
    const deltas = seen.events.filter((event) => event.type === "delta").length;
    const gaps = countRequests("subscribe") - 1;
    assert.ok(deltas <= ms / 1000 + 4 && gaps <= ms / 1000 + 3, `seed ${seed}: ${deltas} deltas and ${gaps} gaps in ${ms} ms`);
    reply.status = "completed";
    server.showAll();
    await settled();
    assert.equal(seen.events.at(-1).message.content, reply.content);
    client.close();
    client = new Client({ ...server.options(), fetch: traffic.fetch, WebSocket: traffic.WebSocket });
  }
});

test("slow reader: no text lost if cut, offline or switched off", async () => {
  for (const disturb of [() => traffic.drop(), () => (traffic.slow = false), () => traffic.goOffline(300)]) {
    const reply = message(2, "assistant", "", "streaming");
    server.messages = [message(1, "user", "Hi"), reply];
    traffic.slow = true;
    const seen = collect(client.watch(SESSION, { after: START }));
    await live();
    for (let i = 0; i < 60; i++) {
      await write(reply, `word${i} `);
      await clock.advance(70);
      if (i === 30) disturb();
    }
    await clock.advance(5000);
    await live();
    await settled();
    assert.equal(textOf(seen.events), reply.content);
    adjoins(seen.events);
    client.close();
    client = new Client({ ...server.options(), fetch: traffic.fetch, WebSocket: traffic.WebSocket });
  }
});

test("slow reader: a dropped delta does not follow a cleared event", async () => {
  for (const slow of [true, false]) {
    const reply = message(2, "assistant", "", "streaming");
    server.messages = [message(1, "user", "Hi"), reply];
    traffic.slow = true;
    const seen = collect(client.watch(SESSION, { after: START }));
    await live();
    await write(reply, "one ");
    await write(reply, "two ");
    assert.ok(traffic.entries.at(-1).dropped);
    traffic.slow = slow;
    server.frame(server.socket, { type: "session.cleared", sessionId: SESSION });
    await clock.advance(3000);
    await settled();
    assert.equal(seen.events.at(-1).type, "cleared");
    client.close();
    client = new Client({ ...server.options(), fetch: traffic.fetch, WebSocket: traffic.WebSocket });
  }
});

test("isDelta compares only the beginning of a frame", () => {
  assert.ok(isDelta('{"type":"message.delta","sessionId":"s"}'));
  assert.ok(!isDelta('{"type":"message.created","metadata":{"type":"message.delta"}}'));
});

test("slow reader: close leaves no timer behind", async () => {
  const reply = message(2, "assistant", "", "streaming");
  server.messages = [message(1, "user", "Hi"), reply];
  traffic.slow = true;
  client.watch(SESSION, { after: START });
  await live();
  await write(reply, "one ");
  await write(reply, "two ");
  assert.ok(traffic.entries.at(-1).dropped);
});

test("offline, a new WebSocket opens no connection and closes", async () => {
  traffic.goOffline(10);
  const socket = new traffic.WebSocket("ws://parley.test/v1/stream", []);
  const closed = new Promise((resolve) => (socket.onclose = resolve));
  await clock.advance(10);
  assert.deepEqual(await closed, { code: 1006, reason: "" });
  assert.equal(server.sockets.length, 0);
});
