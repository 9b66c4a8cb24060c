// Package limit is the arithmetic of rate limits and quotas. It is pure: time is an argument, and counting neither locks,
// blocks, reads a clock nor allocates. Its values are not safe for concurrent use. A store keeps [Counters] for each
// account and mode, and calls Admit inside the transaction that does the work.
//
// # The limits
//
//   - Requests a minute and tokens a minute, by tier, for each account and mode: [DefaultTiers]. They hold over all nodes,
//     because the store counts them.
//   - 100 requests a day (UTC) for all test keys of an account together: [Day]. The count survives a restart.
//   - 30 failed authentications a minute for each address: [Failures]. Each process counts these in its own memory. If each
//     wrong key cost a write to the store, guessing keys would overload the store.
//   - Monthly figures: [TierLimits]. They are reported, never enforced, so nothing here counts them.
//
// # The rolling window
//
// A [Window] holds 61 buckets of one second and their total. Any period of 60 seconds admits at most the limit, wherever
// it begins. A period that ends in the middle of a second begins in the middle of another, 60 seconds earlier. Both
// seconds count whole, so there are 61 buckets, and a count leaves 61 seconds after its second. A fixed minute, or a
// token bucket with a full burst, would admit twice the limit around a boundary.
//
// # Tokens: reserve, then settle
//
// The cost of a reply is known only at its end. A turn reserves its prompt and its reply room when it begins, and settles
// once when it ends:
//
//   - If the turn used less, the difference returns to the second of the reservation, if that second still counts.
//   - If the turn used more, the difference is charged when it settles, whether it fits or not. The window may then exceed its
//     limit, and later requests wait until enough has left.
//   - A request for more tokens than the limit reserves the whole limit. Otherwise it could never run.
//
// Admission comes after every other check, because a refused request must not leave a reservation behind. For a
// transaction that could not commit, there is [Counters.Withdraw].
//
// # Which figures a response shows
//
// [Decide] picks one limit for the X-RateLimit headers. If limits refuse, it picks the one with the longest wait.
// Otherwise it picks requests a day if less is left there than in the minute, else requests a minute. Reset is the first
// time at which more fits: when the oldest bucket leaves the window, or when the day ends.
//
// # Clocks that go back
//
// The clock of a window never runs backwards. Callers may read the time before they wait for a lock. So if the caller's clock
// steps back by up to 60 s, the window's clock waits until the caller's has caught up. A larger step means that somebody set
// the clock, and the window's clock continues from its own time. In both cases nothing leaves early, and no wait is longer
// than 121 s.
//
// Start reading in limit.go (a request and its decision), then window.go.
package limit
