// Code snippets for the inspector: each call of the page as a curl command, a JavaScript program and a Go program. No I/O. A test
// in cmd/parley runs every kind of snippet.

/** Returns the snippets for an entry of traffic.js: [{ name: "curl", text }, { name: "JavaScript", text }, { name: "Go", text }].
 * Returns null for received frames, `ping` and `unsubscribe`. base is the server's address with the API version. The snippets
 * read the key from $KEY. They omit the idempotency key of the call, because with that key the server would only replay its
 * response. */
export function snippetsOf(entry, base) {
  const call = entry.method ? restCall(entry, base) : frameCall(entry);
  if (!call) return null;
  return [
    { name: "curl", text: curl(call, base) },
    { name: "JavaScript", text: javascript(call, base) },
    { name: "Go", text: go(call, base) },
  ];
}

// A call is { method, path, body }, with path relative to base. If the clients make this call with their method send, watch or
// cancel, the call has another field. The name of the field is the name of that method, and its value holds the arguments.

function restCall({ method, path, data }, base) {
  const prefix = new URL(base).pathname;
  const call = { method, path: path.startsWith(prefix) ? path.slice(prefix.length) : path, body: data ? parse(data) : undefined };
  const [, sessionId, messageId] = /^\/sessions\/([^/?]+)\/messages(?:\/([^/?]+)\/cancel)?$/.exec(call.path) ?? [];
  if (method !== "POST" || !sessionId) return call;
  return messageId ? { ...call, cancel: { sessionId, messageId } } : { ...call, send: { sessionId, ...call.body } };
}

const frames = {
  send: ({ sessionId, content, role, metadata, onBusy }) => ({
    method: "POST",
    path: `/sessions/${sessionId}/messages`,
    body: { content, role, metadata, onBusy },
    send: { sessionId, content, role, metadata, onBusy },
  }),
  cancel: ({ sessionId, messageId }) => ({
    method: "POST",
    path: `/sessions/${sessionId}/messages/${messageId}/cancel`,
    cancel: { sessionId, messageId },
  }),
  subscribe: ({ sessionId, after }) => ({
    method: "GET",
    path: `/sessions/${sessionId}/messages?order=asc`,
    watch: { sessionId, after },
  }),
};

function frameCall({ out, data }) {
  const frame = out ? parse(data) : undefined;
  return frame && Object.hasOwn(frames, frame.type) ? frames[frame.type](frame) : null;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // truncated by traffic.js
  }
}

// ---- curl

function curl({ method, path, body, watch }, base) {
  const words = [`curl -sS${method === "GET" || body ? "" : ` -X ${method}`} ${quoted(base + path)}`, `-H "Authorization: Bearer $KEY"`];
  if (body) words.push(`-H 'Content-Type: application/json'`, `-d ${quoted(JSON.stringify(body))}`);
  const why = watch ? "# Watching a session needs a WebSocket. This reads its history instead.\n" : "";
  return `${why}${words.join(" \\\n  ")}\n`;
}

/** Quotes text as one word for a POSIX shell. */
function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

// ---- JavaScript

const methods = [
  // The methods of client.js: [HTTP method, path, function]. The function takes three arguments (the ids from the path, the
  // query, the body) and returns code.
  ["POST", /^\/sessions$/, (_, query, body) => `createSession(${literal(body)})`],
  ["GET", /^\/sessions$/, (_, query) => `sessions(${query})`],
  ["GET", /^\/sessions\/([^/]+)$/, ([id]) => `session(${literal(id)})`],
  ["DELETE", /^\/sessions\/([^/]+)$/, ([id]) => `deleteSession(${literal(id)})`],
  ["GET", /^\/sessions\/([^/]+)\/messages$/, ([id], query) => `history(${literal(id)}${query && `, ${query}`})`],
  ["DELETE", /^\/sessions\/([^/]+)\/messages$/, ([id]) => `clear(${literal(id)})`],
  ["GET", /^\/sessions\/([^/]+)\/messages\/([^/]+)$/, ([id, message]) => `message(${literal(id)}, ${literal(message)})`],
  ["POST", /^\/sessions\/([^/]+)\/messages\/([^/]+)\/cancel$/, ([id, message]) => `cancel(${literal(id)}, ${literal(message)})`],
];

function javascript(call, base) {
  const client = methodOf(call);
  if (!client && !call.send && !call.watch) return javascriptFetch(call, base);
  const { origin } = new URL(base);
  const head = [
    `// curl -O '${origin}/static/{client,connection,track}.js'; Node 20 needs --experimental-websocket`,
    `import { Client } from "./client.js";`,
    ``,
    `const client = new Client({ baseURL: ${literal(base)}, key: process.env.KEY });`,
  ];
  const lines = call.send ? javascriptSend(call.send) : call.watch ? javascriptWatch(call.watch) : [`console.log(JSON.stringify(await client.${client}, null, 2));`];
  return [...head, ...lines, ""].join("\n");
}

