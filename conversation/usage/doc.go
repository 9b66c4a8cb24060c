// Package usage counts events by the hour, and computes the analytics figures from these counts. It is pure: it does no
// I/O, and gets the time as an argument.
//
// A [Bucket] holds the counts of one owner in one UTC hour. Each count has a number, its [Field]. Buckets are merged by
// adding their counts, in any order. So a store can increment fields without knowing their meaning. Stores keep the
// field numbers, so a number never changes its meaning. Fields of newer versions are unknown and ignored.
//
// # What counts where
//
//   - The message and the reply of a turn count in the hour in which the turn begins. The tokens and the final state of
//     the reply count in the hour in which the turn ends.
//   - The duration of a session (createdAt to lastActivity) counts in the hour in which the session was created. It
//     grows there while the session is used. So the average duration in a period covers the sessions that were created
//     in the period.
//   - System messages count only in the total of messages. An average of no values is 0.
//   - Latencies are stored as a [Histogram] of at most 160 cells, because histograms can be merged and percentiles
//     cannot. A percentile is off by less than 1/16 of its value.
//
// # Periods
//
// Buckets outlive their sessions and are kept for 400 days ([RetentionHours]): a year, and the same month of the year
// before. A [Series] has one entry for each hour, day, week (from Monday) or month, by the UTC calendar, including
// empty entries. The billing period is the calendar month ([Month]). Its limits are only reported, so percentages may
// exceed 100. There is one exception: the store enforces the limit of tokens if the tier sets enforceMonth. The store
// always enforces the limits of [Owned].
package usage
