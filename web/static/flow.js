// When the page is written to: once a frame, and no more than a frame can show.

const BUDGET_MS = 4; // what is written in that time takes some four times as long to be laid out
const HIDDEN_MS = 150; // where there are no frames: in a tab that nobody sees, or a window behind others

/**
 * Flow has jobs do their work in slices. A job is an object whose step() does a little, a millisecond's worth at most, and
 * returns whether there is more to do. The job that was added last is done first: the newest message, which is the one in
 * sight.
 */
export class Flow {
  #jobs = [];
  #ran;
  #frame = 0;
  #timer = 0;
  #soon = false;

  /** ran is called after each run: once a frame, before it is laid out. */
  constructor(ran) {
    this.#ran = ran;
    // Frames that a tab asked for before it was hidden do not come.
    document.addEventListener("visibilitychange", () => this.#jobs.length > 0 && this.run());
  }

  /** Adds a job, if it is not there; it is done with the next frame. */
  add(job) {
    if (!this.#jobs.includes(job)) this.#jobs.push(job);
    this.#schedule();
  }

  /** Adds a job that is begun before anything else happens, but for this task's other jobs. */
  addSoon(job) {
    this.add(job);
    if (this.#soon) return;
    this.#soon = true;
    queueMicrotask(() => {
      this.#soon = false;
      this.run();
    });
  }

  clear() {
    this.#jobs = [];
  }

  /** Does what there is to do now, but for what would take too long. */
  run() {
    this.#cancel();
    const until = performance.now() + BUDGET_MS;
    while (this.#jobs.length > 0 && performance.now() < until) {
      const job = this.#jobs.at(-1);
      if (!job.step()) this.#jobs.splice(this.#jobs.indexOf(job), 1);
    }
    if (this.#jobs.length > 0) this.#schedule();
    this.#ran();
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
