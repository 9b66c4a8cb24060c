// Package guide writes tables into the guides of web/guides, with a sentence about the machine. Commands chaos and bench use it.
package guide

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// WriteTable replaces the text between the lines <!-- NAME --> and <!-- /NAME --> in a file.
func WriteTable(path, name, text string) error {
	file, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	first, last := "<!-- "+name+" -->\n", "<!-- /"+name+" -->\n"
	before, rest, ok := strings.Cut(string(file), first)
	_, after, closed := strings.Cut(rest, last)
	if !ok || !closed {
		return fmt.Errorf("%s has no lines %s and %s", path, strings.TrimSpace(first), strings.TrimSpace(last))
	}
	return os.WriteFile(path, []byte(before+first+"\n"+text+"\n"+last+after), 0o644)
}

// About returns the sentence above a table: the date, what, the commit and the machine. It must be called in the checkout.
func About(begun time.Time, what string) string {
	cores := "1 core"
	if n := runtime.NumCPU(); n > 1 {
		cores = fmt.Sprintf("%d cores", n)
	}
	return fmt.Sprintf("%s, %s, commit `%s`, %s (%s), %s, Redis %s.",
		begun.UTC().Format(time.DateOnly), what, Commit(), cores, processor(), runtime.Version(), redisVersion())
}

// Commit returns the commit of the checkout, with -dirty if files differ; "unknown" outside a checkout.
func Commit() string { return output("git", "describe", "--always", "--dirty") }

// processor returns the name of the processor.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, after, ok := strings.Cut(string(text), "model name\t: ")
	if !ok {
		return runtime.GOARCH
	}
	name, _, _ := strings.Cut(after, "\n")
	return strings.Join(strings.Fields(name), " ")
}

// redisVersion returns the version of the installed Redis; "" if there is none.
func redisVersion() string {
	_, after, _ := strings.Cut(output("redis-server", "--version"), "v=")
	version, _, _ := strings.Cut(after, " ")
	return version
}

// output returns the output of a command; "unknown" if it fails.
func output(name string, args ...string) string {
	text, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}
