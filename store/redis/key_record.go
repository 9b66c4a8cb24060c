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

// keyRecord is the record of an API key in the slot of its account. The record decides whether the key works. A pointer in
// another slot leads from the hash of a secret to the key (set_pointer.go).
//
// A change is stored in the record first, and then in the pointers. If a node dies in between, a pointer may stay for a secret
// that no longer works. Such a pointer is harmless, because every admission checks the record.
type keyRecord struct {
	Key     auth.Key
	Tier    limit.Tier // the account's tier when the key was created; only nodes of earlier versions use it
	version int64      // counts the changes of the key, except those of the time of last use
}

// readKey reads an API key from its fields (lua/list_keys.lua lists them).
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
		Owner: owner, ID: is["id"], Name: is["name"], Prefix: is["prefix"],
		CreatedAt: instant(is["created"]), CreatedBy: is["createdBy"],
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

// errRecord means that stored data does not have the format that Parley writes.
var errRecord = errors.New("redis: a record is malformed")

// hashText encodes a secret's hash for names of keys and for records.
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

// millis encodes a time for scripts: Unix time in milliseconds, "" for the zero time.
func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// instant is the inverse of millis. It returns the zero time for a text that is not a number.
func instant(text string) time.Time {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
