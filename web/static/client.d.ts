// Types of client.js, the JavaScript client of Parley (parley.v1).

export interface ClientOptions {
  /** The server's address with the API version, such as "https://parley.example/v1". Default in a browser: /v1 on the page's
   * server. */
  baseURL?: string;
  /** An API key. Without one, `ticket` is required and REST calls throw `no_key`. */
  key?: string;
  /** Resolves with a ticket for one WebSocket handshake. Default: POST /stream/tickets with the key. An error with status 401 or
   * 403 closes the client. After any other error the client tries again, with backoff. */
  ticket?: () => Promise<string>;
  /** Replaces the global fetch. */
  fetch?: typeof fetch;
  /** Replaces the global WebSocket. Node 20 has none; the WebSocket of the package `ws` works. */
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

/** A number of messages, and the ids of the first and the last message if known. */
export interface MessageRange { count: number; first?: string; last?: string }

/** The prompt of a reply: how many messages were sent to the model and in which form. */
export interface ContextReport {
  policy: "fifo" | "priority" | "semantic";
  promptTokens: number;
  /** The session's context window in tokens. A quarter of it, at most 4,096, is reserved for the reply. */
  maxTokens: number;
  kept: MessageRange;
  /** Messages replaced by the summary that was sent. */
  folded: MessageRange;
  /** Messages that were sent neither verbatim nor in a summary. */
  dropped: MessageRange;
  /** Messages that are never sent: replies that failed or have no text. */
  skipped: MessageRange;
  summarised: boolean;
  /** How messages were compared with the new message. Present with the policy semantic if the history did not fit. */
  similarity?: "words" | "embeddings";
  /** Present if messages were dropped instead of summarised, because the summary was late or failed. */
  folding?: "late" | "failed";
}

/** The prompt that a message would produce. */
export interface ContextPreview {
  context: ContextReport;
  summary?: string;
  /** All messages that were considered, oldest first. The last one is the new message, which has no messageId. */
  messages: {
    messageId?: string;
    role: Role;
    /** Tokens of the message in a prompt: its text, and 4 for the chat format. */
    tokens: number;
    decision: "kept" | "folded" | "dropped" | "skipped";
    /** The reason for the decision, for people to read. */
    reason: string;
  }[];
}

export interface Usage {
  /** A calendar month in UTC; end is the start of the next month. */
  billingPeriod: { start: string; end: string };
  requests: { used: number; limit: number; percentage: number };
  tokens: { used: number; limit: number; percentage: number };
  sessions: { active: number; limit: number; percentage: number };
  tier: "free" | "pro" | "enterprise";
}

export type Granularity = "hour" | "day" | "week" | "month";

/** Activity in a period. firstToken is in milliseconds, or null if no reply had text. averageDuration is in seconds. */
export interface Figures {
  sessions: { total: number; active: number; averageDuration: number };
  messages: { total: number; averagePerSession: number; userMessages: number; assistantMessages: number };
  tokens: { total: number; prompt: number; completion: number; averagePerMessage: number };
  replies: { completed: number; cancelled: number; failed: number; interrupted: number };
  firstToken: { p50: number | null; p95: number | null };
}

export interface Metrics extends Figures {
  period: { start: string; end: string; granularity: Granularity };
  /** One entry per unit of the granularity (UTC), including empty ones. */
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
  /** session() and updateSession() return the instructions and the two configurations. */
  instructions?: string;
  contextConfig?: ContextConfig;
  modelConfig?: ModelConfig;
  stream?: { cursor: string };
}

export interface ContextConfig {
  maxTokens?: number;
  compressionEnabled?: boolean;
  retentionPolicy?: "fifo" | "priority" | "semantic";
}

export interface ModelConfig {
  model?: string;
  temperature?: number;
  topP?: number;
  maxOutputTokens?: number;
  stop?: string[];
  seed?: number;
  reasoningEffort?: "none" | "minimal" | "low" | "medium" | "high" | "xhigh";
}

export interface NewSession {
  userId: string;
  metadata?: Record<string, unknown>;
  instructions?: string;
  contextConfig?: ContextConfig;
  modelConfig?: ModelConfig;
}

/** A merge patch: null removes a value, or restores the default of a field of contextConfig. */
export interface SessionPatch {
  metadata?: Record<string, unknown> | null;
  instructions?: string | null;
  contextConfig?: { [field in keyof ContextConfig]: ContextConfig[field] | null } | null;
  modelConfig?: { [field in keyof ModelConfig]: ModelConfig[field] | null } | null;
}

export interface Page<T> {
  data: T[];
  pagination: { hasMore: boolean; nextCursor: string | null };
  /** On the newest page of a history: the cursor for watch(). */
  stream?: { cursor: string };
}

/** A new message. User and system messages are complete; a reply has status "streaming" and no content yet. */
export interface CreatedEvent { type: "created"; sessionId: string; messageId: string; message: Message; cursor: string }
/** Text of a reply, from offset to end in UTF-8 bytes. The deltas of a reply have no gaps or overlaps, even across reconnects. */
export interface DeltaEvent { type: "delta"; sessionId: string; messageId: string; offset: number; end: number; delta: string; cursor: string }
/** A reply has ended. message.content is authoritative and replaces the text shown so far. */
export interface EndEvent {
  type: "end"; sessionId: string; messageId: string; status: EndStatus; message: Message; error?: { code: string; message: string };
  /** Absent if the client had to fetch the message, because the server no longer knew the cursor. */
  cursor?: string;
}
/** The history was cleared: discard the messages shown. recovered is false if the client was disconnected at that time, or if the
 * server no longer knows the cursor, because its store was restored from a backup or lost writes in a failover. If recovered is
 * false, call history() for the current messages; further events start from now. */
export interface ClearedEvent { type: "cleared"; sessionId: string; recovered: boolean }
/** The session is gone. The iteration ends. */
export interface GoneEvent { type: "deleted" | "expired"; sessionId: string; recovered: boolean }
/** Messages were summarised or dropped to fit the context window. */
export interface CompressedEvent {
  type: "compressed"; sessionId: string; summarised: number; dropped: number; tokensBefore: number; tokensAfter: number;
}
export type ReplyEvent = CreatedEvent | DeltaEvent | EndEvent;
export type SessionEvent = ReplyEvent | ClearedEvent | GoneEvent | CompressedEvent;

export interface SendOptions {
  role?: "user" | "system";
  metadata?: Record<string, unknown>;
  /** What the server does if another reply streams in the session. Default: "enqueue". */
  onBusy?: "enqueue" | "reject" | "interrupt";
  /** Sends with the same key take effect once. A second send() yields the reply of the first from the beginning, even if the
   * reply has ended. Default: a random key. */
  idempotencyKey?: string;
  /** Ends the iteration. The reply continues. */
  signal?: AbortSignal;
}

export type ConnectionState =
  | { state: "idle" }
  | { state: "connecting"; attempt: number }
  | { state: "live"; resumed: boolean }
  | { state: "reconnecting"; retryInMs: number; retryAt: number; attempt: number; error: ParleyError }
  /** Closed for good: by close(), or because of error, for example a refused key. */
  | { state: "closed"; error?: ParleyError };

export class Client {
  constructor(options?: ClientOptions);
  onstate: ((state: ConnectionState) => void) | null;
  readonly state: ConnectionState;
  connect(): void;
  wake(): void;
  close(): void;

