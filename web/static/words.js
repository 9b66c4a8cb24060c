// What the page remembers, makes up, and says of errors.

/** Reads what is kept under a name, or keeps value there (null forgets it) and returns it. */
export const remember = {
  tab: (name, value) => keep(sessionStorage, name, value), // one tab, until it is closed
  browser: (name, value) => keep(localStorage, name, value),
};

function keep(storage, name, value) {
  if (value === undefined) return storage.getItem(name);
  if (value === null) storage.removeItem(name);
  else storage.setItem(name, value);
  return value;
}

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** prefix and 16 random characters of [0-9A-Za-z]. */
export function randomId(prefix) {
  let id = prefix;
  while (id.length < prefix.length + 16) {
    for (const byte of crypto.getRandomValues(new Uint8Array(24))) {
      // 248 = 4 × 62: bytes from there on would favour the first characters.
      if (byte < 248 && id.length < prefix.length + 16) id += ALPHABET[byte % 62];
    }
  }
  return id;
}

const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g; // the direction of reading, also of what follows

/** What a session is called: the title that the page, or whoever made it, gave it, or the end of its id. It stands within
 * sentences of ours, so it turns none of them around. */
export function titleOf({ sessionId, metadata }) {
  const title = typeof metadata?.title === "string" ? metadata.title.replace(TURNS, "") : "";
  return title.trim() !== "" ? title : `Session …${sessionId.slice(-5)}`;
}

/** How long it is until a moment, for people: "23 h", "12 min", "under a minute". */
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

const described = {
  invalid_token: () => ({ text: "The server does not accept this key: it is mistyped, revoked or expired. Paste another." }),
  insufficient_scope: (e) => ({ text: `This key lacks the scope ${e.requiredScope ?? "for it"}. Use another key, or make one with it.` }),
  session_not_found: () => ({ text: "This session is gone: deleted, expired after its 24 hours, or another account's.", action: "fresh", gone: true }),
  context_overflow: (e) => ({
    text: `The context window is full: ${e.currentTokens.toLocaleString("en")} tokens where ${e.maxTokens.toLocaleString("en")} fit. Clear the history, send less, or begin a new session.`,
    action: "clear",
  }),
  rate_limit_exceeded: (e) => ({ text: `Too many requests. You can send again in ${duration(e.retryAfter)}; what you typed is kept.` }),
  session_busy: () => ({ text: "Another reply is being written in this session. Stop it, or send again when it is done." }),
  connection_lost: () => ({
    text: "The connection broke before the server confirmed your message. Look whether it appears above before you send it again.",
  }),
  network_error: () => ({ text: "The server cannot be reached. What you typed is kept; the page goes on when it is back.", action: "again" }),
  service_unavailable: () => ({ text: "The server is busy or restarting. Try again in a moment; what you typed is kept.", action: "again" }),
};

/** What to tell the reader about an error: { text, action: "clear" | "fresh" | "again"?, gone? }. */
export function describe(error) {
  const known = described[error.code]?.(error);
  if (known) return known;
  if (error.code === undefined) console.error(error); // a mistake of the page itself
  return { text: error.requestId ? `${error.message} (request ${error.requestId})` : error.message };
}
