// Package usage counts events by the hour, and computes the analytics figures from these counts. It is pure: no I/O, and
// time is an argument.
//
// A [Bucket] holds the counts of one owner in one UTC hour. Every count has a number, its [Field]. Buckets are merged by
// adding their counts in any order, so a store can increment fields without knowing their meaning. The numbers are stored
// and never change their meaning; an unknown field, from a newer version, is ignored.
//
// # What counts where
//
//   - Both messages of a turn count in the hour in which the turn begins. Its tokens and its ending count in the hour in
//     which it ends.
//   - The duration of a session (createdAt to lastActivity) counts in the hour in which the session was created, and
//     grows there while the session is used. So a period's average duration covers the sessions that were created in it.
//   - System messages count only in the total of messages. An average of no values is 0.
//   - Latencies are a [Histogram] of at most 160 cells, because percentiles cannot be merged and histograms can. A
//     percentile is off by less than 1/16 of its value.
//
// # Periods
//
// Buckets outlive their sessions and are kept for 400 days ([RetentionHours]): a year, and the month to compare it with. A
// [Series] has one entry for each hour, day, week (from Monday) or month, by the UTC calendar, including empty ones. The
// billing period is the calendar month ([Month]). Its limits are reported, not enforced, so percentages may exceed 100.
package usage
