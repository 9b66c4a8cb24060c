package redis

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"parley/auth"
	"parley/conversation"
)

// This file defines the names of all keys in Redis. Go uses the functions below, and scripts use Lua functions that are generated
// from luaNames. Names never change, so that old data stays readable and nodes of two versions can run side by side.
//
// All keys of an account in a mode begin with its tag, {a:<account>:<l|t>}, which Redis Cluster hashes to one slot:
//
//	TAG:account       hash    tier, version (counts the changes of the tier). Only the tier of the live mode counts, for both
//	                          modes. An account exists if the live mode's key of this kind exists.
//	TAG:key:<keyId>   hash    the record of an API key (fields: lua/list_keys.lua). Its tier is that of the time of creation, and
//	                          only nodes of earlier versions read it.
//	TAG:ki            zset    ids of API keys by the time of creation
//	TAG:kx            zset    ids of API keys by the time at which they were revoked or expire; +inf for never. 30 days after that
//	                          time, CreateKey and Keys remove the record and the id in TAG:ki and TAG:kx.
//	TAG:keys          list    ids of API keys that a node of an earlier version has created, newest first. CreateKey and Keys move
//	                          them to TAG:ki and TAG:kx.
//	TAG:audit         zset    the audit log (lua/list_audit.lua): JSON objects by time in milliseconds; each time occurs once.
//	                          Expires 90 days after the newest entry. Nodes of earlier versions write no entries.
//	TAG:requests      string  requests a minute: a window (lua/lib/rate_window.lua); expires 130 s after its last change
//	TAG:tokens        string  tokens a minute: a window in the same format
//	TAG:requests:<user>  string  requests a minute of one user, if the tier limits users; a window in the same format
//	TAG:tokens:<user>    string  tokens a minute of one user, if the tier limits users; a window in the same format
//	TAG:frames:<keyId>   string  frames a minute of one API key on WebSockets; a window in the same format
//	TAG:day           string  requests of the test keys in a UTC day: the day's number and the count; expires a day after that day
//	TAG:sockets       hash    the open sockets of each node: "<count> <change> <end of the lease in milliseconds>"
//	                          (lua/lib/sockets.lua). Expires with the lease that was renewed last. Nodes of earlier versions do
//	                          not count their sockets.
//
// Sessions:
//
//	TAG:s:<sid>          hash    a session. Always: user, created, expires, last (activity), count (of messages), prompt,
//	                             completion, total (tokens used), window, compress ('1' or ''), policy, htokens (of the history),
//	                             fence. Optional: meta, bytes (in the quota storedBytes; missing in sessions of earlier versions),
//	                             head (last message), cleared (the head that ClearMessages set), rev (number of UpdateSession). With
//	                             instructions or a model's configuration: fixed (size of the instructions in a prompt), instr (the
//	                             instructions), model (record of the configuration), reply (limit of a reply in tokens). Nodes of
//	                             earlier versions neither read nor change these five fields. While a
//	                             turn is live: live (the reply), asked (the message), previous (the head before the turn), node,
//	                             waiter (of the BeginTurn that began the turn), stop. While sends wait: queue (MessagePack,
//	                             lua/lib/queue.lua), granted (the waiter that may take the session), grantedAt. Expires with the
//	                             session.
//	TAG:m:<sid>          zset    the session's messages by id, all with score 0 (lua/lib/messages.lua), without the live reply.
//	                             Expires with the session.
//	TAG:w:<sid>          zset    the index of the session's messages, all with score 0: id, NUL, record. With the policy fifo, only
//	                             of its system messages; nodes of earlier versions neither write nor read these. Expires with the session.
//	TAG:f:<sid>          hash    the session's summary: last (message), record (text and figures), figures. Expires with the
//	                             session.
//	TAG:e:<sid>          hash    the vectors of the session's exchanges, by reply, if the policy is semantic. Expires with the
//	                             session.
//	TAG:i                zset    ids of all sessions, with score 0. Readers skip sessions that are gone, and
//	                             Sessions removes the skipped ids. Expires with the last session.
//	TAG:u:<user>         zset    ids of one user's sessions, like TAG:i
//	TAG:x                zset    <sid>:<user> by expiry of the session. Expires with the last session. CreateSession, Sessions and
//	                             Usage remove expired sessions from TAG:i, TAG:u:<user> and TAG:x.
//	TAG:idem:<key>       hash    the session or turn that a request with an idempotency key created: digest, session, asked,
//	                             message. Expires with the session. Without the session, the idempotency key counts as unknown.
//	TAG:q:<sid>          list    the idempotency keys of a session's requests. DeleteSession removes their records TAG:idem:<key>.
//	                             Expires with the session.
//	TAG:b                hash    bytes in the quota storedBytes (lua/lib/stored.lua): total, first (the oldest period that
//	                             counts), and <period>: the bytes of the sessions that expire in that period. Periods of 10
//	                             minutes are numbered from 1970. Expires with the last session.
//	TAG:j:<sid>:<fence>  string  the journal of a live reply: empty when the turn begins; expires with the session. The end of the
//	                             turn empties the journal and keeps it for 5 minutes.
//	TAG:r:<sid>          string  the reservation of the session's unsettled turn (lua/lib/turn.lua). Expires an hour after the
//	                             session, because a turn is settled even if its session is gone.
//	TAG:ru:<sid>         string  the tokens that the same turn has reserved in the window of its user. Missing if users have no
//	                             limit of their own. Expires like TAG:r:<sid>.
//	TAG:v:<sid>          hash    each node that follows the session, with the end of its lease in milliseconds. Expires with the
//	                             lease that was renewed last.
//	TAG:void:<waiter>    string  a waiter that ResumeTurn has voided: a later BeginTurn of this waiter begins no turn. Expires
//	                             after a minute.
//	TAG:h:<day>          hash    counts of usage of a UTC day, numbered from 1970: field hour×512 + usage.Field. Expires 400 days
//	                             after the day. A busy account's hour takes 3 KB.
//	TAG:month            string  the tokens of this calendar month before the hour of the last send, if the tier enforces
//	                             tokensPerMonth: first hour of the month, hour of that send, tokens. Expires after a day.
//	TAG:p:<day>          string  the packed counts of a day before yesterday (lua/lib/usage.lua). Expires like TAG:h:<day>.
//	TAG:absent           never exists (Store.guarded)
//
// Keys without a tag, and channels:
//
//	k:<hash>          string  the pointer from the hash of a secret to its API key: "<version> <JSON of presenter>". Expires with
//	                          the secret. A pointer only leads to the record: the record of the API key decides whether a secret
//	                          works, and TAG:account has the tier. Only nodes of earlier versions use the tier in the JSON. The
//	                          JSON is missing while the secret is claimed, and for a minute after it was removed.
//	t:<hash>          string  a ticket that nobody has redeemed: the JSON of auth.Ticket, by the hash of the ticket's text. Expires
//	                          with the ticket.
//	ready             string  written by Ping; expires after 1 ms
//	ready:{…}         string  written before each WAIT (replicas.go), in the slot of the script's keys; expires after 1 ms. Nodes of
//	                          earlier versions write ready.
//	n:<node>:live     set     live turns that a node has begun: "TAG <sid> <waiter>". BeginTurn adds its turn in the round trip in
//	                          which it asks for the turn. So the set may name turns that did not begin; the session decides.
//	                          Each turn of a session has its own waiter, so removing an ended turn never removes the next one.
//	nodes             zset    ids of nodes, by the time of their last heartbeat in milliseconds (server's clock)
//	ticket-key        string  earlier versions sealed tickets with this key; no longer used
//	inbox:<node>      channel wake-ups for a node: words separated by spaces. <sid>: the session has changed. <sid>+<node>: the
//	                          named node follows the session from now on. <sid>!<waiter>: the named waiter must try again.
const (
	nodesKey = "nodes"
	readyKey = "ready"

	followerMark = "+" // in a word of an inbox, between session and follower
	waiterMark   = "!" // in a word of an inbox, between session and waiter
)

