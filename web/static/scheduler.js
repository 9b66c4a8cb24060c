// Schedules DOM writes: one run per frame, within a time budget, so that a fast model or a long history never blocks the page.

const BUDGET_MS = 4; // layout takes about four times as long as the writes that cause it, and a frame lasts 16 ms
const HIDDEN_MS = 150; // between runs in a hidden tab or a covered window, which has no frames

/**
 * Runs jobs in slices. A job is an object with a method step(), which works for about a millisecond and returns whether work is
 * left. The job that was added last runs first: the newest message, which is usually visible.
 */
export class Scheduler {
  #jobs = [];
  #onrun;
  #frame = 0;
  #timer = 0;
  #microtask = false;

  /** onrun is called after each run, before layout. */
  constructor(onrun) {
    this.#onrun = onrun;
    // If a frame was requested before the tab was hidden, it does not come.
    document.addEventListener("visibilitychange", () => this.#jobs.length > 0 && this.run());
  }

  /** Adds a job, unless it is queued already. The job runs in the next frame. */
  add(job) {
    if (!this.#jobs.includes(job)) this.#jobs.push(job);
    this.#schedule();
  }

  /** Adds a job that starts at the end of the current task, before the next paint. */
  addSoon(job) {
    this.add(job);
    if (this.#microtask) return;
    this.#microtask = true;
    queueMicrotask(() => {
      this.#microtask = false;
      this.run();
    });
  }

  clear() {
    this.#jobs = [];
  }

  /** Runs jobs until none is left or the time budget is used up. */
  run() {
    this.#cancel();
    const until = performance.now() + BUDGET_MS;
    while (this.#jobs.length > 0 && performance.now() < until) {
      const job = this.#jobs.at(-1);
      if (!job.step()) this.#jobs.splice(this.#jobs.indexOf(job), 1);
    }
    if (this.#jobs.length > 0) this.#schedule();
    this.#onrun();
  }

  #schedule() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => this.run());
    this.#timer = setTimeout(() => this.run(), HIDDEN_MS);
  }

  #cancel() {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#timer);
    this.#frame = this.#timer = 0;
  }
}
