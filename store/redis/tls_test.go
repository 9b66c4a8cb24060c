package redis

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"parley/conversation"
	"parley/store/redis/redistest"
)

// TestOpen_PrivateAuthority_TrustedOnlyWithCAFile opens a store on servers with certificates that a private authority
// has signed. Each error must name the problem, and no error may contain the password.
func TestOpen_PrivateAuthority_TrustedOnlyWithCAFile(t *testing.T) {
	t.Parallel()
	authority, other := redistest.NewAuthority(t), redistest.NewAuthority(t)
	soon := time.Now().Add(time.Hour)
	for name, test := range map[string]struct {
		host  string
		until time.Time
		query string
		want  string // in the error; "" if the store opens
	}{
		"authority known":           {"127.0.0.1", soon, "?caFile=" + authority.File, ""},
		"authority unknown":         {"127.0.0.1", soon, "", "signed by unknown authority; set caFile=PATH in the store's URL"},
		"other authority":           {"127.0.0.1", soon, "?caFile=" + other.File, "; set caFile=PATH in the store's URL"},
		"certificate of other host": {"redis.example", soon, "?caFile=" + authority.File, "certificate is refused: x509: cannot validate certificate for 127.0.0.1"},
		"certificate has expired":   {"127.0.0.1", time.Now().Add(-time.Minute), "?caFile=" + authority.File, "certificate has expired"},
	} {
		t.Run(name, func(t *testing.T) {
			_, address := authority.Serve(t, test.host, test.until)
			s, err := Open(t.Context(), "rediss://:secret@"+address+test.query)
			if err == nil {
				must(t, s.Ping(t.Context()))
				must(t, s.Close())
			}
			if (err == nil) != (test.want == "") || !strings.Contains(fmt.Sprint(err), test.want) || strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if err != nil {
				wantError(t, "Open", err, conversation.ErrUnavailable)
			}
		})
	}
}

func TestOpen_UnusableCAFile_Refused(t *testing.T) {
	noPEM := filepath.Join(t.TempDir(), "no.pem")
	must(t, os.WriteFile(noPEM, []byte("secret"), 0o600))
	for url, want := range map[string]string{
		"redis://:secret@h?caFile=" + noPEM:           "caFile in the store's URL needs TLS",
		"rediss://:secret@h?caFile=/no/such/file.pem": "caFile in the store's URL: open /no/such/file.pem: no such file",
		"rediss://:secret@h?caFile=" + noPEM:          noPEM + " contains no certificate in PEM format",
		"rediss+cluster://:secret@h?caFile=":          "caFile in the store's URL: open : no such file",
	} {
		if _, err := Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v, want %q", url, err, want)
		}
	}
}
