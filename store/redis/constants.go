package redis

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"parley/auth"
	"parley/auth/base62"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/usage"
	"parley/conversation/window"
	"parley/store/record"
)

// Limits and timeouts of the scripts. The prelude passes them to Lua, with the constants of other packages that scripts need.
const (
	// A waiter that does not try again for waiterTimeout loses its place in the queue, or its grant. waiterTimeout is five times
	// waiterRetry, so that a slow moment costs no place. It is not longer, because the turns of a dead node also end within 5 s.
	waiterTimeout = 5 * time.Second
	// A waiter stays void for voidKept after ResumeTurn. A BeginTurn takes less time to reach Redis.
	voidKept = time.Minute
	// A turn can be settled until reservationOutlives after the expiry of its session. No reply lasts that long.
	reservationOutlives = time.Hour
	// The journal of an ended turn is emptied, and kept for journalOutlives: a node that was suspended may still write to it.
	journalOutlives = 5 * time.Minute
	// A rate window expires windowKept seconds after its last change. All its counts are too old to matter by then: a count
	// matters for at most 121 s, even if the clock was set back.
	windowKept = 130
	// One operation removes up to prunedAtOnce expired sessions from the indices. That takes less than a millisecond. An
	// operation adds one session at most, so expired sessions do not pile up.
	prunedAtOnce = 100
	// If ids of expired sessions keep a list of sessions from filling its page, each further script reads up to readAgain ids,
	// which takes about a millisecond.
	readAgain = 200
	// A script removes up to requestsForgottenAtOnce records of idempotency keys, which takes less than a millisecond.
	requestsForgottenAtOnce = 500
	// The bytes of sessions are counted by the period in which the sessions expire (lua/lib/stored.lua); storedPeriod is the
	// length of a period. With shorter periods, the bytes of expired sessions stop counting sooner. Longer periods need less
	// memory: with 10 minutes, 2 KB for each owner.
	storedPeriod = 10 * time.Minute
	// Creating or listing API keys removes up to keysPurgedAtOnce records of ended keys. A new key adds one record at most, so
	// ended keys do not pile up. Creating a key also moves up to keysAdoptedAtOnce keys from the list of earlier versions.
	keysPurgedAtOnce, keysAdoptedAtOnce = 10, 100
	// An operation that adds an audit entry removes up to auditPurgedAtOnce old entries, so old entries do not pile up.
	auditPurgedAtOnce = 10
	// A script that reads the history reads the newest historyFirstRead messages first, because many sessions have no
	// more. Then it reads historyRead messages at a time, which usually have up to 2 MB. If a session does not fit a page,
	// the script of a page reads historyFirstRead messages at a time, because a page may begin with several of the largest
	// replies.
	historyFirstRead, historyRead = 16, 32
	// Up to memberSentWhole bytes, Redis spends less time on sending a message with its metadata than on removing the metadata.
	memberSentWhole = 1024
	// In a number in a record, each byte except the last has this bit (binary.AppendUvarint).
	uvarintMore = 1 << 7
	// The first operation of a day that counts usage packs up to daysPackedByCount of the last daysSearched days. A usage report
	// packs up to daysPackedByRead days. Redis takes 1.5 ms to pack a busy account's day.
	daysPackedByCount, daysSearched, daysPackedByRead = 4, 32, 32
	// Redis keeps the sum of a month's tokens for monthKept after its last change. If the sum has expired, a script computes it
	// from the counts of up to 31 days, which takes a few milliseconds for a busy account.
	monthKept = 24 * time.Hour
	// Each hour has fieldsAnHour field numbers in a day's counts (lua/lib/usage.lua). usage.Field uses only some of them.
	fieldsAnHour = 512
	// Lua's numbers are doubles, which represent every whole number up to maxExact exactly.
	maxExact = 1 << 53

	// randomLength is the length of the random part of an id.
	randomLength = 9
)

// constant is a constant that the prelude defines for scripts. A number that scripts only pass to commands is a string, because
// Redis 7.0 takes 0.3 µs to format a number of Lua.
type constant struct {
	name  string
	value any // int or string
}

