// Drives web/static/client.js for jsclient_test.go, against a real server, over stretches of network that are cut. What it is to do
// comes as the first line of standard input. Run by Node with --experimental-websocket, where it has no WebSocket of its own.
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

const HOLD = "hold "; // begins what the model answers without an end

/** A client whose socket runs over a wire of the test's; its REST requests go straight to the server. */
function clientOver(wire, url, key) {
  class Wired extends WebSocket {
    constructor(address, protocols) {
      super(address.replace(new URL(url).host, wire), protocols);
    }
  }
  return new Client({ baseURL: url + "/v1", key, WebSocket: Wired });
}

/** What a client was shown of replies, checked as it came. */
class Shown {
  replies = []; // those that ended, { text, status }
  asked = 0; // messages of users
  #at = null;
  #bytes = 0;
  #text = "";

  take(event) {
    const { type, messageId, message } = event;
    if (type === "created" && message.role === "user") return void this.asked++;
    if (type === "created") {
      assert.equal(this.#at, null, "a reply begins before the last one ended");
      assert.deepEqual([message.status, message.content], ["streaming", ""]);
      [this.#at, this.#bytes, this.#text] = [messageId, 0, ""];
      return;
    }
    assert.equal(messageId, this.#at, `${type} of another reply`);
    if (type === "delta") {
      assert.equal(event.offset, this.#bytes, "deltas adjoin, and none comes twice");
      this.#bytes += Buffer.byteLength(event.delta);
      this.#text += event.delta;
      assert.equal(event.end, this.#bytes);
      return;
    }
    assert.equal(type, "end");
    assert.equal(message.content, this.#text, "what was shown is what is kept");
    this.replies.push({ text: this.#text, status: event.status });
    this.#at = null;
  }

  get text() {
    return this.#text;
  }
}

/** Sends texts, one after the other, while another client watches; what the model holds is cancelled once it is shown. */
async function converse({ session, sender, watcher, texts }, { url, key }) {
  const sending = clientOver(sender, url, key);
  const watching = clientOver(watcher, url, key);
  const { stream } = await sending.session(session);
  const answered = new Shown();
  const seen = new Shown();
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

/** Has the next bytes that go one way be lost, with their connection: a request's, or its answer's. */
async function lose(what) {
  process.stdout.write(what + "\n");
  assert.equal(await read(), what);
}

/** Sends messages and cancels their replies, each time with a cut that takes the request with it, or the answer. */
async function loseRequests({ session, wire, losses }, { url, key }) {
  const client = clientOver(wire, url, key);
  const seen = new Shown();
  (async () => {
    for await (const event of client.watch(session)) seen.take(event); // as long as it watches, send begins with the message itself
  })().catch((error) => {
    if (error.code !== "closed") throw error; // which ends the process
  });
  for (const what of ["nothing", ...losses]) {
    const shown = new Shown();
    const text = `${HOLD}日本 🙂 ${what} `;
    await lose(what);
    for await (const event of client.send(session, text)) {
      shown.take(event);
      if (event.type !== "delta" || shown.text !== text) continue;
      await lose(what);
      await cancel(client, event, text);
    }
    assert.deepEqual(shown.replies, [{ text, status: "cancelled" }]);
  }
  assert.equal(seen.asked, 1 + losses.length);
  client.close();
}

const { conversations, losing, ...server } = await read();
await Promise.all([...conversations.map((c) => converse(c, server)), loseRequests(losing, server)]);
process.exit(0); // fetch keeps connections open for a while
