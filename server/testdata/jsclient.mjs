// Runs web/static/client.js for jsclient_test.go, against a real server, over proxies that cut connections. The first line of
// standard input holds the tasks, as JSON. The test runs this script with Node's option --experimental-websocket, which old
// versions need.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { Client } from "../../web/static/client.js";

const input = createInterface({ input: process.stdin });
const lines = [];
input.on("line", (line) => lines.push(line) && input.emit("more"));

async function read() {
  while (lines.length === 0) await once(input, "more");
  return JSON.parse(lines.shift());
}

const HOLD = "hold "; // a reply to a message that begins with HOLD ends only when it is cancelled

/** Returns a client that opens sockets through a proxy. REST requests go directly to the server. */
function clientOver(proxy, url, key) {
  class ProxiedWebSocket extends WebSocket {
    constructor(address, protocols) {
      super(address.replace(new URL(url).host, proxy), protocols);
    }
  }
  return new Client({ baseURL: url + "/v1", key, WebSocket: ProxiedWebSocket });
}

/** Collects the events that a client yields, and checks their order. */
class Collector {
  replies = []; // the replies that have ended: { text, status }
  asked = 0; // number of users' messages
  #at = null; // id of the live reply
  #bytes = 0; // length of #text as UTF-8
  #text = ""; // text of the live reply so far

  take(event) {
    const { type, messageId, message } = event;
    if (type === "created" && message.role === "user") return void this.asked++;
    if (type === "created") {
      assert.equal(this.#at, null, "a reply begins before the previous reply has ended");
      assert.deepEqual([message.status, message.content], ["streaming", ""]);
      [this.#at, this.#bytes, this.#text] = [messageId, 0, ""];
      return;
    }
    assert.equal(messageId, this.#at, `${type} of another reply`);
    if (type === "delta") {
      assert.equal(event.offset, this.#bytes, "a delta is missing or repeated");
      this.#bytes += Buffer.byteLength(event.delta);
      this.#text += event.delta;
      assert.equal(event.end, this.#bytes);
      return;
    }
    assert.equal(type, "end");
    assert.equal(message.content, this.#text, "the deltas differ from the stored text");
    this.replies.push({ text: this.#text, status: event.status });
    this.#at = null;
  }

  get text() {
    return this.#text;
  }
}

/** Sends texts, one after another, while a second client watches. Cancels each held reply after the whole text has arrived. */
async function converse({ session, sender, watcher, texts }, { url, key }) {
  const sending = clientOver(sender, url, key);
  const watching = clientOver(watcher, url, key);
  const { stream } = await sending.session(session);
  const answered = new Collector();
  const seen = new Collector();
  const watched = (async () => {
    for await (const event of watching.watch(session, { after: stream.cursor })) {
      seen.take(event);
      if (seen.replies.length === texts.length) return;
    }
  })();
  for (const text of texts) {
    for await (const event of sending.send(session, text)) {
      answered.take(event);
      if (event.type === "delta" && text.startsWith(HOLD) && answered.text === text) await cancel(sending, event, text);
    }
  }
  await watched;
  const want = texts.map((text) => ({ text, status: text.startsWith(HOLD) ? "cancelled" : "completed" }));
  assert.deepEqual(answered.replies, want);
  assert.deepEqual(seen.replies, want);
  assert.deepEqual([answered.asked, seen.asked], [0, texts.length]);
  sending.close();
  watching.close();
}

async function cancel(client, { sessionId, messageId }, text) {
  const message = await client.cancel(sessionId, messageId);
  assert.deepEqual([message.messageId, message.status, message.content], [messageId, "cancelled", text]);
}

/** Makes the proxy lose the next bytes in a direction, "request" or "response", and cut their connection. */
async function lose(direction) {
  process.stdout.write(direction + "\n");
  assert.equal(await read(), direction);
}

/** Sends messages and cancels the replies. For each message, the proxy loses either the send and the cancel, or the responses to both. */
async function loseRequests({ session, proxy, losses }, { url, key }) {
  const client = clientOver(proxy, url, key);
  const seen = new Collector();
  (async () => {
    // Because of this subscription, the first frame of client.send is the message.
    for await (const event of client.watch(session)) seen.take(event);
  })().catch((error) => {
    if (error.code !== "closed") throw error; // the unhandled rejection ends the process
  });
  for (const direction of ["neither", ...losses]) {
    const shown = new Collector();
    const text = `${HOLD}日本 🙂 ${direction} `;
    await lose(direction);
    for await (const event of client.send(session, text)) {
      shown.take(event);
      if (event.type !== "delta" || shown.text !== text) continue;
      await lose(direction);
      await cancel(client, event, text);
    }
    assert.deepEqual(shown.replies, [{ text, status: "cancelled" }]);
  }
  assert.equal(seen.asked, 1 + losses.length);
  client.close();
}

/** Sends each message twice or three times with one idempotency key: after the reply, during the reply, and after a clear. */
async function repeat(session, { url, key }) {
  const [client, other] = [1, 2].map(() => new Client({ baseURL: url + "/v1", key }));
  const send = async (sender, text, onWhole = () => {}) => {
    const shown = new Collector();
    for await (const event of sender.send(session, text, { idempotencyKey: encodeURIComponent(text) })) {
      shown.take(event);
      if (event.type === "delta" && shown.text === text) await onWhole(event);
    }
    return shown.replies;
  };
  const over = "日本 🙂 is over";
  const whole = [{ text: over, status: "completed" }];
  assert.deepEqual(await send(client, over), whole);
  assert.deepEqual(await send(client, over), whole, "repeated on the same socket");
  const watched = new Collector();
  const watcher = other.watch(session);
  const watching = (async () => {
    for await (const event of watcher) watched.take(event);
  })();
  assert.deepEqual(await send(other, over), whole, "repeated while another iterator has the session's subscription");

  const live = `${HOLD}日本 🙂 is live`;
  const cancelled = [{ text: live, status: "cancelled" }];
  let again;
  const first = send(client, live, () => void (again = send(other, live, (event) => cancel(other, event, live))));
  assert.deepEqual([await first, await again], [cancelled, cancelled]);

  await watcher.return();
  await watching;
  assert.deepEqual([watched.replies, watched.asked], [cancelled, 1], "the repeats changed what a watch yields");
  await client.clear(session);
  await assert.rejects(send(client, over), { code: "message_not_found" });
  for (const each of [client, other]) each.close();
}

const { conversations = [], lossTask, repeatSession, ...server } = await read();
const tasks = conversations.map((c) => converse(c, server));
if (lossTask) tasks.push(loseRequests(lossTask, server));
if (repeatSession) tasks.push(repeat(repeatSession, server));
await Promise.all(tasks);
process.exit(0); // fetch keeps connections open for a while
