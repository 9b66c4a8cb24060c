// The page: a key, a session, and its conversation. What is shown comes from one place only, the watched session, so a
// message that another tab sends looks just like our own; sending is fire and forget.

import { Client } from "./client.js";
import { Log } from "./log.js";
import { describe, randomId, remember } from "./words.js";

const MAX_CHARACTERS = 10_000;
const PAGE = 50;

const endings = {
  completed: "The reply is complete.",
  cancelled: "The reply was stopped.",
  failed: "The reply failed.",
  interrupted: "The reply was interrupted.",
};

const $ = (id) => document.getElementById(id);
const log = new Log($("log"), $("scroller"), refresh);
let client = null;
/** The session that is shown: { sessionId, leave: AbortController, loaded, stale, earlier }, or null before the first message. */
let current = null;
let busy = false; // our own message has not begun its turn
let countdown; // of the chip
let patience; // the countdown of a problem

// ---- The key

function takeKeyFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!given) return false;
  remember.tab("parley.key", given);
  history.replaceState(null, "", location.pathname + location.search); // gone before anybody reads it over a shoulder
  return true;
}

function askForKey(problem = "") {
  disconnect();
  remember.tab("parley.key", null);
  $("gate-problem").textContent = problem;
  $("gate-problem").hidden = !problem;
  $("gate").hidden = false;
  $("chat").hidden = true;
  $("key").value = "";
  $("key").focus();
  refresh();
}

function disconnect() {
  leave();
  if (client) client.onstate = null;
  client?.close();
  client = null;
  showState({ state: "idle" });
}

function connect() {
  const key = remember.tab("parley.key");
  if (!key) return askForKey();
  disconnect();
  $("gate").hidden = true;
  $("chat").hidden = false;
  client = new Client({ baseURL: new URL("/v1", location.href).href, key });
  client.onstate = showState;
  client.connect();
  const sessionId = new URLSearchParams(location.search).get("session") ?? remember.browser("parley.session");
  if (sessionId) open(sessionId);
  else showSession(null);
}

// ---- The connection

function showState(state) {
  const chip = $("chip");
  clearInterval(countdown);
  chip.dataset.state = state.state === "live" && state.resumed ? "resumed" : state.state;
  const words = { idle: "", connecting: "connecting…", live: "live", closed: "disconnected" };
  chip.textContent = chip.dataset.state === "resumed" ? "resumed" : (words[state.state] ?? "");
  if (state.state === "reconnecting") {
    const tick = () => {
      const seconds = Math.ceil((state.retryAt - Date.now()) / 1000);
      chip.textContent = seconds > 0 ? `reconnecting in ${seconds} s` : "reconnecting…";
    };
    tick();
    countdown = setInterval(tick, 250);
  }
  if (state.state === "live") {
    if (state.resumed) setTimeout(() => client?.state === state && showState({ state: "live", resumed: false }), 4000);
    if (current?.stale) open(current.sessionId);
  }
  if (state.state === "closed" && state.error) askForKey(describe(state.error).text);
}

// ---- The session

function leave() {
  current?.leave.abort();
  current = null;
}

function showSession(sessionId) {
  leave();
  log.wipe();
  hideProblem();
  remember.browser("parley.session", sessionId);
  const address = new URL(location.href);
  if (sessionId) address.searchParams.set("session", sessionId);
  else address.searchParams.delete("session");
  history.replaceState(null, "", address);
  $("another-tab").href = address.pathname + address.search;
  $("session-label").textContent = sessionId ? `${sessionId.slice(0, 12)}…` : "";
  $("session-label").title = sessionId ?? "";
  $("earlier").hidden = true;
  if (sessionId) current = { sessionId, leave: new AbortController(), loaded: false, stale: false, earlier: null };
  refresh();
  return current;
}

/** Loads what there is of a session and goes on watching from exactly there: also in the middle of a reply. */
async function open(sessionId) {
  const session = showSession(sessionId);
  try {
    const [about, page] = await Promise.all([client.session(sessionId), client.history(sessionId, { limit: PAGE, order: "desc" })]);
    if (session !== current) return;
    session.loaded = true;
    showExpiry(about.expiresAt);
    for (const message of page.data.toReversed()) log.add(message);
    showEarlier(page.pagination);
    follow(session, page.stream?.cursor);
  } catch (error) {
    session.stale = true; // the server may be away; when the socket is back, it is asked again
    if (session === current) failed(error);
  }
}

async function follow(session, after) {
  try {
    for await (const event of client.watch(session.sessionId, { after, signal: session.leave.signal })) show(event);
  } catch (error) {
    if (session === current) failed(error);
  }
}

function show(event) {
  switch (event.type) {
    case "created":
      return log.add(event.message);
    case "delta":
      return log.append(event.messageId, event.delta);
    case "end":
      log.add(event.message);
      return say(endings[event.status]);
    case "cleared":
      if (!event.recovered) return open(event.sessionId); // what there is now is not shown again: read it
      $("earlier").hidden = true;
      log.wipe();
      return say("The history was cleared.");
    case "compressed":
      return say(`Older messages were folded to make room: ${event.tokensBefore} → ${event.tokensAfter} tokens.`);
    default:
      showSession(null);
      say(event.type === "deleted" ? "The session was deleted." : "The session has expired: they live for 24 hours.");
  }
}