// constants returns the constants of the prelude.
func constants() []constant {
	milliseconds := func(d time.Duration) int { return int(d.Milliseconds()) }
	return []constant{
		{"HOUR", milliseconds(time.Hour)},
		{"DAY_SECONDS", int((24 * time.Hour).Seconds())},
		{"MAX_EXACT", maxExact},

		{"MESSAGE_PREFIX", conversation.MessagePrefix},
		{"SESSION_PREFIX", conversation.SessionPrefix},
		{"ID_LENGTH", idLength},
		{"HEAD_LENGTH", headLength},
		{"RANDOM_LENGTH", randomLength},
		{"CLOCK_LENGTH", idLength - len(conversation.MessagePrefix) - randomLength},
		{"DIGITS", base62.Alphabet},

		{"WINDOW_REACH", limit.WindowReach},
		{"WINDOW_SPAN", limit.WindowReach + 1},
		{"WINDOW_KEPT", strconv.Itoa(windowKept)},
		{"MAX_TOTAL", limit.MaxTotal},
		{"MAX_LIMIT", limit.MaxLimit},

		{"MESSAGE_OVERHEAD", window.MessageOverhead},
		{"PROMPT_OVERHEAD", window.PromptOverhead},
		{"REPLY_SHARE", 4096 / window.Size{MaxTokens: 4096}.ReplyRoom()}, // the default reply room is the window divided by REPLY_SHARE
		{"MAX_REPLY_ROOM", window.MaxReplyRoom},
		{"INDEX_LIMIT", conversation.IndexLimit},
		{"HISTORY_BYTES", conversation.HistoryBytes},
		{"PAGE_BYTES", conversation.PageBytes},
		{"HISTORY_FIRST_READ", historyFirstRead},
		{"MEMBER_SENT_WHOLE", memberSentWhole},
		{"HISTORY_READ", historyRead},
		{"RECORD_VERSION", record.Version},
		{"UVARINT_MORE", uvarintMore},
		{"POLICY_FIFO", string(conversation.FIFO)},
		{"ROLE_SYSTEM", string(conversation.System)},
		{"POLICY_PRIORITY", string(conversation.Priority)},
		{"POLICY_SEMANTIC", string(conversation.Semantic)},

		{"QUEUE_PLACES", conversation.QueuePlaces},
		{"WAITER_TIMEOUT", milliseconds(waiterTimeout)},
		{"VOID_KEPT", milliseconds(voidKept)},
		{"ON_BUSY_INTERRUPT", string(conversation.Interrupt)},
		{"ON_BUSY_REJECT", string(conversation.Reject)},
		{"STOP_CANCELLED", string(conversation.StopCancelled)},
		{"STOP_CLEARED", string(conversation.StopCleared)},
		{"JOURNAL_OUTLIVES", strconv.Itoa(milliseconds(journalOutlives))},
		{"RESERVATION_OUTLIVES", milliseconds(reservationOutlives)},
		{"PRUNED_AT_ONCE", prunedAtOnce},
		{"REQUESTS_FORGOTTEN_AT_ONCE", requestsForgottenAtOnce},
		{"STORED_PERIOD", milliseconds(storedPeriod)},
		{"STORED_PERIODS", int(conversation.Lifetime/storedPeriod) + 1},
		{"QUOTA_ACTIVE_SESSIONS", string(limit.QuotaActiveSessions)},
		{"QUOTA_STORED_BYTES", string(limit.QuotaStoredBytes)},
		{"QUOTA_TOKENS_PER_MONTH", string(limit.QuotaTokensPerMonth)},

		{"ENDED_KEY_LIFETIME", milliseconds(auth.EndedKeyLifetime)},
		{"MAX_ENDED_KEYS", auth.MaxEndedKeys},
		{"KEYS_PURGED_AT_ONCE", keysPurgedAtOnce},
		{"KEYS_ADOPTED_AT_ONCE", keysAdoptedAtOnce},

		{"AUDIT_LIFETIME", milliseconds(auth.AuditLifetime)},
		{"MAX_AUDIT_ENTRIES", auth.MaxAuditEntries},
		{"AUDIT_PURGED_AT_ONCE", auditPurgedAtOnce},
		{"KEY_CREATED", string(auth.KeyCreated)},
		{"KEY_ROTATED", string(auth.KeyRotated)},
		{"KEY_REVOKED", string(auth.KeyRevoked)},
		{"TIER_CHANGED", string(auth.TierChanged)},

		{"KEPT_DAYS", usage.RetentionHours / 24},
		{"FIELDS_AN_HOUR", fieldsAnHour},
		{"DAYS_PACKED_BY_COUNT", daysPackedByCount},
		{"DAYS_PACKED_BY_READ", daysPackedByRead},
		{"DAYS_SEARCHED", daysSearched},
		{"REQUESTS_FIELD", fieldOf(usage.Bucket{Requests: 1})},
		{"SESSION_TIME_FIELD", fieldOf(usage.Bucket{SessionTime: 1})},
		{"PROMPT_TOKENS_FIELD", fieldOf(usage.Bucket{PromptTokens: 1})},
		{"COMPLETION_TOKENS_FIELD", fieldOf(usage.Bucket{CompletionTokens: 1})},
		{"MONTH_KEPT", int(monthKept.Seconds())},
	}
}

// fieldOf returns the number of the only field of b that is not zero.
func fieldOf(b usage.Bucket) int {
	for field := range b.All() {
		return int(field)
	}
	panic("redis: the bucket is empty")
}

// prelude returns the generated library: the constants, and the functions that return names of keys.
func prelude() string {
	var out strings.Builder
	for _, c := range constants() {
		switch value := c.value.(type) {
		case int:
			fmt.Fprintf(&out, "local %s = %d\n", c.name, value)
		case string:
			fmt.Fprintf(&out, "local %s = '%s'\n", c.name, value)
		}
	}
	return out.String() + luaSchema()
}