// tagOf returns the hash tag of an account in a mode. It escapes the account's name, so that no name gives access to the keys of
// another account.
func tagOf(account, mode string) string {
	letter := "l"
	if mode == auth.Test {
		letter = "t"
	}
	return "{a:" + url.QueryEscape(account) + ":" + letter + "}"
}

func ownerTag(o auth.Owner) string           { return tagOf(o.Account, o.Mode) }
func tagOfOwner(o conversation.Owner) string { return tagOf(o.Account, string(o.Mode)) }

// ownerOfTag is the inverse of tagOfOwner. It reports whether tag is valid.
func ownerOfTag(tag string) (conversation.Owner, bool) {
	inner, ok1 := strings.CutPrefix(tag, "{a:")
	inner, ok2 := strings.CutSuffix(inner, "}")
	at := strings.LastIndexByte(inner, ':')
	if !ok1 || !ok2 || at < 0 {
		return conversation.Owner{}, false
	}
	account, err := url.QueryUnescape(inner[:at])
	owner := conversation.Owner{Account: account, Mode: conversation.Live}
	if inner[at+1:] == "t" {
		owner.Mode = conversation.Test
	}
	return owner, err == nil && tagOfOwner(owner) == tag
}

func accountKey(tag string) string            { return tag + ":account" }
func keyListKey(tag string) string            { return tag + ":keys" }
func keyIndexKey(tag string) string           { return tag + ":ki" }
func keyEndsKey(tag string) string            { return tag + ":kx" }
func keyKey(tag, keyID string) string         { return tag + ":key:" + keyID }
func requestsKey(tag string) string           { return tag + ":requests" }
func tokensKey(tag string) string             { return tag + ":tokens" }
func userRequestsKey(tag, user string) string { return tag + ":requests:" + user }
func userTokensKey(tag, user string) string   { return tag + ":tokens:" + user }
func framesKey(tag, keyID string) string      { return tag + ":frames:" + keyID }
func dayKey(tag string) string                { return tag + ":day" }
func auditKey(tag string) string              { return tag + ":audit" }
func socketsKey(tag string) string            { return tag + ":sockets" }
func absentKey(tag string) string             { return tag + ":absent" }

