// The entry point. It owns the state of the page (the client, the open session) and connects the other modules.
//
// Messages come from the history and the events of the open session. Sending adds only a placeholder to the log, so messages of
// this tab look the same as those of other tabs.

import { Chip } from "./chip.js";
import { Client, ParleyError } from "./client.js";
import { Composer } from "./composer.js";
import { element } from "./element.js";
import { Log } from "./log.js";
import { ask, closeTopmost, showSidebar } from "./menus.js";
import { Meter } from "./meter.js";
import { Problem } from "./problem.js";
import { Sessions } from "./sessions.js";
import { Timing } from "./timing.js";
import { Tools } from "./tools.js";
import { Traffic } from "./traffic.js";
import { describe, randomId, remember, titleOf, timeLeft } from "./words.js";

const PAGE = 50; // messages per history request: a few screens of text
const EXPIRY_MS = 30_000; // between updates of the remaining time, which is shown in minutes

const endings = {
  completed: "Reply completed.",
  cancelled: "Reply stopped.",
  failed: "Reply failed.",
  interrupted: "Reply interrupted.",
};

const $ = (id) => document.getElementById(id);
const chip = new Chip($("chip"));
const problem = new Problem($("problem"));
const composer = new Composer($("composer"), $("count"), { onsend: send, onstop: () => attempt(stop) });
const log = new Log($("log"), $("scroller"), refresh, actionsOf);
const sessions = new Sessions($("sessions"), { open: choose, remove: askToDelete, leave: backToComposer });
const meter = new Meter($("window"), { usage: tokenUsage, content: () => composer.content, preview: () => attempt(preview) });
const timing = new Timing();
const base = new URL("/v1", location.href).href;
const traffic = new Traffic();
const tools = new Tools({ traffic, base, key: () => remember.tab("parley.key"), send, say, failed });
let client = null;
/** The open session: { sessionId, leave: AbortController, loaded, stale, earlier, about }, or null until the first message
 * creates a session. about is the server's Session object. stale: loading failed and is retried after a reconnect. */
let current = null;
let disconnected = false; // the connection was lost and is not live yet
let sending = false; // this tab has sent a message, and its turn has not begun

// ---- The key

/** Uses the key in the fragment of the address, if the user confirms. Somebody else may have made the link, to read what the user
 * will write with this key. */
function takeKeyFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!given) return;
  history.replaceState(null, "", location.pathname + location.search); // a key must not stay visible, or in the browser's history
  const known = remember.tab("parley.key");
  if (known === given) return;
  const question = `This link contains ${known ? "another" : "an"} API key. Your messages would go to that key's account, whose owner can read them. Use the key only if you know where the link comes from.`;
  ask(question, "Use this key", () => connect(remember.tab("parley.key", given)));
}

function askForKey(text = "") {
  disconnect();
  tools.forget();
  remember.tab("parley.key", null);
  $("gate-problem").textContent = text;
  $("gate-problem").hidden = !text;
  view("gate");
  $("key").value = "";
  $("key").focus();
}

function disconnect() {
  leave();
  if (client) client.onstate = null;
  client?.close();
  client = null;
  sessions.use(null);
  chip.show({ state: "idle" });
}

function connect(key = remember.tab("parley.key")) {
  if (!key) return askForKey();
  disconnect();
  client = new Client({ baseURL: base, key, fetch: traffic.fetch, WebSocket: traffic.WebSocket });
  client.onstate = showState;
  client.connect();
  view("chat");
  sessions.use(client, key.startsWith("svc_test_"));
  const last = remember.browser("parley.session");
  goTo(sessionInAddress());
  if (!current) reopen(last);
  if (!matchMedia("(pointer: coarse)").matches) composer.focus();
}

/** Opens the last session of this browser, unless it is gone or belongs to another account. */
async function reopen(sessionId) {
  const exists = sessionId && (await client.session(sessionId).then(() => true, (error) => error.status !== 404));
  if (exists && client && !current) open(sessionId);
}

function sessionInAddress() {
  return new URLSearchParams(location.search).get("session");
}

