import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Client } from "../static/client.js";
import { Clock, SESSION, START, Server, collect, message, settled } from "./fake.mjs";

// Tests of the client with a server that no longer knows a cursor, because its store was restored from a backup or lost writes.

const REPLY = "msg_0000000000000002";
let clock, server, client;

beforeEach(() => {
  clock = new Clock().install();
  server = new Server();
});

afterEach(async () => {
  client.close();
  await settled();
  assert.equal(clock.waiting, 0, "a closed client leaves no timer behind");
  clock.uninstall();
});

const connect = () => (client = new Client(server.options()));
const addConversation = () => (server.messages = [message(1, "user", "Hi"), message(2, "assistant", "a reply")]);
const requestsOf = (type) => server.requests.filter((frame) => frame.type === type);
const sawEnd = (seen) => () => seen.events.some((event) => event.type === "end");

/** Waits until a condition is true. While the client waits to reconnect, advances the clock to the next attempt. */
async function until(condition) {
  for (let i = 0; !condition(); i++) {
    assert.ok(i < 500, "timed out: the condition stays false");
    await settled();
    if (client.state.state === "reconnecting") await clock.advance(client.state.retryInMs);
  }
}

/** Makes the server refuse all cursors, and breaks the connection. */
function forget() {
  server.onrequest = (socket, { type, id, after }) => {
    const unknown = type === "subscribe" && after !== undefined;
    if (unknown) server.frame(socket, { type: "error", replyTo: id, error: { code: "validation_error", message: "after", field: "after" } });
    return unknown;
  };
  server.break(server.socket);
}

test("unknown cursor: watch yields cleared, then new events", async () => {
  addConversation();
  const seen = collect(connect().watch(SESSION, { after: START }));
  await until(sawEnd(seen));
  server.messages = [message(1, "user", "restored from a backup")];
  forget();
  await until(() => seen.events.at(-1).type === "cleared");
  assert.deepEqual([seen.events.at(-1).recovered, requestsOf("subscribe").map(({ after }) => after !== undefined)], [false, [true, true, false]]);
  server.onrequest = null;
  server.messages.push(message(2, "assistant", "after the restore"));
  server.showAll();
  await settled();
  assert.deepEqual(seen.events.slice(-2).map((event) => event.type), ["delta", "end"]);
  server.break(server.socket); // cursors issued since then are valid
  await until(() => client.state.resumed && requestsOf("subscribe").length === 4);
  assert.equal(requestsOf("subscribe")[3].after, "c.1.e");
  assert.deepEqual([seen.done, seen.events.filter((event) => event.type === "cleared").length], [false, 1]);
});

test("unknown cursor: only two subscribe requests per connection", async () => {
  addConversation();
  const seen = collect(connect().watch(SESSION, { after: START }));
  await settled();
  forget();
  for (let cut = 1; cut <= 5; cut++) {
    await until(() => seen.events.filter((event) => event.type === "cleared").length === cut);
    assert.equal(requestsOf("subscribe").length, 1 + 2 * cut);
    server.break(server.socket);
  }
});

test("unknown cursor, then a cut: watch still yields cleared", async () => {
  addConversation();
  const seen = collect(connect().watch(SESSION, { after: START }));
  await until(sawEnd(seen));
  forget();
  let broken = false;
  const refuse = server.onrequest;
  server.onrequest = (socket, frame) => {
    if (frame.type !== "subscribe" || frame.after !== undefined || broken) return refuse(socket, frame);
    broken = true;
    server.break(socket);
    return true;
  };
  await until(() => seen.events.at(-1).type === "cleared");
  assert.deepEqual([broken, seen.events.at(-1).recovered], [true, false]);
});

for (const [what, answer, wanted] of [
  ["fetches the reply and yields its end", { status: 200, body: message(2, "assistant", "stored", "interrupted") }, ["end", "interrupted", "stored"]],
  ["throws if the reply is gone", { status: 404, body: { error: { code: "message_not_found", message: "" } } }, "session_cleared"],
  ["throws if the server is unreachable", new TypeError("fetch failed"), "network_error"],
]) {
  test(`unknown cursor during a reply: send ${what}`, async () => {
    server.answers[`GET /sessions/${SESSION}/messages/${REPLY}`] = answer;
    server.onrequest = (socket, frame) => {
      if (frame.type !== "send") return false;
      server.messages.push(message(1, "user", "Hi"), message(2, "assistant", "streamed", "streaming"));
      server.frame(socket, { type: "sent", replyTo: frame.id, sessionId: SESSION, messageId: REPLY });
      server.showAll();
      return true;
    };
    const seen = collect(connect().send(SESSION, "Hi"));
    await settled();
    assert.equal(seen.events.length > 1, true);
    server.messages = [];
    forget();
    await until(() => seen.done);
    const last = seen.events.at(-1);
    if (Array.isArray(wanted)) assert.deepEqual([seen.error, last.type, last.status, last.message.content], [null, ...wanted]);
    else assert.equal(seen.error.code, wanted);
  });
}
