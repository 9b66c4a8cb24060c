// The page: a key, the sessions, and one conversation. What is shown of it comes from one place only, the watched session,
// so a message that another tab sends looks just like our own; sending is fire and forget.

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

const PAGE = 50; // messages of a history that are loaded at once
const LIFE_MS = 30_000; // how often the time left is looked at

const endings = {
  completed: "The reply is complete.",
  cancelled: "The reply was stopped.",
  failed: "The reply failed.",
  interrupted: "The reply was interrupted.",
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
/** The session that is shown: { sessionId, leave: AbortController, loaded, stale, earlier, about }, or null before the first
 * message. about is the session as the server describes it. */
let current = null;
let away = false; // the connection was lost and is not back
let sending = false; // our own message has not begun its turn

// ---- The key

/** A key that stands in the address is used, but not in place of another one unasked: the address may be somebody else's. */
function takeKeyFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!given) return;
  history.replaceState(null, "", location.pathname + location.search); // gone before anybody reads it over a shoulder
  const use = () => remember.tab("parley.key", given);
  const known = remember.tab("parley.key");
  if (!known) use();
  else if (known !== given) ask("This address brings another key than the one in use. What you write would go to that key's account.", "Use it", () => connect(use()));
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

/** Opens the session that this browser had last, unless that is gone, or another account's. */
async function reopen(sessionId) {
  const there = sessionId && (await client.session(sessionId).then(() => true, (error) => error.status !== 404));
  if (there && client && !current) open(sessionId);
}

function sessionInAddress() {
  return new URLSearchParams(location.search).get("session");
}

function showState(state) {
  chip.show(state);
  if (state.state === "reconnecting") away = true;
  if (state.state === "live" && away) {
    away = false;
    timing.doubt(performance.now());
    sessions.refresh();
  }
  if (state.state === "live" && current?.stale) open(current.sessionId);
  if (state.state === "closed" && state.error) askForKey(describe(state.error).text);
}

/** What the page shows: the "gate", which asks for a key, or the "chat". */
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

/** Shows a session, which is empty until it is loaded; null for one that its first message will make. step says that the reader
 * went there, so that the browser's Back leads away from it again. */
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

/** Shows a session, or a new one for null, without a step of its own. */
function goTo(sessionId) {
  if (sessionId) open(sessionId);
  else showSession(null);
}

/** Loads what there is of a session and goes on watching from exactly there: also in the middle of a reply. */
async function open(sessionId, step = false) {
  const session = showSession(sessionId, step);
  try {
    const [about, page] = await Promise.all([client.session(sessionId), client.history(sessionId, { limit: PAGE, order: "desc" })]);
    if (session !== current) return;
    loaded(about);
    for (const message of page.data.toReversed()) log.add(message);
    for (const { messageId } of page.data) noteTiming(messageId);
    meter.show(page.data.find(({ context }) => context)?.context ?? null);
    timing.doubt(performance.now());
    showEarlier(page.pagination);
    follow(session, page.stream?.cursor);
  } catch (error) {
    session.stale = true; // the server may be away; when the socket is back, it is asked again
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
      if (!event.recovered) return open(event.sessionId); // what there is now is not shown again: read it
      $("earlier").hidden = true;
      log.wipe();
      meter.show(null);
      return say("The history was cleared.");
    case "compressed":
      meter.folded(event);
      return say(`Older messages were folded to make room: ${event.tokensBefore} → ${event.tokensAfter} tokens.`);
    default:
      showSession(null);
      say(event.type === "deleted" ? "The session was deleted." : "The session has expired: they live for 24 hours.");
  }
}

/** Says in the note of a reply how fast it came, if that was watched. */
function noteTiming(messageId) {
  const text = timing.noteOf(messageId);
  if (text) document.querySelector(`article[data-message-id="${messageId}"] .note`)?.append(` · ${text}`);
}

/** What the session has used of tokens, for the meter's explanation; null where that cannot be said. */
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

/** What the bar says of the session: its title, and the time that it has left. */
function showAbout() {
  const { about } = current ?? {};
  $("title").textContent = about ? titleOf(about) : current ? "…" : client ? "New session" : "Parley";
  $("title").title = current?.sessionId ?? "";
  $("life").textContent = about ? `${timeLeft(about.expiresAt)} left` : "";
  $("life").title = about ? `until ${new Date(about.expiresAt).toLocaleString()}` : "";
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

/** Makes a session, with the window that was chosen, named after what is said first. */
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
  follow(session); // it is empty: from now on is from the beginning
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

/** Opens a session that was chosen from the list. */
function choose(sessionId) {
  if (sessionId !== current?.sessionId) open(sessionId, true);
  showSidebar(false);
  if (!matchMedia("(pointer: coarse)").matches) composer.focus(); // there it would bring up the keyboard
}

// ---- Sending

async function send(content = composer.take()) {
  if (content === null || sending) return;
  problem.hide();
  sending = true;
  refresh();
  let settle = () => {};
  try {
    const session = current ?? (await createSession(content));
    settle = log.pending(content);
    await client.start(session.sessionId, content, { signal: session.leave.signal });
  } catch (error) {
    composer.giveBack(content); // nothing that was typed is lost
    failed(error);
  } finally {
    settle(); // its real article follows at once, or is there
    sending = false;
    refresh();
  }
}

/** The buttons of a message, besides Copy: what was asked can be asked again, also where it was not answered in full. */
function actionsOf({ messageId, role, status, content }) {
  const button = (label, onclick) => element("button", { type: "button", onclick }, label);
  if (role === "user") return [button("Edit as new", () => edit(content)), button("Send again", () => send(content))];
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

// ---- What is wrong

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

/** Says that a reply is being written, and how soon it began, if that is known. Each delta comes here. */
function sayLive(first) {
  const text = first ? `A reply is being written, ${first}…` : "A reply is being written…";
  if ($("status").textContent !== text) say(text);
}

/** Brings the controls in line with what is so. */
function refresh() {
  const writing = log.live !== null;
  $("empty").hidden = !log.empty || (current !== null && !current.loaded);
  $("window-options").hidden = current !== null;
  $("menu").hidden = !current;
  sessions.mark(current?.sessionId ?? null, writing);
  composer.show({ ready: client !== null && !sending, writing });
  tools.show({ sessionId: current?.sessionId ?? null, live: log.live, ready: client !== null && !sending });
  if (writing) say("A reply is being written…");
}

function clearHistory() {
  return client.clear(current.sessionId); // the log is wiped by the event, as in every other tab
}

async function deleteSession(sessionId) {
  await client.deleteSession(sessionId);
  sessions.remove(sessionId);
  // Its event may have come first, or may never come where the socket is down.
  if (current?.sessionId === sessionId) show({ type: "deleted" });
}

function askToDelete(session) {
  const question = `Delete “${titleOf(session)}” and its messages? They cannot be brought back.`;
  ask(question, "Delete", () => attempt(() => deleteSession(session.sessionId)));
}

/** What only some need is loaded late; the server may be away then. */
function unreachable(cause) {
  throw new ParleyError("network_error", "The server cannot be reached.", { cause });
}

let usage = null; // the dialog, once it was opened

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
    clear: () => ask("Clear the history of this session? Its messages cannot be brought back.", "Clear", () => attempt(clearHistory)),
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
  setInterval(showAbout, LIFE_MS);
}

opener = null; // a tab that was opened from here got its key so, and has no further hold on who opened it, wherever it goes
takeKeyFromAddress();
listen();
connect();
