// Types of client.js, the JavaScript client of Parley (parley.v1).

export interface ClientOptions {
  /** The service's address with its version, "https://parley.example/v1". In a page that Parley serves: its own. */
  baseURL?: string;
  /** An API key. Without one, `ticket` is needed, and only the socket can be used. */
  key?: string;
  /** Makes a ticket for one handshake; by default POST /stream/tickets with the key. An error with status 401 or 403
   * closes the client, any other is tried again. */
  ticket?: () => Promise<string>;
  /** Stands in for the global one. */
  fetch?: typeof fetch;
  /** Stands in for the global one: Node 20 has none, the `ws` package's will do. */
  WebSocket?: new (url: string, protocols: string[]) => WebSocketLike;
}

export interface WebSocketLike {
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  send(data: string): void;
  close(): void;
}

export type Role = "user" | "system" | "assistant";
export type EndStatus = "completed" | "cancelled" | "failed" | "interrupted";

export interface Message {
  messageId: string;
  sessionId: string;
  role: Role;
  content: string;
  tokens: number;
  createdAt: string;
  status: "streaming" | EndStatus;
  metadata?: Record<string, unknown>;
  usage?: { prompt: number; completion: number; total: number; estimated: boolean };
  finishReason?: string;
  context?: ContextReport;
  error?: { code: string; message: string };
}

/** A number of messages, and the first and last of them where these are known. */
export interface MessageRange { count: number; first?: string; last?: string }

/** What was sent to the model for a reply; counts are of messages, promptTokens and maxTokens are tokens. */
export interface ContextReport {
  policy: "fifo" | "priority" | "semantic";
  promptTokens: number;
  /** The session's window; a quarter of it, at most 4,096, is kept for the reply. */
  maxTokens: number;
  kept: MessageRange;
  /** Not sent, but in the summary that was. */
  folded: MessageRange;
  /** Left out without a trace. */
  dropped: MessageRange;
  /** Never sent: replies that failed or have no text. */
  skipped: MessageRange;
  summarised: boolean;
  /** Of semantic, where not everything fit: how messages were compared with the new one. */
  similarity?: "words" | "embeddings";
  /** Present if messages were dropped that should have been in the summary. */
  folding?: "late" | "failed";
}

/** What a message would be answered from. */
export interface ContextPreview {
  context: ContextReport;
  summary?: string;
  /** Those that the window looked at, oldest first; the last is the new one, which has no messageId. */
  messages: {
    messageId?: string;
    role: Role;
    /** In a prompt: those of the text and 4 of the chat format. */
    tokens: number;
    decision: "kept" | "folded" | "dropped" | "skipped";
    /** Why, for people. */
    reason: string;
  }[];
}

export interface Usage {
  /** A calendar month, UTC; end is the beginning of the next. */
  billingPeriod: { start: string; end: string };
  requests: { used: number; limit: number; percentage: number };
  tokens: { used: number; limit: number; percentage: number };
  sessions: { active: number; limit: number; percentage: number };
  tier: "free" | "pro" | "enterprise";
}

export type Granularity = "hour" | "day" | "week" | "month";

/** What happened in a while. Times are milliseconds, averageDuration is seconds; null where there was no first token. */
export interface Figures {
  sessions: { total: number; active: number; averageDuration: number };
  messages: { total: number; averagePerSession: number; userMessages: number; assistantMessages: number };
  tokens: { total: number; prompt: number; completion: number; averagePerMessage: number };
  replies: { completed: number; cancelled: number; failed: number; interrupted: number };
  firstToken: { p50: number | null; p95: number | null };
}

export interface Metrics extends Figures {
  period: { start: string; end: string; granularity: Granularity };
  /** One entry a unit of the granularity (UTC), the empty ones too. */
  series: (Figures & { start: string; end: string })[];
}

export interface Session {
  sessionId: string;
  userId: string;
  createdAt: string;
  expiresAt: string;
  lastActivity?: string;
  messageCount: number;
  tokenUsage: { total: number; prompt: number; completion: number };
  metadata?: Record<string, unknown>;
  stream?: { cursor: string };
}

export interface NewSession {
  userId: string;
  metadata?: Record<string, unknown>;
  contextConfig?: { maxTokens?: number; compressionEnabled?: boolean; retentionPolicy?: "fifo" | "priority" | "semantic" };
}

export interface Page<T> {
  data: T[];
  pagination: { hasMore: boolean; nextCursor: string | null };
  /** On the newest page of a history: where to watch on from. */
  stream?: { cursor: string };
}

