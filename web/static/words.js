// Small helpers of the page: browser storage, random ids, and the texts for titles, durations and errors.

/** Reads the value stored under a name. With a second argument, stores and returns that value; null removes the entry. */
export const remember = {
  tab: (name, value) => keep(sessionStorage, name, value), // this tab, until it is closed
  browser: (name, value) => keep(localStorage, name, value),
};

function keep(storage, name, value) {
  if (value === undefined) return storage.getItem(name);
  if (value === null) storage.removeItem(name);
  else storage.setItem(name, value);
  return value;
}

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** Returns prefix and 16 random characters of [0-9A-Za-z]. */
export function randomId(prefix) {
  let id = prefix;
  while (id.length < prefix.length + 16) {
    for (const byte of crypto.getRandomValues(new Uint8Array(24))) {
      // 248 = 4 × 62: bytes from 248 on would make the first characters more likely.
      if (byte < 248 && id.length < prefix.length + 16) id += ALPHABET[byte % 62];
    }
  }
  return id;
}

const BIDI_CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g; // they change the direction of the text that follows

/** Returns the title in a session's metadata, or else the end of its id. Titles appear inside the page's own sentences, so bidi
 * controls are removed. */
export function titleOf({ sessionId, metadata }) {
  const title = typeof metadata?.title === "string" ? metadata.title.replace(BIDI_CONTROLS, "") : "";
  return title.trim() !== "" ? title : `Session …${sessionId.slice(-5)}`;
}

/** Returns the time left until a moment, for example "23 h", "12 min" or "under a minute". */
export function timeLeft(moment) {
  const minutes = Math.floor((new Date(moment) - Date.now()) / 60_000);
  if (minutes >= 120) return `${Math.round(minutes / 60)} h`;
  return minutes >= 1 ? `${minutes} min` : "under a minute";
}

function duration(seconds) {
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.ceil(seconds / 60);
  return minutes < 120 ? `${minutes} minutes` : `${Math.ceil(minutes / 60)} hours`;
}

const descriptions = {
  invalid_token: () => ({ text: "The server does not accept this key: it is mistyped, revoked or expired. Enter another key." }),
  insufficient_scope: (e) => ({ text: `This key lacks the scope ${e.requiredScope ?? "that this needs"}. Use a key that has it.` }),
  session_not_found: () => ({ text: "Session not found. It was deleted, expired after 24 hours, or belongs to another account.", action: "fresh", gone: true }),
  context_overflow: (e) => ({
    text: `The context window is full: the message needs ${e.currentTokens.toLocaleString("en")} tokens, ${e.maxTokens.toLocaleString("en")} fit. Clear the history, send a shorter message, or start a new session.`,
    action: "clear",
  }),
  rate_limit_exceeded: (e) => ({ text: `Too many requests. You can send again in ${duration(e.retryAfter)}. Your text is kept.` }),
  quota_exceeded: (e) => ({ text: e.message }), // names the quota, and says what to remove
  session_busy: () => ({ text: "Another reply is streaming in this session. Stop it, or send again when it has ended." }),
  connection_lost: () => ({
    text: "The connection was lost before the server confirmed your message. Check whether the message appears above before you send it again.",
  }),
  network_error: () => ({ text: "The server cannot be reached. Your text is kept. The page reconnects by itself.", action: "again" }),
  service_unavailable: () => ({ text: "The server is busy or restarting. Your text is kept. Try again in a moment.", action: "again" }),
};

/** Returns how to show an error: { text, action: "clear" | "fresh" | "again"?, gone? }. gone: the session does not exist. */
export function describe(error) {
  const known = descriptions[error.code]?.(error);
  if (known) return known;
  if (error.code === undefined) console.error(error); // a bug in the page
  return { text: error.requestId ? `${error.message} (request ${error.requestId})` : error.message };
}