function showExpiry(expiresAt) {
  const when = new Date(expiresAt).toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" });
  $("session-label").textContent += ` · until ${when}`;
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

async function newSession() {
  const { sessionId, expiresAt } = await client.createSession({ userId: userId() });
  const session = showSession(sessionId);
  session.loaded = true;
  showExpiry(expiresAt);
  follow(session); // it is empty: from now on is from the beginning
  $("text").focus();
  return session;
}

function userId() {
  return remember.browser("parley.user") ?? remember.browser("parley.user", randomId("user_"));
}

// ---- Sending

async function send() {
  const content = $("text").value;
  if (busy || content.trim() === "" || [...content].length > MAX_CHARACTERS) return;
  hideProblem();
  busy = true;
  let settle = () => {};
  try {
    if (!current) await newSession();
    const session = current;
    $("text").value = "";
    settle = log.pending(content);
    refresh();
    await client.start(session.sessionId, content, { signal: session.leave.signal });
    settle(); // its real article follows at once
  } catch (error) {
    settle();
    if (error.name !== "AbortError") {
      $("text").value ||= content; // nothing that was typed is lost
      failed(error);
    }
  } finally {
    busy = false;
    refresh();
  }
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
  if (gone) showSession(null);
  const actions = { clear: ["Clear the history", clearHistory], fresh: ["New session", newSession], again: ["Try again", () => open(current.sessionId)] };
  showProblem(text, actions[action === "again" && !current ? "" : action]);
  if (error.retryAfter) countDown(error);
}

function showProblem(text, action) {
  clearInterval(patience);
  $("problem").querySelector("p").textContent = text;
  $("problem-action").hidden = !action;
  $("problem-action").textContent = action?.[0] ?? "";
  $("problem-action").onclick = () => {
    hideProblem();
    attempt(action[1]);
  };
  $("problem").hidden = false;
}

function hideProblem() {
  clearInterval(patience);
  $("problem").hidden = true;
}

function countDown(error) {
  const until = Date.now() + error.retryAfter * 1000;
  clearInterval(patience);
  patience = setInterval(() => {
    const retryAfter = Math.ceil((until - Date.now()) / 1000);
    $("problem").querySelector("p").textContent = retryAfter > 0 ? describe({ ...error, retryAfter }).text : "You can send again now.";
    if (retryAfter <= 0) clearInterval(patience);
  }, 500);
}

function attempt(action) {
  return Promise.resolve().then(action).catch(failed);
}

// ---- The controls

function say(text) {
  $("status").textContent = text;
}

/** Brings the controls in line with what is so. */
function refresh() {
  const writing = log.live !== null;
  const length = [...$("text").value].length;
  $("empty").hidden = !log.empty || (current !== null && !current.loaded);
  $("stop").hidden = !writing;
  $("send").disabled = busy || !client || $("text").value.trim() === "" || length > MAX_CHARACTERS;
  $("count").textContent = length > MAX_CHARACTERS * 0.9 ? `${length.toLocaleString()} of ${MAX_CHARACTERS.toLocaleString()}` : "";
  $("count").toggleAttribute("data-over", length > MAX_CHARACTERS);
  for (const id of ["new-session", "menu", "session-label"]) $(id).hidden = !client;
  for (const id of ["clear", "delete", "another-tab"]) $(id).hidden = !current;
  if (writing) say("A reply is being written…");
}

function clearHistory() {
  return client.clear(current.sessionId); // the log is wiped by the event, as in every other tab
}

async function deleteSession() {
  const { sessionId } = current;
  await client.deleteSession(sessionId);
  // Its event may have come first, or may never come where the socket is down.
  if (current?.sessionId === sessionId) show({ type: "deleted" });
}

function ask(question, yes, action) {
  $("menu").open = false;
  $("confirm-question").textContent = question;
  $("confirm-yes").textContent = yes;
  $("confirm").querySelector("form").onsubmit = ({ submitter }) => submitter?.id === "confirm-yes" && attempt(action);
  $("confirm").showModal();
}

function listen() {
  $("gate").addEventListener("submit", (event) => {
    event.preventDefault();
    remember.tab("parley.key", $("key").value.trim());
    connect();
  });
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  $("text").addEventListener("input", refresh);
  $("text").addEventListener("keydown", (event) => {
    // While an input method composes, Enter is its own.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  $("stop").addEventListener("click", () => attempt(stop));
  $("earlier").addEventListener("click", () => attempt(loadEarlier));
  $("new-session").addEventListener("click", () => attempt(newSession));
  $("dismiss").addEventListener("click", hideProblem);
  $("clear").addEventListener("click", () => ask("Clear the history of this session? Its messages cannot be brought back.", "Clear", clearHistory));
  $("delete").addEventListener("click", () =>
    ask("Delete this session and its messages? They cannot be brought back.", "Delete", deleteSession));
  $("forget-key").addEventListener("click", () => askForKey());
  document.addEventListener("click", (event) => $("menu").contains(event.target) || ($("menu").open = false));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") $("menu").open = false;
  });
  addEventListener("hashchange", () => takeKeyFromAddress() && connect());
}

takeKeyFromAddress();
listen();
connect();
