package redis

import (
	"net/url"
	"strconv"
	"strings"

	"parley/auth"
	"parley/conversation"
)

// All names of keys in Redis are made here, and nowhere else.
//
// What belongs to an account in a mode begins with its tag, {a:<account>:<l|t>}, which Redis Cluster hashes to one slot:
//
//	TAG:account       hash    tier, version (of the tier). The live mode's is the truth, the test mode's its mirror; an
//	                          account exists by the live mode's.
//	TAG:keys          list    ids of keys, newest first
//	TAG:key:<keyId>   hash    the truth about a key (fields in lua/keys.lua); stays when the key is revoked
//	TAG:requests      string  requests a minute: a window (lua/admission.lua); expires when nothing counts any more
//	TAG:tokens        string  tokens a minute: a window
//	TAG:day           string  requests of a test key's day: its number and count; expires a day after the day
//	TAG:ticket:<id>   string  a ticket that was used; expires with the ticket
//
// Of sessions, whose scripts (lua/session.lua, lua/queue.lua) make these names themselves, from the tag of their first key:
//
//	TAG:s:<sid>          hash    a session. Always: user, created, expires, last (activity), count (of messages), prompt,
//	                             completion, total (of tokens), window, compress ('1' or ''), policy, htokens, fence. Where
//	                             there are any: meta, head, cleared. While a turn is live: live (the reply), asked, previous
//	                             (the head before), node, waiter (of the BeginTurn that began it), stop. queue (cmsgpack, see
//	                             lua/queue.lua), granted (the waiter that the session is kept for), grantedAt. Expires with
//	                             the session.
//	TAG:m:<sid>          zset    its messages by id, all with the score 0 (lua/session.lua has what a member is). The reply
//	                             that is streaming is none of them. Expires with the session.
//	TAG:w:<sid>          zset    its messages as they are indexed (lua/session.lua), all with the score 0, where the policy is not
//	                             fifo: id, NUL, record. TAG:f:<sid>: hash, its summary: last (message), record (text and
//	                             figures), figures. Both expire with it.
//	TAG:e:<sid>          hash    the vectors of its exchanges (conversation.Store.SetVectors), by the reply, where the policy is
//	                             semantic. Expires with the session.
//	TAG:i                zset    ids of sessions, all with the score 0; TAG:u:<user> those of one user. One whose session is
//	                             gone is passed over. Both expire, as the next does, with the last of their sessions.
//	TAG:x                zset    <sid>:<user> by expiry: what is due is removed from these three by who creates, lists or counts.
//	TAG:idem:<key>       hash    what a request did: digest, session, asked, message. Expires with its session; one whose session
//	                             is gone is unknown.
//	TAG:j:<sid>:<fence>  string  the journal of a live reply: empty when the turn begins, and again, for 5 minutes, when it is
//	                             over (a node that slept must find a key with an expiry). Expires with the session.
//	TAG:r:<sid>          string  what settles the session's turn that is not settled: "<reply> <fence> <second> <tokens> <estimate>
//	                             <node> <waiter>", second and tokens of the reservation, the estimate of the prompt. Expires an hour
//	                             after the session: it is settled also where the session has gone (conversation.Store.EndTurn).
//	TAG:v:<sid>          hash    nodes that watch a session, and until when, in milliseconds; expires.
//	TAG:void:<waiter>    string  a BeginTurn that ResumeTurn did not find: should it arrive yet, it begins nothing. A minute.
//	TAG:h:<day>          hash    counts of usage of a UTC day, numbered from 1970 on: field hour×512 + usage.Field. Expires 400 days
//	                             after the day, as the next does. Of a busy account's hour it takes 3 KB, as all counts are
//	                             fields of a hash table.
//	TAG:p:<day>          string  the same of a day that is over, packed (lua/usage.lua)
//
// Outside of tags:
//
//	k:<hash>          string  who presents the secret of that hash: "<version> <JSON of found>". Expires when the secret
//	                          does. It only spares a trip: whether the secret works is decided in the slot of its key.
//	ticket-key        string  what seals the tickets of all nodes
//	ready             string  written by Ping, expires at once
//	n:<node>:live     set     live turns that a node has begun, "TAG <sid> <waiter>": by its waiter each is another, so that what is
//	                          removed when a turn ends is never what was just added for the next of the session. Written in
//	                          the trip of BeginTurn, so it may name turns that did not begin: the session says what is live,
//	                          and by which waiter.
//	nodes             zset    node id → its last heartbeat, in milliseconds by the server's clock. A node that has left, or
//	                          that is dead and has left no live turn behind, is not in it (nodes.go)
//	inbox:<node>      channel what the node is poked with: words, parted by spaces. <sid>: the session has changed; <sid>+<node>: that
//	                          node watches it from now on (inbox.go); <sid>!<waiter>: that waiter is to try again, who is told
//	                          also by the script's answer, where it is of the same node (queue.go)
const (
	nodesKey     = "nodes"
	readyKey     = "ready"
	ticketKeyKey = "ticket-key"
)

// tagOf returns the hash tag of an account in a mode. The account's name is escaped, so that no name can reach into
// the keys of another.
func tagOf(account, mode string) string {
	letter := "l"
	if mode == auth.Test {
		letter = "t"
	}
	return "{a:" + url.QueryEscape(account) + ":" + letter + "}"
}

func ownerTag(o auth.Owner) string { return tagOf(o.Account, o.Mode) }

func accountKey(tag string) string       { return tag + ":account" }
func keyOrderKey(tag string) string      { return tag + ":keys" }
func keyKey(tag, keyID string) string    { return tag + ":key:" + keyID }
func requestsKey(tag string) string      { return tag + ":requests" }
func tokensKey(tag string) string        { return tag + ":tokens" }
func dayKey(tag string) string           { return tag + ":day" }
func ticketUseKey(tag, id string) string { return tag + ":ticket:" + id }
func pointerKey(hash auth.Hash) string   { return "k:" + hashText(hash) }

func sessionsKey(tag string) string           { return tag + ":i" }
func expiryKey(tag string) string             { return tag + ":x" }
func userSessionsKey(tag, user string) string { return tag + ":u:" + user }
func sessionKey(tag, id string) string        { return tag + ":s:" + id }
func liveKey(node string) string              { return "n:" + node + ":live" }

// liveMember is what stands in the set of a node's live turns.
func liveMember(tag, sessionID, waiter string) string { return tag + " " + sessionID + " " + waiter }

func inboxChannel(node string) string { return "inbox:" + node }

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

// journalKey is the name of a live reply's journal. The turn's fence is in it, so that a node that only slept writes where nobody
// reads.
func journalKey(tag, sessionID string, fence int64) string {
	return tag + ":j:" + sessionID + ":" + strconv.FormatInt(fence, 10)
}