function methodOf({ method, path, body, send, watch }) {
  if (send || watch) return null;
  const [place, search] = path.split("?");
  const given = [...new URLSearchParams(search)].map(([name, value]) => [name, name === "limit" ? Number(value) : value]);
  const query = search ? literal(Object.fromEntries(given)) : "";
  for (const [its, pattern, write] of methods) {
    const ids = its === method && pattern.exec(place);
    if (ids) return write(ids.slice(1), query, body);
  }
  return null;
}

function javascriptSend({ sessionId, content, role, metadata, onBusy }) {
  const options = literal({ role, metadata, onBusy });
  return [
    `for await (const event of client.send(${literal(sessionId)}, ${literal(content)}${options === "{}" ? "" : `, ${options}`})) {`,
    `  if (event.type === "delta") process.stdout.write(event.delta);`,
    `}`,
    `client.close();`,
  ];
}

function javascriptWatch({ sessionId, after }) {
  return [
    `for await (const event of client.watch(${literal(sessionId)}${after === undefined ? "" : `, ${literal({ after })}`})) {`,
    `  console.log(event.type, event.messageId ?? "", event.delta ?? "");`,
    `}`,
    `client.close();`,
  ];
}

function javascriptFetch({ method, path, body }, base) {
  const type = body ? `, "Content-Type": "application/json"` : "";
  const lines = [
    `const response = await fetch(${literal(base + path)}, {`,
    `  method: ${literal(method)},`,
    `  headers: { Authorization: \`Bearer \${process.env.KEY}\`${type} },`,
  ];
  if (body) lines.push(`  body: JSON.stringify(${literal(body, 2)}),`);
  return [...lines, `});`, `console.log(response.status, await response.text());`, ""].join("\n");
}

/** Returns value as JavaScript source. In an object literal, unlike in JSON, "__proto__" would set the prototype. */
function literal(value, indent) {
  const text = JSON.stringify(value, null, indent);
  return text.includes('"__proto__":') ? `JSON.parse(${JSON.stringify(text)})` : text;
}

// ---- Go

function go(call, base) {
  const { imports, lines } = call.send ? goSend(call.send) : call.watch ? goWatch(call.watch) : call.cancel ? goCancel(call.cancel) : goDo(call);
  return [
    `package main`,
    ``,
    `import (`,
    ...["context", ...imports, "fmt", "log", "os"].map((name) => `\t"${name}"`),
    ``,
    `\t"parley/stream/client"`,
    `)`,
    ``,
    `func main() {`,
    `\tc := client.New(client.Options{BaseURL: ${goString(base)}, Key: os.Getenv("KEY")})`,
    `\tdefer c.Close()`,
    `\tctx := context.Background()`,
    ...lines.map((line) => `\t${line}`),
    `}`,
    ``,
  ].join("\n");
}

const goFail = ["\tif err != nil {", "\t\tlog.Fatal(err)", "\t}"];

function goSend({ sessionId, content, role, metadata, onBusy }) {
  const fields = [
    ["Content", goString(content)],
    ["Role", role && goString(role)],
    ["Metadata", metadata && `json.RawMessage(${goString(JSON.stringify(metadata))})`],
    ["OnBusy", onBusy && goString(onBusy)],
  ];
  const message = fields.filter(([, value]) => value).map(([name, value]) => `${name}: ${value}`).join(", ");
  return {
    imports: metadata ? ["encoding/json"] : [],
    lines: [
      `for event, err := range c.Send(ctx, ${goString(sessionId)}, client.NewMessage{${message}}) {`,
      ...goFail,
      `\tfmt.Print(event.Delta)`,
      `}`,
    ],
  };
}

function goWatch({ sessionId, after = "" }) {
  return {
    imports: [],
    lines: [
      `for event, err := range c.Watch(ctx, ${goString(sessionId)}, ${goString(after)}) {`,
      ...goFail,
      `\tfmt.Println(event.Type, event.MessageID, event.Delta)`,
      `}`,
    ],
  };
}

function goCancel({ sessionId, messageId }) {
  return {
    imports: [],
    lines: [
      `message, err := c.Cancel(ctx, ${goString(sessionId)}, ${goString(messageId)})`,
      ...goFail.map((line) => line.slice(1)),
      `fmt.Println(message.Status, message.Content)`,
    ],
  };
}

function goDo({ method, path, body }) {
  const sent = body ? `json.RawMessage(${goString(JSON.stringify(body))})` : "nil";
  return {
    imports: ["encoding/json"],
    lines: [
      `var answer json.RawMessage`,
      `if err := c.Do(ctx, ${goString(method)}, ${goString(path)}, ${sent}, &answer); err != nil {`,
      `\tlog.Fatal(err)`,
      `}`,
      `fmt.Println(string(answer))`,
    ],
  };
}

/** Returns text as a Go string literal. A text with quotes becomes a raw literal if Go allows its characters in one. Other
 * texts get the escapes of JSON, which are valid in Go. A byte order mark needs an escape in Go. */
function goString(text) {
  const whole = text.toWellFormed();
  if (whole.includes('"') && !/[`\p{Cc}\ufeff]/u.test(whole)) return `\`${whole}\``;
  return JSON.stringify(whole).replaceAll("\ufeff", "\\ufeff");
}
