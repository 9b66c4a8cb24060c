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

// This file defines all names of keys in Redis, those in scripts too: Lua gets functions that are generated from
// luaNames. Names never change, so that old data stays readable and nodes of two versions can run side by side.
//
// All keys of an account in a mode begin with its tag, {a:<account>:<l|t>}, which Redis Cluster hashes to one slot:
//
//	TAG:account       hash    tier, version (of the tier). The live mode's record decides, the test mode's is a copy. An
//	                          account exists if its live mode's record does.
//	TAG:keys          list    ids of keys, newest first
//	TAG:key:<keyId>   hash    the record of a key (fields: lua/list_keys.lua); stays when the key is revoked
//	TAG:requests      string  requests a minute: a window (lua/lib/rate_window.lua); expires 130 s after its last change
//	TAG:tokens        string  tokens a minute: a window
//	TAG:day           string  requests of the test keys in a UTC day: the day's number and the count; expires a day after the day
//	TAG:ticket:<id>   string  marks a used ticket; expires with the ticket
//
// Sessions:
//
//	TAG:s:<sid>          hash    a session. Always: user, created, expires, last (activity), count (of messages), prompt,
//	                             completion, total (tokens used), window, compress ('1' or ''), policy, htokens (of the history),
//	                             fence. Optional: meta, head (last message), cleared. While a turn is live: live (the reply), asked
//	                             (the message), previous (the head before the turn), node, waiter (of the BeginTurn that began the
//	                             turn), stop. While sends wait: queue (MessagePack, lua/lib/queue.lua), granted (the waiter
//	                             that may take the session), grantedAt. Expires with the session.
//	TAG:m:<sid>          zset    its messages by id, all with score 0 (lua/lib/messages.lua), without the live reply.
//	                             Expires with the session.
//	TAG:w:<sid>          zset    the index of its messages for the policies priority and semantic, all with score 0: id, NUL, record.
//	                             Expires with the session.
//	TAG:f:<sid>          hash    its summary: last (message), record (text and figures), figures. Expires with the session.
//	TAG:e:<sid>          hash    the vectors of its exchanges, by reply, if the policy is semantic. Expires with the session.
//	TAG:i                zset    ids of sessions, all with score 0; TAG:u:<user> those of one user. Readers skip sessions that are
//	                             gone. These and the next key expire with the last of their sessions.
//	TAG:x                zset    <sid>:<user> by expiry. Creating, listing and counting sessions prunes these three indices.
//	TAG:idem:<key>       hash    what a request with an idempotency key created: digest, session, asked, message. Expires with its
//	                             session. Without the session, the key counts as unknown.
//	TAG:j:<sid>:<fence>  string  the journal of a live reply: empty when the turn begins; expires with the session. The end of the
//	                             turn empties it and keeps it for 5 minutes.
//	TAG:r:<sid>          string  the reservation of the session's unsettled turn (lua/lib/turn.lua). Expires an hour after the
//	                             session, because a turn is settled even if its session is gone.
//	TAG:v:<sid>          hash    the nodes that follow the session, and the ends of their leases in milliseconds; expires with the last
//	TAG:void:<waiter>    string  a waiter that ResumeTurn has voided: its BeginTurn begins no turn if it arrives later. One minute.
//	TAG:h:<day>          hash    counts of usage of a UTC day, numbered from 1970: field hour×512 + usage.Field. Expires 400 days
//	                             after the day. A busy account's hour takes 3 KB.
//	TAG:p:<day>          string  the packed counts of a day before yesterday (lua/lib/usage.lua). Expires like TAG:h:<day>.
//
// Outside of tags:
//
//	k:<hash>          string  the pointer from the hash of a secret to its key: "<version> <JSON of presenter>". Expires with the secret.
//	                          It only saves a round trip: the record of the key decides whether a secret works. While a secret is
//	                          claimed, and for a minute after it is removed, there is no JSON.
//	ticket-key        string  the key that seals the tickets of all nodes
//	ready             string  written by Ping, and before each WAIT (replicas.go); expires after 1 ms
//	n:<node>:live     set     live turns that a node has begun: "TAG <sid> <waiter>". Written in the round trip of BeginTurn, so it may
//	                          name turns that did not begin; the session decides. Each turn of a session has another waiter and
//	                          so another member: removing an ended turn never removes the next.
//	nodes             zset    node id → its last heartbeat, in milliseconds by the server's clock
//	inbox:<node>      channel wake-ups for a node: words separated by spaces. <sid>: the session has changed. <sid>+<node>: that
//	                          node follows the session from now on. <sid>!<waiter>: that waiter must try again.
const (
	nodesKey     = "nodes"
	readyKey     = "ready"
	ticketKeyKey = "ticket-key"

	followerMark = "+" // in a word of an inbox, between session and follower
	waiterMark   = "!" // between session and waiter
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

// ownerOfTag is the inverse of tagOfOwner. It reports whether tag is valid. It reports whether tag is valid.
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

func accountKey(tag string) string       { return tag + ":account" }
func keyOrderKey(tag string) string      { return tag + ":keys" }
func keyKey(tag, keyID string) string    { return tag + ":key:" + keyID }
func requestsKey(tag string) string      { return tag + ":requests" }
func tokensKey(tag string) string        { return tag + ":tokens" }
func dayKey(tag string) string           { return tag + ":day" }
func ticketUseKey(tag, id string) string { return tag + ":ticket:" + id }

func sessionKey(tag, id string) string         { return tag + ":s:" + id }
func messagesKey(tag, id string) string        { return tag + ":m:" + id }
func indexKey(tag, id string) string           { return tag + ":w:" + id }
func summaryKey(tag, id string) string         { return tag + ":f:" + id }
func vectorsKey(tag, id string) string         { return tag + ":e:" + id }
func sessionsKey(tag string) string            { return tag + ":i" }
func userSessionsKey(tag, user string) string  { return tag + ":u:" + user }
func expiryKey(tag string) string              { return tag + ":x" }
func requestKey(tag, key string) string        { return tag + ":idem:" + key }
func journalName(tag, id, fence string) string { return tag + ":j:" + id + ":" + fence }
func reservationKey(tag, id string) string     { return tag + ":r:" + id }
func followersKey(tag, id string) string       { return tag + ":v:" + id }
func voidKey(tag, waiter string) string        { return tag + ":void:" + waiter }
func countsKey(tag, day string) string         { return tag + ":h:" + day }
func packedKey(tag, day string) string         { return tag + ":p:" + day }

func pointerKey(hash auth.Hash) string { return "k:" + hashText(hash) }
func liveKey(node string) string       { return "n:" + node + ":live" }
func inboxChannel(node string) string  { return "inbox:" + node }

// journalKey returns the key of a live reply's journal. It contains the turn's fencing token, so that a node that was suspended
// writes to a journal that nobody reads.
func journalKey(tag, sessionID string, fence int64) string {
	return journalName(tag, sessionID, strconv.FormatInt(fence, 10))
}

// liveMember returns the member for a turn in the set of a node's live turns.
func liveMember(tag, sessionID, waiter string) string { return tag + " " + sessionID + " " + waiter }

// followerWord and waiterWord return words of an inbox. The third kind of word is the id of a session.
func followerWord(sessionID, node string) string { return sessionID + followerMark + node }
func waiterWord(sessionID, waiter string) string { return sessionID + waiterMark + waiter }

// luaNames lists the functions with which scripts make names, most of them with the tag of the first key: the name of each
// function, its parameters, and the pattern of its result, with <…> for the tag and the parameters.
var luaNames = []struct{ function, parameters, result string }{
	{"key_key", "id", keyKey("<TAG>", "<id>")},
	{"tokens_key", "", tokensKey("<TAG>")},
	{"session_key", "id", sessionKey("<TAG>", "<id>")},
	{"messages_key", "id", messagesKey("<TAG>", "<id>")},
	{"index_key", "id", indexKey("<TAG>", "<id>")},
	{"summary_key", "id", summaryKey("<TAG>", "<id>")},
	{"vectors_key", "id", vectorsKey("<TAG>", "<id>")},
	{"sessions_key", "", sessionsKey("<TAG>")},
	{"user_sessions_key", "user", userSessionsKey("<TAG>", "<user>")},
	{"expiry_key", "", expiryKey("<TAG>")},
	{"request_key", "key", requestKey("<TAG>", "<key>")},
	{"journal_key", "id, fence", journalName("<TAG>", "<id>", "<fence>")},
	{"reservation_key", "id", reservationKey("<TAG>", "<id>")},
	{"followers_key", "id", followersKey("<TAG>", "<id>")},
	{"void_key", "waiter", voidKey("<TAG>", "<waiter>")},
	{"counts_key", "day", countsKey("<TAG>", "<day>")},
	{"packed_key", "day", packedKey("<TAG>", "<day>")},
	{"inbox_channel", "node", inboxChannel("<node>")},
	{"follower_word", "id, node", followerWord("<id>", "<node>")},
	{"waiter_word", "id, waiter", waiterWord("<id>", "<waiter>")},
}

var placeholder = regexp.MustCompile(`<(\w+)>`)

// luaSchema returns the Lua definitions of TAG and of the functions in luaNames.
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
