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
// Outside of tags:
//
//	k:<hash>          string  who presents the secret of that hash: "<version> <JSON of found>". Expires when the secret
//	                          does. It only spares a trip: whether the secret works is decided in the slot of its key.
//	ticket-key        string  what seals the tickets of all nodes
//	ready             string  written by Ping, expires at once
//	nodes             zset    node id → its last heartbeat, in milliseconds by the server's clock. A node that has left, or
//	                          that is dead and has left no live turn behind, is not in it (nodes.go)
//	n:<node>:live     set     "TAG <sessionId>" and perhaps more words, of each live turn of the node; vanishes with the last
//
// Channels:
//
//	inbox:<node>              what the node is poked with: words, parted by spaces. "<sessionId>": the session may have
//	                          changed; "<sessionId>+<node>": that node watches it from now on (inbox.go)
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

func liveSetKey(node string) string   { return "n:" + node + ":live" }
func inboxChannel(node string) string { return "inbox:" + node }

func conversationTag(o conversation.Owner) string { return tagOf(o.Account, string(o.Mode)) }

func sessionKey(tag, sessionID string) string { return tag + ":s:" + sessionID }
func viewersKey(tag, sessionID string) string { return tag + ":v:" + sessionID }

// journalKey is where the text of a live reply is. A turn's fence is in it, so that a node that only slept writes where
// nobody reads.
func journalKey(tag, sessionID string, fence int64) string {
	return tag + ":j:" + sessionID + ":" + strconv.FormatInt(fence, 10)
}

// ownerOfTag is the inverse of conversationTag.
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
	return owner, err == nil && conversationTag(owner) == tag
}
