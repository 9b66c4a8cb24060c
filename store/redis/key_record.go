package redis

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"parley/auth"
	"parley/auth/limit"
)

// keyRecord is a key as it is stored in its account's slot. That record is the truth about the key. A pointer outside of the slot
// says who presents a secret, so that a key that this node has not seen costs one round trip (set_pointer.go). A change is stored
// in the slot first. If a node dies before it updates the pointers, they name a secret that no longer works, and every admission
// checks the record.
type keyRecord struct {
	Key     auth.Key
	Tier    limit.Tier // of the account
	version int64      // counts the changes of what pointers say
}

// readKeys reads a list of keys.
func readKeys(owner auth.Owner, reply any) ([]keyRecord, error) {
	var records []keyRecord
	for _, fields := range list(reply) {
		r, err := readKey(owner, fields)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// readKey reads a key from its fields (lua/list_keys.lua).
func readKey(owner auth.Owner, reply any) (r keyRecord, err error) {
	flat := list(reply)
	is := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		is[text(flat[i])] = text(flat[i+1])
	}
	r.version, err = strconv.ParseInt(is["version"], 10, 64)
	if err != nil || is["id"] == "" {
		return r, errRecord
	}
	r.Tier = limit.Tier(is["tier"])
	r.Key = auth.Key{
		Owner: owner, ID: is["id"], Name: is["name"], Prefix: is["prefix"], CreatedAt: instant(is["created"]),
		ExpiresAt: instant(is["expires"]), LastUsedAt: instant(is["used"]), Revoked: is["revoked"] != "",
	}
	if json.Unmarshal([]byte(is["scopes"]), &r.Key.Scopes) != nil {
		return r, errRecord
	}
	for _, f := range []struct{ hash, since, until string }{{"secret", "since", ""}, {"previous", "previousSince", "until"}} {
		if is[f.hash] == "" {
			continue
		}
		hash, err := readHash(is[f.hash])
		if err != nil {
			return r, err
		}
		r.Key.Secrets = append(r.Key.Secrets, auth.Secret{Hash: hash, Since: instant(is[f.since]), Until: instant(is[f.until])})
	}
	return r, nil
}

// errRecord is the error of stored data that Parley did not write.
var errRecord = errors.New("redis: a record is malformed")

// hashText returns a secret's hash as it is written in keys and records.
func hashText(hash auth.Hash) string {
	text, _ := hash.MarshalText() // never fails
	return string(text)
}

func readHash(text string) (hash auth.Hash, err error) {
	if hash.UnmarshalText([]byte(text)) != nil {
		err = errRecord
	}
	return hash, err
}

// millis returns a time as scripts take it: in milliseconds, "" for none.
func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// instant reads what millis wrote; anything else is the zero time.
func instant(text string) time.Time {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
