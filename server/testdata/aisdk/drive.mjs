// The driver of the tests of ai-sdk.v7. It runs the real npm package `ai`. Each line of standard input is a command, and each
// line of standard output is an event, both as JSON. The test runs this script with Node's option --experimental-websocket, which
// old versions need. Node's WebSocket is like a browser's: a script cannot set headers of the handshake.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [package_, url, key] = process.argv.slice(2);
const { AbstractChat, DefaultChatTransport, WebSocketChatTransport } = await import(pathToFileURL(package_));
const tell = (event) => process.stdout.write(JSON.stringify(event) + "\n");

/** A WebSocket that reports every frame as an event. */
class ReportingWebSocket extends WebSocket {
  constructor(...all) {
    super(...all);
    this.addEventListener("message", ({ data }) => tell({ event: "received", frame: data }));
    this.addEventListener("close", ({ code }) => tell({ event: "closed", code }));
    sockets.push(this);
  }
  send(data) {
    tell({ event: "sent", frame: data });
    super.send(data);
    if (resumeAgain && JSON.parse(data).type === "resume") resumeAgain();
  }
}

/** The state of a chat. useChat keeps the same data in React's state. */
class State {
  constructor(chat, messages) {
    Object.assign(this, { chat, messages, status: "ready", error: undefined });
  }
  tell() {
    tell({ event: "shown", chat: this.chat, messages: this.messages.map(({ id, role, parts }) => ({ id, role, text: textOf(parts) })) });
  }
  pushMessage(message) {
    this.messages = [...this.messages, message];
    this.tell();
  }
  popMessage() {
    this.messages = this.messages.slice(0, -1);
  }
  replaceMessage(index, message) {
    this.messages = this.messages.map((old, i) => (i === index ? structuredClone(message) : old));
    this.tell();
  }
  snapshot(value) {
    return structuredClone(value);
  }
}
class Chat extends AbstractChat {
  constructor({ name, messages = [], ...init }) {
    super({ ...init, state: new State(name, messages), onFinish: ({ finishReason, isAbort }) => (this.finished = { finishReason, isAbort }) });
  }
}
const textOf = (parts) => parts.filter(({ type }) => type === "text").map(({ text }) => text).join("|");

async function freshTicket() {
  const response = await fetch(url + "/v1/stream/tickets", { method: "POST", headers: { Authorization: "Bearer " + key } });
  return (await response.json()).ticket;
}

const sockets = [], chats = {};
let resumeAgain; // function to call after the next resume frame is sent
const transport = new WebSocketChatTransport({
  url: url + "/v1/stream",
  protocols: "ai-sdk.v7",
  params: async () => ({ ticket: await freshTicket() }),
  headers: { "X-Page": "a header of the page" },
  body: { model: "whatever", nested: { deep: [1, null, "x"] } },
  webSocket: ReportingWebSocket,
});

const commands = {
  open({ chat, session, messages }) {
    chats[chat] = new Chat({ name: chat, id: session, transport, messages });
  },
  /** Opens a chat that can only resume, over server-sent events. */
  openEvents({ chat, session, reply }) {
    const api = `${url}/v1/sessions/${session}/messages/${reply}/stream?format=ai-sdk`;
    const prepareReconnectToStreamRequest = () => ({ api, headers: { Authorization: "Bearer " + key } });
    chats[chat] = new Chat({ name: chat, id: session, transport: new DefaultChatTransport({ prepareReconnectToStreamRequest }) });
  },
  send: ({ chat, text, metadata }) => chats[chat].sendMessage({ text, metadata }, { metadata: { request: "metadata" } }),
  sendFile: ({ chat }) => chats[chat].sendMessage({ text: "look", files: [{ type: "file", mediaType: "text/plain", url: "data:text/plain,x" }] }),
  resume: ({ chat }) => chats[chat].resumeStream(),
  /** Resumes, and resumes again before the first resume gets a response. Two clicks of a user have this effect. */
  resumeTwice: ({ chat }) =>
    new Promise((done) => {
      resumeAgain = () => {
        resumeAgain = undefined;
        done(chats[chat].resumeStream());
      };
      chats[chat].resumeStream();
    }),
  regenerate: ({ chat }) => chats[chat].regenerate(),
  stop: ({ chat }) => chats[chat].stop(),
  cut: () => sockets.forEach((socket) => socket.close(4000)),
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { do: name, chat, ...rest } = JSON.parse(line);
  try {
    await commands[name]({ chat, ...rest });
    const it = chats[chat];
    tell({ event: "done", do: name, chat, status: it?.status, error: it?.error?.message, finished: it?.finished });
  } catch (error) {
    tell({ event: "done", do: name, chat, error: "THROWN " + error.stack });
  }
}).on("close", () => process.exit(0));
tell({ event: "ready" });
