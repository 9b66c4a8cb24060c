// Package limit is the arithmetic of rate limits and quotas. It is pure: time is an argument, and counting does not lock,
// block, read a clock or allocate. The values of this package are not safe for concurrent use. The embedded store keeps
// [Counters] for each owner, and uses them under its own lock. The scripts of the Redis store do the same arithmetic.
//
// # The limits
//
//   - Requests a minute and tokens a minute, by tier, for each owner ([DefaultTiers]). The store counts them, so these limits
//     are valid over all nodes together.
//   - Requests a minute and tokens a minute for each user of an owner ([User]), if the tier limits users to less than the owner.
//     Otherwise, nothing is counted for users.
//   - Frames a minute on WebSockets, for each API key ([FrameMeter]). A node leases frames from the store, because a round trip
//     for each frame would cost more than the frame itself.
//   - 100 requests a day (UTC) for all test keys of an account together ([Day]). The count survives a restart.
//   - 30 failed authentications a minute for each address ([Failures]). Each process counts them in its own memory. If the
//     store counted them, each wrong key would cost a write, and somebody who guesses keys would overload the store.
//   - Monthly figures ([TierLimits]). The usage report contains them. Stores enforce only TokensPerMonth, and only if
//     EnforceMonth is set.
//
// # The rolling window
//
// A [Window] holds 61 buckets of one second, and their total. It admits at most the limit in any period of 60 seconds. A
// period that begins and ends in the middle of a second touches 61 seconds. A window counts all 61 of them, so a count
// leaves the window 61 seconds after its second. A counter that restarts every minute would admit twice the limit around
// the end of a minute.
//
// # Tokens: reserve, then settle
//
// The cost of a reply is known only at its end. When a turn begins, it reserves the tokens of its prompt and its reply
// room. When the turn ends, it settles the reservation once:
//
//   - If the turn used fewer tokens, Settle subtracts the difference from the second of the reservation.
//   - If the turn used more tokens, Settle adds the difference in the current second, even if it does not fit. The window
//     may then exceed its limit, and later requests wait.
//   - A request for more tokens than the limit reserves the whole limit. Otherwise such a request could never run.
//
// A store reserves the tokens of a turn after all other checks, because a refused turn must not leave a reservation behind.
// If the turn then cannot begin, the store releases the reservation ([Window.Release]).
//
// # The figures in a response
//
// [Decide] chooses one limit of the owner for the X-RateLimit headers, never one of a user. If limits refuse the request, it
// chooses the limit with the longest wait. Otherwise it chooses requests a minute, or requests a day if fewer requests are
// left in the day. Reset is the first time at which capacity becomes free: the oldest bucket leaves the window, or the day
// ends.
//
// # Clocks that go back
//
// A window has its own clock, which never goes back. But a caller may read the time and then wait for a lock, so the
// caller's time may be earlier than the window's time. If the difference is at most 60 s, the window's clock stops until
// the caller's clock has caught up. If the difference is larger, somebody has set the caller's clock. The window's clock
// then goes on from its own time. In both cases, no count leaves the window early, and no wait is longer than 121 s.
//
// Start reading in limit.go (a request and its decision), then window.go.
package limit