function showState(state) {
  chip.show(state);
  if (state.state === "reconnecting") disconnected = true;
  if (state.state === "live" && disconnected) {
    disconnected = false;
    timing.expectReplay(performance.now());
    sessions.refresh();
  }
  if (state.state === "live" && current?.stale) open(current.sessionId);
  if (state.state === "closed" && state.error) askForKey(describe(state.error).text);
}

/** Shows the "gate", which asks for a key, or the "chat". */
function view(name) {
  document.body.dataset.view = name;
  $("gate").hidden = name !== "gate";
  $("chat").hidden = name !== "chat";
  showAbout();
  refresh();
}

// ---- The session

function leave() {
  current?.leave.abort();
  current = null;
}

/** Shows a session, empty until it is loaded. If sessionId is null, the first message creates the session. step adds an entry to
 * the browser's history, so that Back returns to the previous session. */
function showSession(sessionId, step = false) {
  leave();
  log.wipe();
  problem.hide();
  say("");
  meter.show(null);
  remember.browser("parley.session", sessionId);
  const address = new URL(location.href);
  if (sessionId) address.searchParams.set("session", sessionId);
  else address.searchParams.delete("session");
  history[step && address.href !== location.href ? "pushState" : "replaceState"](null, "", address);
  $("another-tab").href = address.pathname + address.search;
  $("earlier").hidden = true;
  if (sessionId) current = { sessionId, leave: new AbortController(), loaded: false, stale: false, earlier: null, about: null };
  showAbout();
  refresh();
  return current;
}

/** Shows a session (null: a new session) without an entry in the browser's history. */
function goTo(sessionId) {
  if (sessionId) open(sessionId);
  else showSession(null);
}

/** Loads a session and its newest messages, then watches the session from the cursor of that history. */
async function open(sessionId, step = false) {
  const session = showSession(sessionId, step);
  try {
    const [about, page] = await Promise.all([client.session(sessionId), client.history(sessionId, { limit: PAGE, order: "desc" })]);
    if (session !== current) return;
    loaded(about);
    for (const message of page.data.toReversed()) log.add(message);
    for (const { messageId } of page.data) noteTiming(messageId);
    meter.show(page.data.find(({ context }) => context)?.context ?? null);
    timing.expectReplay(performance.now());
    showEarlier(page.pagination);
    follow(session, page.stream?.cursor);
  } catch (error) {
    session.stale = true; // showState loads it again after a reconnect
    if (session !== current) return;
    failed(error);
    if (error.retryAfter) setTimeout(() => session === current && session.stale && open(sessionId), error.retryAfter * 1000);
  }
}

function loaded(about) {
  current.loaded = true;
  current.about = about;
  sessions.put(about);
  showAbout();
  refresh();
}

async function follow(session, after) {
  try {
    for await (const event of client.watch(session.sessionId, { after, signal: session.leave.signal })) show(event);
  } catch (error) {
    if (session === current) failed(error);
  }
}

function show(event) {
  sessions.take(event);
  timing.take(event, performance.now());
  switch (event.type) {
    case "created":
      return log.add(event.message);
    case "delta":
      sayLive(timing.live(event.messageId));
      return log.append(event.messageId, event.delta);
    case "end":
      log.add(event.message);
      noteTiming(event.messageId);
      if (event.message.context) meter.show(event.message.context);
      return say(endings[event.status]);
    case "cleared":
      if (!event.recovered) return open(event.sessionId); // no event brings the current history
      $("earlier").hidden = true;
      log.wipe();
      meter.show(null);
      return say("History cleared.");
    case "compressed":
      return say(`Older messages were ${meter.shortened(event)}.`);
    case "reasoning":
      return say("The model is reasoning…");
    default:
      showSession(null);
      say(event.type === "deleted" ? "Session deleted." : "Session expired: sessions last 24 hours.");
  }
}

/** Adds the speed of a reply to its note, if this tab watched the reply from the start. */
function noteTiming(messageId) {
  const text = timing.noteOf(messageId);
  if (text) document.querySelector(`article[data-message-id="${messageId}"] .note`)?.append(` · ${text}`);
}