  /** Subscribes at once, even before the iteration starts. An unknown cursor causes a ClearedEvent, not an error. */
  watch(sessionId: string, options?: { after?: string; signal?: AbortSignal }): AsyncIterableIterator<SessionEvent>;
  /** Sends the message on the first next() and iterates the reply's events. Resumes after a lost connection. Repeats an
   * unconfirmed message with the same idempotency key, so that the message takes effect once. After five attempts throws
   * `connection_lost`: nobody knows whether the server accepted the message. Throws `session_deleted`, `session_expired` or
   * `session_cleared` if the reply is gone. */
  send(sessionId: string, content: string, options?: SendOptions): AsyncGenerator<ReplyEvent, void, void>;
  start(sessionId: string, content: string, options?: SendOptions): Promise<{ messageId: string }>;
  cancel(sessionId: string, messageId: string): Promise<Message>;

  createSession(session: NewSession): Promise<Session>;
  session(sessionId: string): Promise<Session>;
  sessions(query?: { limit?: number; cursor?: string; userId?: string }): Promise<Page<Session>>;
  /** Changes the settings from the next turn on. Repeating a change is safe. */
  updateSession(sessionId: string, patch: SessionPatch): Promise<Session>;
  deleteSession(sessionId: string): Promise<{ deleted: boolean; sessionId: string }>;
  /** Returns a page of messages. A page may have fewer than limit messages although more follow: check pagination.hasMore. */
  history(sessionId: string, query?: { limit?: number; cursor?: string; order?: "asc" | "desc" }): Promise<Page<Message>>;
  message(sessionId: string, messageId: string): Promise<Message>;
  clear(sessionId: string): Promise<{ cleared: number; sessionId: string }>;
  /** Returns the prompt that a message would produce. Changes nothing, and calls no model except the embedding model of a
   * semantic session. Counts as a request. */
  preview(sessionId: string, content: string, options?: { role?: "user" | "system" }): Promise<ContextPreview>;

  /** usage() and metrics() need the scope `read:analytics`. */
  usage(): Promise<Usage>;
  /** startDate and endDate (exclusive) are ISO 8601 with a zone, at most 400 days apart. Default granularity: "day". */
  metrics(period: { startDate: string; endDate: string; granularity?: Granularity }): Promise<Metrics>;
}

export class ParleyError extends Error {
  /** The server's code, or one of the client's own: `connection_lost`, `network_error`, `closed`, `no_key`, `no_websocket`,
   * `session_cleared`, `session_deleted`, `session_expired`. */
  code: string;
  status?: number;
  field?: string;
  retryAfter?: number;
  currentTokens?: number;
  maxTokens?: number;
  requiredScope?: string;
  /** `rate_limit_exceeded`: the name of the limit, such as "requestsPerMinute". `quota_exceeded`: how much the quota allows. */
  limit?: string | number;
  /** `quota_exceeded`: the name of the quota, such as "keys". */
  quota?: string;
  /** `quota_exceeded`: how much of the quota is used. */
  used?: number;
  requestId?: string;
  closeCode?: number;
}

/** Turns the frames of one session into events, with each piece of text once. Used by Client; exported for tests. */
export class Track {
  constructor(cursor?: string);
  cursor: string | undefined;
  reset(cursor?: string | null): void;
  accept(frame: object, jump?: boolean): SessionEvent | symbol | null;
}

export function utf8Length(text: string): number;
