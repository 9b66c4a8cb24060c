package redis

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"parley/store/redis/redistest"
	"parley/store/storetest"
)

func TestWriteFixture(t *testing.T) {
	if os.Getenv("PARLEY_WRITE_FIXTURE") == "" {
		t.Skip("PARLEY_WRITE_FIXTURE is not set")
	}
	server := redistest.Single(t)
	s := open(t, server.URL)
	storetest.Populate(t, backend(s))
	must(t, os.WriteFile("testdata/version1.json", storetest.Contents(t, backend(s)), 0o644))
	var out strings.Builder
	line := func(words ...string) {
		for i, w := range words {
			if i > 0 {
				out.WriteByte(' ')
			}
			out.WriteString(strconv.Quote(w))
		}
		out.WriteByte('\n')
	}
	out.WriteString(time.Now().UTC().Format(time.RFC3339) + "\n")
	ctx := t.Context()
	keys, err := s.db.Keys(ctx, "*").Result()
	must(t, err)
	slices.Sort(keys)
	for _, key := range keys {
		switch kind := s.db.Type(ctx, key).Val(); kind {
		case "hash":
			words := []string{"HSET", key}
			fields := s.db.HGetAll(ctx, key).Val()
			var names []string
			for f := range fields {
				names = append(names, f)
			}
			slices.Sort(names)
			for _, f := range names {
				words = append(words, f, fields[f])
			}
			line(words...)
		case "string":
			line("SET", key, s.db.Get(ctx, key).Val())
		case "list":
			line(append([]string{"RPUSH", key}, s.db.LRange(ctx, key, 0, -1).Val()...)...)
		case "set":
			line(append([]string{"SADD", key}, s.db.SMembers(ctx, key).Val()...)...)
		case "zset":
			for _, z := range s.db.ZRangeWithScores(ctx, key, 0, -1).Val() {
				line("ZADD", key, strconv.FormatFloat(z.Score, 'f', -1, 64), z.Member.(string))
			}
		default:
			t.Fatal(key, kind)
		}
		if at := s.db.PExpireTime(ctx, key).Val(); at > 0 {
			line("PEXPIREAT", key, strconv.FormatInt(at.Milliseconds(), 10))
		}
	}
	must(t, os.WriteFile("testdata/version1.txt", []byte(out.String()), 0o644))
}
