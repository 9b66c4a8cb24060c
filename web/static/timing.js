// How fast a reply came, for whoever watched it from its beginning. Times are milliseconds of one clock, which the caller reads.

import { utf8Length } from "./track.js";

const SHORTEST_MS = 50; // a rate over less says more of the network than of the model
const UNSURE_MS = 1000; // how long what comes may have happened before
const REMEMBERED = 200; // replies

/** Timing follows replies by the events of a session. */
export class Timing {
  #running = new Map(); // messageId → { began, first, last, head, bytes }; head: bytes of the first delta
  #notes = new Map(); // messageId → text
  #unsure = -Infinity;

  /** What comes from now on may be a replay, as after a cut: nothing that runs can be timed, nor what begins at once. */
  doubt(now) {
    this.#running.clear();
    this.#unsure = now + UNSURE_MS;
  }

  /** Takes in a created, delta or end event; all others are nothing to it. */
  take({ type, messageId, message, offset, end }, now) {
    if (type === "created" && message.role === "assistant") this.#begin(messageId, now);
    if (type === "delta") this.#grow(messageId, end - offset, now);
    if (type === "end") this.#end(message);
  }

  #begin(messageId, now) {
    if (now >= this.#unsure) this.#running.set(messageId, { began: now, first: null, last: now, head: 0, bytes: 0 });
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
    // Where the text is not what was watched, the deltas left something out.
    if (!run || run.first === null || message.status !== "completed" || utf8Length(message.content) !== run.bytes) return;
    const parts = [firstOf(run)];
    const span = run.last - run.first;
    // The first delta came at the beginning of the span: its tokens took none of it.
    if (span >= SHORTEST_MS) parts.push(`${rate((message.tokens * (1 - run.head / run.bytes) * 1000) / span)} tokens/s`);
    this.#notes.set(message.messageId, parts.join(" · "));
    if (this.#notes.size > REMEMBERED) this.#notes.delete(this.#notes.keys().next().value);
  }

  /** What there is to say of a reply that is being written: "first after 0.21 s", or "". It changes once. */
  live(messageId) {
    const run = this.#running.get(messageId);
    return run && run.first !== null ? firstOf(run) : "";
  }

  /** What there is to say of a reply that has ended: "first after 0.21 s · 48 tokens/s", or "". */
  noteOf(messageId) {
    return this.#notes.get(messageId) ?? "";
  }
}

function firstOf({ began, first }) {
  return `first after ${seconds(first - began)} s`;
}

function seconds(ms) {
  return (ms / 1000).toFixed(ms < 10_000 ? 2 : 0);
}

function rate(perSecond) {
  return perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond).toLocaleString("en");
}
