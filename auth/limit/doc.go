// Package limit is the arithmetic of rate limits and quotas. It is pure: time is an argument, and nothing in it locks,
// blocks, reads a clock or allocates after construction. The caller serialises the use of a value. A store keeps
// [Counters] for each account and mode and calls Admit inside the transaction that does the work.
//
// # The limits
//
//   - Requests a minute and tokens a minute, by tier, for each account and mode: [Tiers] has the defaults. They hold over
//     all nodes, because the store counts them.
//   - 100 requests a day (UTC) for the test keys of an account: [Day]. The count survives a restart.
//   - 30 failed authentications a minute for each address: [Failures]. Each process counts these in its own memory: a
//     write to the store for every wrong key would make guessing an attack on the store.
//   - Figures for a calendar month. They are reported, never enforced, so nothing here counts them.
//
// # The rolling window
//
// A [Window] holds 61 buckets of one second and their total. No 60 seconds on end, wherever they begin, ever hold more than
// the limit. Sixty seconds that end inside a second begin inside the one 60 earlier, so that one counts whole too: hence 61,
// and what is counted in a second leaves 61 seconds later. A fixed minute or a token bucket with a full burst would let
// twice the limit through around a boundary.
//
// # Tokens: reserve, then settle
//
// The cost of a reply is known only at its end. A turn reserves its prompt and its reply room when it begins, and settles
// once when it ends:
//
//   - Used less: the difference goes back to the second of the reservation, as long as that second still counts.
//   - Used more: the difference is charged at that moment, whether it fits or not. The window may so exceed its limit, once;
//     later requests wait until it has left.
//   - A request for more than a whole minute's tokens reserves the whole minute. Otherwise it could never run.
//
// Admission comes after every other check, because a refusal must not leave a reservation behind; [Counters.Withdraw] is for
// a transaction that could not commit.
//
// # Which figures a response shows
//
// [Decide] picks one limit for the X-RateLimit headers: the one that refuses, with the longest wait if there are several;
// else the day, if less is left there than in the minute; else requests a minute. Reset is when the oldest bucket leaves,
// which is the first moment at which there is more room.
//
// # Clocks that go back
//
// The clock of a window never runs backwards. If the caller's clock steps back by up to 60 s, the window stands still until
// it has caught up: callers may read the clock before they queue for a lock. A larger step means that the clock was set:
// the window goes on from where it was. In both cases nothing leaves early, and no wait is longer than 121 s.
//
// Start reading in limit.go (a request and its decision), then window.go.
package limit
