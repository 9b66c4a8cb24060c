// Time to first token and tokens per second of the replies that this tab watched from the start. Pure: the caller passes the
// time, in milliseconds of one clock.

import { utf8Length } from "./track.js";

const SHORTEST_MS = 50; // shortest span for a rate: in a shorter span, network jitter dominates
const REPLAY_MS = 1000; // after a reconnect, events may be replays for this time
const REMEMBERED = 200; // notes kept: four pages of history

/** Measures replies from the events of a session. */
export class Timing {
  #running = new Map(); // messageId → times { began, first, last }, and bytes { head: of the first delta, bytes: of all }
  #notes = new Map(); // messageId → text
  #replayUntil = -Infinity;

  /** Drops running measurements and starts none for a second, because events after a reconnect may be replays. */
  expectReplay(now) {
    this.#running.clear();
    this.#replayUntil = now + REPLAY_MS;
  }

  /** Processes created, delta and end events and ignores all others. */
  take({ type, messageId, message, offset, end }, now) {
    if (type === "created" && message.role === "assistant") this.#begin(messageId, now);
    if (type === "delta") this.#grow(messageId, end - offset, now);
    if (type === "end") this.#end(message);
  }

  #begin(messageId, now) {
    if (now >= this.#replayUntil) this.#running.set(messageId, { began: now, first: null, last: now, head: 0, bytes: 0 });
  }

  #grow(messageId, bytes, now) {
    const run = this.#running.get(messageId);
    if (!run) return;
    if (run.first === null) Object.assign(run, { first: now, head: bytes });
    run.last = now;
    run.bytes += bytes;
  }

  #end(message) {
    const run = this.#running.get(message.messageId);
    this.#running.delete(message.messageId);
    // If the final text has another length than the watched deltas, some deltas were missed.
    if (!run || run.first === null || message.status !== "completed" || utf8Length(message.content) !== run.bytes) return;
    const parts = [firstOf(run)];
    const span = run.last - run.first;
    // The span starts when the first delta arrives, so the tokens of that delta do not count.
    if (span >= SHORTEST_MS) parts.push(`${rate((message.tokens * (1 - run.head / run.bytes) * 1000) / span)} tokens/s`);
    this.#notes.set(message.messageId, parts.join(" · "));
    if (this.#notes.size > REMEMBERED) this.#notes.delete(this.#notes.keys().next().value);
  }

  /** Returns for example "first token in 210 ms" for a streaming reply; "" before the first token. */
  live(messageId) {
    const run = this.#running.get(messageId);
    return run && run.first !== null ? firstOf(run) : "";
  }

  /** Returns for example "first token in 210 ms · 48 tokens/s" for an ended reply; "" if it was not measured. */
  noteOf(messageId) {
    return this.#notes.get(messageId) ?? "";
  }
}

function firstOf({ began, first }) {
  const ms = first - began;
  return `first token in ${ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`}`;
}

function rate(perSecond) {
  return perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond).toLocaleString("en");
}