/** A message begins: the user's and system messages whole, a reply with status "streaming" and no content yet. */
export interface CreatedEvent { type: "created"; sessionId: string; messageId: string; message: Message; cursor: string }
/** Text of a reply: its bytes (UTF-8) from offset to end. Deltas of a message adjoin, whatever the connection does. */
export interface DeltaEvent { type: "delta"; sessionId: string; messageId: string; offset: number; end: number; delta: string; cursor: string }
/** A reply is over. message.content is the truth and replaces what was shown. */
export interface EndEvent {
  type: "end"; sessionId: string; messageId: string; status: EndStatus; message: Message; error?: { code: string; message: string };
  /** None where the message had to be looked up, because the server did not know the cursor any more. */
  cursor?: string;
}
/** The history was cleared: forget what was shown. recovered is false if that happened while the connection was away, or if
 * the server did not know the cursor any more (its store was restored from a backup, or lost writes when it failed over):
 * what there is now is had from history(), and what follows begins from now on. */
export interface ClearedEvent { type: "cleared"; sessionId: string; recovered: boolean }
/** The session is gone; the iteration ends. */
export interface GoneEvent { type: "deleted" | "expired"; sessionId: string; recovered: boolean }
/** Messages were folded into a summary, or dropped, to fit the context window. */
export interface CompressedEvent {
  type: "compressed"; sessionId: string; summarised: number; dropped: number; tokensBefore: number; tokensAfter: number;
}
export type ReplyEvent = CreatedEvent | DeltaEvent | EndEvent;
export type SessionEvent = ReplyEvent | ClearedEvent | GoneEvent | CompressedEvent;

export interface SendOptions {
  role?: "user" | "system";
  metadata?: Record<string, unknown>;
  /** What to do while another reply runs in the session; by default "enqueue". */
  onBusy?: "enqueue" | "reject" | "interrupt";
  /** Names the message, so that sending it again has no effect twice; by default a random one. */
  idempotencyKey?: string;
  /** Leaves; the reply goes on. */
  signal?: AbortSignal;
}

export type ConnectionState =
  | { state: "idle" }
  | { state: "connecting"; attempt: number }
  | { state: "live"; resumed: boolean }
  | { state: "reconnecting"; retryInMs: number; retryAt: number; attempt: number; error: ParleyError }
  /** For good: by close(), or because the key is refused, which error then says. */
  | { state: "closed"; error?: ParleyError };

export class Client {
  constructor(options?: ClientOptions);
  onstate: ((state: ConnectionState) => void) | null;
  readonly state: ConnectionState;
  connect(): void;
  wake(): void;
  close(): void;

  /** Watches from the call on, whether or not anybody iterates yet. A cursor that the server does not know is no error: see
   * ClearedEvent. */
  watch(sessionId: string, options?: { after?: string; signal?: AbortSignal }): AsyncIterableIterator<SessionEvent>;
  /** Sends when it is first iterated. A cut at any time is only a pause: what was not confirmed is sent again under the
   * same idempotency key, so it takes effect once (after five attempts it throws `connection_lost`: it may or may not
   * have been taken). Throws `session_deleted`, `session_expired` or `session_cleared` if that took the reply away. */
  send(sessionId: string, content: string, options?: SendOptions): AsyncGenerator<ReplyEvent, void, void>;
  start(sessionId: string, content: string, options?: SendOptions): Promise<{ messageId: string }>;
  cancel(sessionId: string, messageId: string): Promise<Message>;

  createSession(session: NewSession): Promise<Session>;
  session(sessionId: string): Promise<Session>;
  sessions(query?: { limit?: number; cursor?: string; userId?: string }): Promise<Page<Session>>;
  deleteSession(sessionId: string): Promise<{ deleted: boolean; sessionId: string }>;
  history(sessionId: string, query?: { limit?: number; cursor?: string; order?: "asc" | "desc" }): Promise<Page<Message>>;
  message(sessionId: string, messageId: string): Promise<Message>;
  clear(sessionId: string): Promise<{ cleared: number; sessionId: string }>;
  /** The dry run of the context: asks no model and changes nothing; it counts as a request. */
  preview(sessionId: string, content: string, options?: { role?: "user" | "system" }): Promise<ContextPreview>;

  /** Both need the scope `read:analytics`. */
  usage(): Promise<Usage>;
  /** startDate and endDate are ISO 8601 with a zone, 400 days apart at most; the granularity is by default "day". */
  metrics(period: { startDate: string; endDate: string; granularity?: Granularity }): Promise<Metrics>;
}

export class ParleyError extends Error {
  /** The service's code, or `connection_lost`, `network_error`, `closed`, `no_key`, `no_websocket`, `session_cleared`, `session_deleted`, `session_expired`. */
  code: string;
  status?: number;
  field?: string;
  retryAfter?: number;
  currentTokens?: number;
  maxTokens?: number;
  requiredScope?: string;
  requestId?: string;
  closeCode?: number;
}

/** What was seen of one session: frames in, events out, each piece of text once. Used by Client; here for tests. */
export class Track {
  constructor(cursor?: string);
  cursor: string | undefined;
  reset(cursor?: string | null): void;
  accept(frame: object, jump?: boolean): SessionEvent | symbol | null;
}

export function utf8Length(text: string): number;
