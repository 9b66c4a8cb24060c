package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// clockVariable is an environment variable of a server with a patched clock. It has the path of a file with the number
// of seconds by which the clock is ahead.
const clockVariable = "PARLEY_CHAOS_CLOCK"

// A server with a patched clock differs in two files. In package time, Now adds an offset to the wall clock; the
// monotonic clock does not change, as when an operator sets the clock of a machine. In cmd/parley, an additional file
// reads the offset.
const (
	patchFrom = "sec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	patchTo   = "sec, nsec, mono := runtimeNow()\n\tsec += Ahead\n\tif mono == 0 {"
	patchVar  = "\n// Ahead is the number of seconds by which the wall clock is ahead.\nvar Ahead int64\n"
	patchRead = `package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

func init() {
	go func() {
		for ; ; time.Sleep(20 * time.Millisecond) {
			text, _ := os.ReadFile(os.Getenv("` + clockVariable + `"))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				time.Ahead = n
			}
		}
	}()
}
`
)

// clockBuild builds the server with a patched clock, once. The build compiles every package, because all depend on package time.
// Go's cache keeps the result.
type clockBuild struct {
	once   sync.Once
	binary string
	err    error
}

// get returns the path of the binary, in the folder of the binary plain.
func (c *clockBuild) get(plain string) (string, error) {
	c.once.Do(func() { c.binary, c.err = buildWithClock(filepath.Dir(plain)) })
	return c.binary, c.err
}

func buildWithClock(dir string) (string, error) {
	repository, err := module()
	if err != nil {
		return "", err
	}
	files, err := patchedTime()
	if err != nil {
		return "", err
	}
	files[filepath.Join(repository, "cmd/parley/chaos_clock.go")] = patchRead
	replace := map[string]string{}
	for target, text := range files {
		path := filepath.Join(dir, filepath.Base(target))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[target] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		return "", err
	}
	return build(dir, "parley-with-clock", "-overlay", path)
}

// patchedTime returns the patched file of package time, by its path.
func patchedTime() (map[string]string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src/time/time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return nil, err
	}
	if strings.Count(string(source), patchFrom) != 1 {
		return nil, fmt.Errorf("%s has another form than the patch of the clock expects", original)
	}
	return map[string]string{original: strings.Replace(string(source), patchFrom, patchTo, 1) + patchVar}, nil
}
