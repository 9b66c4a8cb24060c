package redis

import (
	"os"
	"strings"
	"testing"

	"parley/conversation"
	"parley/store/redis/redistest"
)

// userOfGuide creates a user on each server with the command in web/guides/security.md, and then applies changes to the
// user's rights. It returns the URL of a store with this user. Each user has its own name, so that tests can share a
// server.
func userOfGuide(t *testing.T, url string, servers []*redistest.Server, changes ...string) string {
	t.Helper()
	guide, err := os.ReadFile("../../web/guides/security.md")
	must(t, err)
	_, command, _ := strings.Cut(string(guide), "<!-- redis user -->\n```sh\nredis-cli ")
	command, _, ok := strings.Cut(command, "\n```")
	args := strings.Fields(strings.NewReplacer("'", "", "\\\n", "", "PASSWORD", "secret").Replace(command))
	if !ok || len(args) < 4 || strings.Join(args[:3], " ") != "ACL SETUSER parley" {
		t.Fatalf("the guide's command is %q", command)
	}
	args[2] += conversation.RandomText(8)
	for _, s := range servers {
		s.Do(append(args, changes...)...)
	}
	return strings.Replace(url, "://", "://"+args[2]+":secret@", 1)
}

// wantNothingDenied fails the test if a server has refused a command of the URL's user.
func wantNothingDenied(t *testing.T, servers []*redistest.Server, url string) {
	t.Helper()
	for _, s := range servers {
		log, err := open(t, s.URL).db.ACLLog(t.Context(), 128).Result()
		must(t, err)
		for _, entry := range log {
			if strings.Contains(url, "://"+entry.Username+":") {
				t.Errorf("Redis refused %s %s (%s)", entry.Reason, entry.Object, entry.Context)
			}
		}
	}
}

func TestOpen_RightMissing_NamedInError(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]string{
		"-info":         "", // the store works without this right
		"-eval":         "the command eval (+eval)",
		"-evalsha":      "the command evalsha (+evalsha)",
		"-subscribe":    "the command subscribe (+subscribe)",
		"resetchannels": "channels (&inbox:*)",
		"resetkeys":     "a key; ACL LOG names it",
		"-set":          "a command of a script; ACL LOG names it",
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			server := shared.Server(t)
			s, err := Open(t.Context(), userOfGuide(t, server.URL, []*redistest.Server{server}, change))
			if err == nil {
				if err = s.Ping(t.Context()); err == nil {
					err = s.Join(t.Context(), func(string) {})
				}
				s.Evicts(t.Context())
				must(t, s.Close())
			}
			switch {
			case want == "":
				must(t, err)
			case err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret"):
				t.Errorf("error %v, want %q", err, want)
			default:
				wantError(t, "the error", err, conversation.ErrUnavailable)
			}
		})
	}
}

// The errors are from Redis 7.0 and from later versions.
func TestMissingRight_ErrorOfEachVersion_RightNamed(t *testing.T) {
	for text, want := range map[string]string{
		"NOPERM this user has no permissions to run the 'cluster|slots' command":                                                 "the command cluster|slots (+cluster|slots)",
		"NOPERM User parley has no permissions to run the 'info' command":                                                        "the command info (+info)",
		"NOPERM this user has no permissions to access one of the channels used as arguments":                                    "channels (&inbox:*)",
		"NOPERM No permissions to access a channel":                                                                              "channels (&inbox:*)",
		"NOPERM No permissions to access a key":                                                                                  "a key; ACL LOG names it",
		"ERR The user executing the script can't publish to the channel mentioned in the command script: 72, on @user_script:2.": "channels (&inbox:*)",
		"ERR ACL failure in script: User parley has no permissions to run the 'set' command script: 72, on @user_script:2.":      "the command set (+set)",
		"ERR wrong number of arguments for 'set' command":                                                                        "",
		"NOAUTH Authentication required.":                                                                                        "",
	} {
		if got := missingRight(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