/** Resolves with the session's tokenUsage for the meter, or with null if the request fails. */
function tokenUsage() {
  return client.session(current.sessionId).then(({ tokenUsage }) => tokenUsage, () => null);
}

async function preview() {
  const session = current;
  const { content } = composer;
  const [{ showPreview }, report] = await Promise.all([import("./preview.js").catch(unreachable), client.preview(session.sessionId, content)]);
  if (session !== current) return;
  showPreview($("preview"), report, content, (messageId) => log.textOf(messageId));
}

/** Shows the session's title and remaining time in the header. */
function showAbout() {
  const { about } = current ?? {};
  $("title").textContent = about ? titleOf(about) : current ? "…" : client ? "New session" : "Parley";
  $("title").title = current?.sessionId ?? "";
  $("life").textContent = about ? `${timeLeft(about.expiresAt)} left` : "";
  $("life").title = about ? `expires ${new Date(about.expiresAt).toLocaleString()}` : "";
  document.title = about ? `${titleOf(about)} · Parley` : "Parley";
}

function showEarlier({ hasMore, nextCursor }) {
  current.earlier = hasMore ? nextCursor : null;
  $("earlier").hidden = !hasMore;
}

async function loadEarlier() {
  const session = current;
  const page = await client.history(session.sessionId, { limit: PAGE, order: "desc", cursor: session.earlier });
  if (session !== current) return;
  log.prepend(page.data.toReversed());
  showEarlier(page.pagination);
}

/** Creates a session with the chosen window. The session's title is the beginning of the first message. */
async function createSession(content) {
  const policy = $("window-policy").value;
  const metadata = { title: content.trim().slice(0, 80) };
  const about = await client.createSession({
    userId: userId(),
    metadata,
    contextConfig: {
      maxTokens: Number($("window-tokens").value),
      compressionEnabled: policy !== "refuse",
      retentionPolicy: policy === "refuse" ? "fifo" : policy,
    },
  });
  const session = showSession(about.sessionId);
  loaded({ ...about, metadata });
  follow(session); // a new session has no messages, so no cursor is needed
  return session;
}

function userId() {
  return remember.browser("parley.user") ?? remember.browser("parley.user", randomId("user_"));
}

function newSession() {
  showSession(null, true);
  backToComposer();
}

function backToComposer() {
  showSidebar(false);
  composer.focus();
}

/** Opens a session from the list. */
function choose(sessionId) {
  if (sessionId !== current?.sessionId) open(sessionId, true);
  showSidebar(false);
  if (!matchMedia("(pointer: coarse)").matches) composer.focus(); // on a touch screen, the focus would open the keyboard
}

// ---- Sending

async function send(content = composer.take()) {
  if (content === null || sending) return;
  problem.hide();
  sending = true;
  refresh();
  let removePending = () => {};
  try {
    const session = current ?? (await createSession(content));
    removePending = log.pending(content);
    await client.start(session.sessionId, content, { signal: session.leave.signal });
  } catch (error) {
    composer.giveBack(content);
    failed(error);
  } finally {
    removePending(); // the message arrives as an event, or has arrived already
    sending = false;
    refresh();
  }
}

/** Returns the buttons of a message besides Copy: edit and resend for a user message, retry for a reply that did not complete. */
function actionsOf({ messageId, role, status, content }) {
  const button = (label, onclick) => element("button", { type: "button", onclick }, label);
  if (role === "user") return [button("Edit as new", () => edit(content)), button("Resend", () => send(content))];
  if (role !== "assistant" || status === "streaming" || status === "completed") return [];
  return [button("Try again", () => send(log.question(messageId) ?? null))];
}

function edit(content) {
  composer.type(content);
}

async function stop() {
  if (!log.live) return;
  say("Stopping…");
  await client.cancel(current.sessionId, log.live);
}

// ---- Errors