func sessionKey(tag, id string) string         { return tag + ":s:" + id }
func messagesKey(tag, id string) string        { return tag + ":m:" + id }
func indexKey(tag, id string) string           { return tag + ":w:" + id }
func summaryKey(tag, id string) string         { return tag + ":f:" + id }
func vectorsKey(tag, id string) string         { return tag + ":e:" + id }
func sessionsKey(tag string) string            { return tag + ":i" }
func userSessionsKey(tag, user string) string  { return tag + ":u:" + user }
func expiryKey(tag string) string              { return tag + ":x" }
func requestKey(tag, key string) string        { return tag + ":idem:" + key }
func sessionRequestsKey(tag, id string) string { return tag + ":q:" + id }
func storedKey(tag string) string              { return tag + ":b" }
func journalName(tag, id, fence string) string { return tag + ":j:" + id + ":" + fence }
func reservationKey(tag, id string) string     { return tag + ":r:" + id }
func userReservationKey(tag, id string) string { return tag + ":ru:" + id }
func followersKey(tag, id string) string       { return tag + ":v:" + id }
func voidKey(tag, waiter string) string        { return tag + ":void:" + waiter }
func countsKey(tag, day string) string         { return tag + ":h:" + day }
func monthKey(tag string) string               { return tag + ":month" }
func packedKey(tag, day string) string         { return tag + ":p:" + day }

func pointerKey(hash auth.Hash) string { return "k:" + hashText(hash) }
func ticketKey(hash auth.Hash) string  { return "t:" + hashText(hash) }
func liveKey(node string) string       { return "n:" + node + ":live" }
func inboxChannel(node string) string  { return "inbox:" + node }

// readyBeside returns the name of a key in the same slot as key.
func readyBeside(key string) string {
	tag := key
	if _, rest, ok := strings.Cut(key, "{"); ok {
		tag, _, _ = strings.Cut(rest, "}")
	}
	return readyKey + ":{" + tag + "}"
}

