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

// All names of keys in Redis are made in this file, those in scripts too: Lua gets functions that are generated from
// luaNames. Names never change, so that old data stays readable and nodes of two versions can run side by side.
//
// What belongs to an account in a mode begins with its tag, {a:<account>:<l|t>}, which Redis Cluster hashes to one slot:
//
//	TAG:account       hash    tier, version (of the tier). The live mode's record is the truth, the test mode's follows it. An
//	                          account exists if its live mode's record does.
//	TAG:keys          list    ids of keys, newest first
//	TAG:key:<keyId>   hash    the truth about a key (fields: lua/list_keys.lua); stays when the key is revoked
//	TAG:requests      string  requests a minute: a window (lua/lib/rate_window.lua); expires when nothing in it counts any more
//	TAG:tokens        string  tokens a minute: a window
//	TAG:day           string  requests of the test keys' day: its number and count; expires a day after the day
//	TAG:ticket:<id>   string  a ticket that was used; expires with the ticket
//
// Sessions:
//
//	TAG:s:<sid>          hash    a session. Always: user, created, expires, last (activity), count (of messages), prompt,
//	                             completion, total (tokens used), window, compress ('1' or ''), policy, htokens (of the history),
//	                             fence. If there are any: meta, head (last message), cleared. While a turn is live: live (the
//	                             reply), asked (the message), previous (the head before), node, waiter (of the BeginTurn that
//	                             began it), stop. While sends wait: queue (MessagePack, lua/lib/queue.lua), granted (the waiter
//	                             that may take the session), grantedAt. Expires with the session.
//	TAG:m:<sid>          zset    its messages by id, all with score 0 (lua/lib/messages.lua). The live reply is not among them.
//	                             Expires with the session.
//	TAG:w:<sid>          zset    its messages as indexed for the policies priority and semantic, all with score 0: id, NUL, record.
//	                             Expires with the session.
//	TAG:f:<sid>          hash    its summary: last (message), record (text and figures), figures. Expires with the session.
//	TAG:e:<sid>          hash    the vectors of its exchanges, by reply, if the policy is semantic. Expires with the session.
//	TAG:i                zset    ids of sessions, all with score 0; TAG:u:<user> those of one user. A session that is gone is
//	                             skipped. These and the next expire with the last of their sessions.
//	TAG:x                zset    <sid>:<user> by expiry. Whoever creates, lists or counts sessions removes what is due from these three.
//	TAG:idem:<key>       hash    what a request did: digest, session, asked, message. Expires with its session; without it, the
//	                             request is unknown.
//	TAG:j:<sid>:<fence>  string  the journal of a live reply: empty when the turn begins, and again for 5 minutes when it has
//	                             ended. Expires with the session.
//	TAG:r:<sid>          string  what settles the session's turn that is not settled (lua/lib/turn.lua). Expires an hour after the
//	                             session, because a turn is settled even if its session is gone.
//	TAG:v:<sid>          hash    the nodes that follow the session, and until when, in milliseconds; expires with the last of them
//	TAG:void:<waiter>    string  a waiter that ResumeTurn has given up: its BeginTurn begins nothing should it still arrive. One minute.
//	TAG:h:<day>          hash    counts of usage of a UTC day, numbered from 1970: field hour×512 + usage.Field. Expires 400 days
//	                             after the day. A busy account's hour takes 3 KB.
//	TAG:p:<day>          string  the same of a day that is over, packed (lua/lib/usage.lua)
//
// Outside of tags:
//
//	k:<hash>          string  who presents the secret with that hash: "<version> <JSON of who>". Expires with the secret. It only
//	                          saves a round trip: whether a secret works is decided in the slot of its key.
//	ticket-key        string  what seals the tickets of all nodes
//	ready             string  written by Ping, expires at once
//	n:<node>:live     set     live turns that a node has begun: "TAG <sid> <waiter>". Written in the round trip of BeginTurn, so it may
//	                          name turns that did not begin; the session decides. The waiter makes each turn of a session
//	                          another member, so removing an ended turn never removes the next.
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

// tagOf returns the hash tag of an account in a mode. The account's name is escaped, so that no name can reach into the keys of
// another.
func tagOf(account, mode string) string {
	letter := "l"
	if mode == auth.Test {
		letter = "t"
	}
	return "{a:" + url.QueryEscape(account) + ":" + letter + "}"
}

func ownerTag(o auth.Owner) string           { return tagOf(o.Account, o.Mode) }
func tagOfOwner(o conversation.Owner) string { return tagOf(o.Account, string(o.Mode)) }

// ownerOfTag is the inverse of tagOfOwner.
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

// journalKey is the key of a live reply's journal. The turn's fencing token is in it, so that a node that was asleep writes where
// nobody reads.
func journalKey(tag, sessionID string, fence int64) string {
	return journalName(tag, sessionID, strconv.FormatInt(fence, 10))
}

// liveMember is a member of the set of a node's live turns.
func liveMember(tag, sessionID, waiter string) string { return tag + " " + sessionID + " " + waiter }

// The words of an inbox, beside a session's id.
func followerWord(sessionID, node string) string { return sessionID + followerMark + node }
func waiterWord(sessionID, waiter string) string { return sessionID + waiterMark + waiter }

// luaNames are the names that scripts make themselves, from the tag of their first key: the function in Lua, its parameters, and
// what it returns, with <…> for the tag and the parameters.
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

// luaSchema returns the definitions of luaNames, and that of TAG.
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