function failed(error) {
  if (error.name === "AbortError" || error.code === "closed") return;
  const { text, action, gone } = describe(error);
  if (error.code === "invalid_token") return askForKey(text);
  if (error.code === "context_overflow") meter.overflow(error);
  if (gone && current) sessions.remove(current.sessionId);
  if (gone) showSession(null);
  problem.show(error, {
    clear: ["Clear the history", () => attempt(clearHistory)],
    fresh: ["New session", newSession],
    again: current && ["Try again", () => open(current.sessionId)],
  }[action]);
}

function attempt(action) {
  return Promise.resolve().then(action).catch(failed);
}

// ---- The controls

function say(text) {
  $("status").textContent = text;
}

/** Updates the status line during a reply. Called with each delta, so it writes only changes. */
function sayLive(first) {
  const text = first ? `Reply streaming, ${first}…` : "Reply streaming…";
  if ($("status").textContent !== text) say(text);
}

/** Updates all controls from the page's state. */
function refresh() {
  const writing = log.live !== null;
  $("empty").hidden = !log.empty || (current !== null && !current.loaded);
  $("window-options").hidden = current !== null;
  $("menu").hidden = !current;
  sessions.mark(current?.sessionId ?? null, writing);
  composer.show({ ready: client !== null && !sending, writing });
  tools.show({ sessionId: current?.sessionId ?? null, live: log.live, ready: client !== null && !sending });
  if (writing) say("Reply streaming…");
}

function clearHistory() {
  return client.clear(current.sessionId); // the "cleared" event empties the log in every tab
}

async function deleteSession(sessionId) {
  await client.deleteSession(sessionId);
  sessions.remove(sessionId);
  // The deleted event may have arrived already, or may never arrive if the socket is down.
  if (current?.sessionId === sessionId) show({ type: "deleted" });
}

function askToDelete(session) {
  const question = `Delete “${titleOf(session)}” and its messages? This cannot be undone.`;
  ask(question, "Delete", () => attempt(() => deleteSession(session.sessionId)));
}

/** Reports a failed import of a module that is loaded on first use. */
function unreachable(cause) {
  throw new ParleyError("network_error", "The server cannot be reached.", { cause });
}

let usage = null; // UsageDialog, created on first use

async function openUsage() {
  const { UsageDialog } = await import("./usage.js").catch(unreachable);
  usage ??= new UsageDialog($("usage"));
  await usage.open(client);
}

const shortcuts = {
  Escape: () => closeTopmost() || attempt(stop),
  "Ctrl+k": () => {
    showSidebar(true);
    sessions.find();
  },
};

function listen() {
  $("gate").addEventListener("submit", (event) => {
    event.preventDefault();
    remember.tab("parley.key", $("key").value.trim());
    connect();
  });
  const clicks = {
    earlier: () => attempt(loadEarlier),
    "new-session": newSession,
    clear: () => ask("Delete all messages of this session? This cannot be undone.", "Clear", () => attempt(clearHistory)),
    delete: () => askToDelete(current.about ?? current),
    "open-usage": () => attempt(openUsage),
    "forget-key": () => askForKey(),
    "open-sidebar": () => showSidebar(true),
    "close-sidebar": () => showSidebar(false),
  };
  for (const [id, act] of Object.entries(clicks)) $(id).addEventListener("click", act);
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || document.querySelector("dialog[open]")) return;
    const name = (event.ctrlKey || event.metaKey ? "Ctrl+" : "") + event.key;
    if (!Object.hasOwn(shortcuts, name) || document.body.dataset.view !== "chat") return;
    event.preventDefault();
    shortcuts[name]();
  });
  addEventListener("popstate", () => {
    if (client && sessionInAddress() !== (current?.sessionId ?? null)) goTo(sessionInAddress());
  });
  addEventListener("hashchange", () => {
    takeKeyFromAddress();
    if (!client) connect();
  });
  setInterval(showAbout, EXPIRY_MS);
}

// "Open in new tab" sets opener, so that the browser copies sessionStorage into the new tab. The new tab then drops opener,
// because it must not control the old tab.
opener = null;
takeKeyFromAddress();
listen();
connect();