// journalKey returns the key of a live reply's journal. The key contains the turn's fencing token. So a node that was suspended
// while its turn was ended writes to a journal that nobody reads.
func journalKey(tag, sessionID string, fence int64) string {
	return journalName(tag, sessionID, strconv.FormatInt(fence, 10))
}

// liveMember returns the member that stands for a turn in the set of a node's live turns. waiter is the waiter that began the
// turn.
func liveMember(tag, sessionID, waiter string) string { return tag + " " + sessionID + " " + waiter }

// followerWord and waiterWord return two kinds of words for inboxes. The third kind is a session's id.
func followerWord(sessionID, node string) string { return sessionID + followerMark + node }
func waiterWord(sessionID, waiter string) string { return sessionID + waiterMark + waiter }

// luaNames lists the Lua functions that return names of keys, channels and words. result is the name that the function returns;
// <TAG> in result stands for the tag of the script's first key, and <id> for the parameter id.
var luaNames = []struct{ function, parameters, result string }{
	{"key_key", "id", keyKey("<TAG>", "<id>")},
	{"key_list_key", "", keyListKey("<TAG>")},
	{"key_index_key", "", keyIndexKey("<TAG>")},
	{"key_ends_key", "", keyEndsKey("<TAG>")},
	{"requests_key", "", requestsKey("<TAG>")},
	{"user_requests_key", "user", userRequestsKey("<TAG>", "<user>")},
	{"day_key", "", dayKey("<TAG>")},
	{"tokens_key", "", tokensKey("<TAG>")},
	{"user_tokens_key", "user", userTokensKey("<TAG>", "<user>")},
	{"audit_key", "", auditKey("<TAG>")},
	{"sockets_key", "", socketsKey("<TAG>")},
	{"session_key", "id", sessionKey("<TAG>", "<id>")},
	{"messages_key", "id", messagesKey("<TAG>", "<id>")},
	{"index_key", "id", indexKey("<TAG>", "<id>")},
	{"summary_key", "id", summaryKey("<TAG>", "<id>")},
	{"vectors_key", "id", vectorsKey("<TAG>", "<id>")},
	{"sessions_key", "", sessionsKey("<TAG>")},
	{"user_sessions_key", "user", userSessionsKey("<TAG>", "<user>")},
	{"expiry_key", "", expiryKey("<TAG>")},
	{"request_key", "key", requestKey("<TAG>", "<key>")},
	{"session_requests_key", "id", sessionRequestsKey("<TAG>", "<id>")},
	{"stored_key", "", storedKey("<TAG>")},
	{"journal_key", "id, fence", journalName("<TAG>", "<id>", "<fence>")},
	{"reservation_key", "id", reservationKey("<TAG>", "<id>")},
	{"user_reservation_key", "id", userReservationKey("<TAG>", "<id>")},
	{"followers_key", "id", followersKey("<TAG>", "<id>")},
	{"void_key", "waiter", voidKey("<TAG>", "<waiter>")},
	{"counts_key", "day", countsKey("<TAG>", "<day>")},
	{"month_key", "", monthKey("<TAG>")},
	{"packed_key", "day", packedKey("<TAG>", "<day>")},
	{"inbox_channel", "node", inboxChannel("<node>")},
	{"follower_word", "id, node", followerWord("<id>", "<node>")},
	{"waiter_word", "id, waiter", waiterWord("<id>", "<waiter>")},
}

var placeholder = regexp.MustCompile(`<(\w+)>`)

// luaSchema returns the Lua definitions of TAG, the tag of the script's first key, and of the functions in luaNames.
func luaSchema() string {
	var out strings.Builder
	out.WriteString("local TAG = string.match(KEYS[1], '^{[^}]*}')\n")
	for _, n := range luaNames {
		expression := "'" + placeholder.ReplaceAllString(n.result, "' .. $1 .. '") + "'"
		expression = strings.TrimSuffix(strings.TrimPrefix(expression, "'' .. "), " .. ''")
		fmt.Fprintf(&out, "local function %s(%s) return %s end\n", n.function, n.parameters, expression)
	}
	return out.String()
}
