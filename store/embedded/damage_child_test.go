package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"parley/auth"
	"parley/conversation"
)

var damageOwners = []conversation.Owner{somebody, {Account: "other", Mode: conversation.Test}}

// makeDamageTemplate writes a store with histories of several sizes, API keys, idempotency keys, and a live reply.
func makeDamageTemplate(t *testing.T, path string) {
	t.Helper()
	s, err := Open(path, Options{noSync: true, scrubInterval: 1})
	must(t, err)
	random := rand.New(rand.NewPCG(1, 1))
	keys := auth.NewKeys(s, auth.Options{})
	for n, owner := range damageOwners {
		for range 3 {
			_, _, err := keys.CreateFor(t.Context(), auth.Owner{Account: owner.Account, Mode: string(owner.Mode)},
				auth.NewKey{Name: "key", Scopes: []auth.Scope{auth.Admin}}, "")
			must(t, err)
		}
		for i := range 8 {
			config := conversation.DefaultContextConfig
			if i%2 == 0 {
				config.RetentionPolicy = conversation.Semantic
			}
			made, err := s.CreateSession(t.Context(), owner, conversation.NewSession{
				UserID: "user_0123456789abcdef", Context: config,
				Idempotency: &conversation.Idempotency{Key: fmt.Sprintf("create %d", i)},
			})
			must(t, err)
			for turn := range 2 + 4*i {
				text := textOf(strings.Repeat(made.Session.ID, 1+random.IntN(4)))
				if turn == 3 && i == 5 {
					text = strings.Repeat(text, 40)
				}
				begun, err := s.BeginTurn(t.Context(), owner, newTurn(made.Session.ID, text))
				must(t, err)
				if n == 0 && i == 7 && turn == 29 {
					journalText(t, s, begun.Key, 0, "the text of a live reply")
					break
				}
				_, err = s.EndTurn(t.Context(), begun.Key, completed("the reply to "+text), conversation.Timing{})
				must(t, err)
			}
		}
	}
	must(t, s.Close())
}

// damageFile changes the file at path, and returns a description of the change.
func damageFile(random *rand.Rand, path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	const size = 4096
	var used []int
	for id := range len(content) / size {
		if strings.Trim(string(content[id*size:(id+1)*size]), "\x00") != "" {
			used = append(used, id)
		}
	}
	at := used[random.IntN(len(used))]
	page := content[at*size : (at+1)*size]
	switch what := random.IntN(6); what {
	case 0:
		for i := range page {
			page[i] = byte(random.Uint32())
		}
		return fmt.Sprintf("page %d is random", at), writeAt(path, page, at*size)
	case 1:
		clear(page)
		return fmt.Sprintf("page %d is zero", at), writeAt(path, page, at*size)
	case 2:
		bit := random.IntN(len(page) * 8)
		page[bit/8] ^= 1 << (bit % 8)
		return fmt.Sprintf("page %d, bit %d flipped", at, bit), writeAt(path, page, at*size)
	case 3:
		for range 8 {
			bit := random.IntN(len(page) * 8)
			page[bit/8] ^= 1 << (bit % 8)
		}
		return fmt.Sprintf("page %d, 8 bits flipped", at), writeAt(path, page, at*size)
	case 4:
		n := random.Int64N(int64(used[len(used)-1]+1) * size)
		return fmt.Sprintf("truncated to %d of %d bytes", n, len(content)), os.Truncate(path, n)
	default:
		from := used[random.IntN(len(used))]
		return fmt.Sprintf("page %d is a copy of page %d", at, from), writeAt(path, content[from*size:(from+1)*size], at*size)
	}
}

func writeAt(path string, page []byte, offset int) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(page, int64(offset))
	return errors.Join(err, file.Close())
}

// damageChild damages copies of the store at template, one for each seed, and prints each outcome.
func damageChild(template string) int {
	target, first, most := "", 0, 0
	if _, err := fmt.Sscan(os.Getenv(damageSeedsEnv), &target, &first, &most); err != nil {
		panic(err)
	}
	debug.SetMaxStack(64 << 20)
	folder, err := os.MkdirTemp("", "damage")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "parley.db")
	copyStore(template, path)
	s, err := Open(path, Options{noSync: true})
	if err != nil {
		panic(err)
	}
	want := look(s, nil, new(worst))
	if err := s.Close(); err != nil {
		panic(err)
	}
	for seed := first; seed < first+most; seed++ {
		copyStore(template, path)
		random := rand.New(rand.NewPCG(uint64(seed), uint64(len(target))))
		watch := watchChild()
		w := damageOnce(path, target, random, &want)
		watch.Stop()
		fmt.Printf("%s: %s\n", w.outcome, w.detail)
	}
	return 0
}

// watchChild ends the process if a damage makes it hang or take much memory.
func watchChild() *time.Timer {
	end := time.Now().Add(30 * time.Second)
	var timer *time.Timer
	timer = time.AfterFunc(time.Second, func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.Sys > 2<<30 || time.Now().After(end) {
			fmt.Fprintln(os.Stderr, "hung")
			os.Exit(3)
		}
		timer.Reset(time.Second)
	})
	return timer
}

func copyStore(from, to string) {
	for _, suffix := range []string{"", "-journal"} {
		content, err := os.ReadFile(from + suffix)
		if err == nil {
			_ = os.Remove(to + suffix)
			err = os.WriteFile(to+suffix, content, 0o600)
		}
		if err != nil {
			panic(err)
		}
	}
}

// damageOnce damages the store at path and uses it. The target "stopped" means that the damage comes before the start
// of the store, "running" afterwards.
func damageOnce(path, target string, random *rand.Rand, want *seen) (w worst) {
	w = worst{outcome: "unharmed"}
	damage := func() {
		how, err := damageFile(random, path)
		if err != nil {
			panic(err)
		}
		fmt.Printf("begin %s\n", how)
	}
	if target == "stopped" {
		damage()
	}
	s, err := Open(path, Options{noSync: true, scrubInterval: 1})
	if err != nil {
		w.refused(path, err)
		return w
	}
	if target == "running" {
		damage()
	}
	w.protect(func() { look(s, want, &w) })
	w.protect(func() { use(s, want, &w) })
	w.protect(func() { stillThere(s, want, &w) })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	w.failed("Scrubbed", s.Scrubbed(ctx))
	_ = s.Close()
	if s, err = Open(path, Options{noSync: true, scrubInterval: 1}); err != nil {
		again := worst{outcome: "unharmed"}
		if again.refused(path, err); again.outcome == "refused" {
			w.outcome += ", next start refused"
			return w
		}
		return again
	}
	w.protect(func() { stillThere(s, want, &w) })
	_ = s.Close()
	return w
}

// refused notes that Open has refused a file.
func (w *worst) refused(path string, err error) {
	outcome := "refused"
	if !strings.Contains(err.Error(), path) {
		outcome = "no reason given"
	}
	w.note(outcome, err.Error())
}
