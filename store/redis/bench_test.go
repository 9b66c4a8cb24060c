package redis

import (
	"regexp"
	"strconv"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/store/redis/redistest"
)

// BenchmarkAdmission tells what an admission costs, in Redis' own CPU too.
func BenchmarkAdmission(b *testing.B) {
	for _, mode := range []string{auth.Live, auth.Test} {
		b.Run(mode, func(b *testing.B) {
			server := redistest.Single(b)
			s, err := Open(b.Context(), server.URL)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			key := aKey(auth.Owner{Account: "a", Mode: mode})
			if _, err := s.CreateKey(b.Context(), key, ""); err != nil {
				b.Fatal(err)
			}
			p := auth.Principal{Account: "a", Mode: mode, KeyID: key.ID, Secret: key.Secrets[0].Hash}
			server.Do("CONFIG", "RESETSTAT")
			b.ReportAllocs()
			for b.Loop() {
				a := &auth.Admission{Principal: p, Figures: limit.Figures{RequestsPerMinute: limit.MaxLimit, TokensPerMinute: 1}}
				if err := s.Admit(auth.WithAdmission(b.Context(), a)); err != nil && mode == auth.Live {
					b.Fatal(err)
				}
			}
			spent := regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=\d+,usec_per_call=([0-9.]+)`).FindStringSubmatch(server.Do("INFO", "commandstats"))
			if spent == nil {
				b.Fatal("Redis does not say what its commands cost")
			}
			perCall, _ := strconv.ParseFloat(spent[1], 64)
			b.ReportMetric(perCall, "redis-µs/op")
		})
	}
}
