// Package browsertest gives the tests of a package one headless Chromium. Only tests import it.
//
// Starting Chromium costs more than most of the tests that use it, so a test binary starts it once, at its first use. Tests
// are kept apart by browser contexts: each opens its tab with chromedp.WithNewBrowserContext, which has cookies, storage and a
// window of its own, so tests may run in parallel.
//
// TestMain calls [Run], which ends Chromium after the tests. Where the test binary dies without that, by a panic or a signal,
// the kernel kills Chromium: chromedp starts it with PR_SET_PDEATHSIG from a thread that lives as long as Chromium does.
package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Timeout is for one step in a browser. Steps take milliseconds; three minutes is reached only by one that hangs, even on one
// core that other programs keep busy.
const Timeout = 3 * time.Minute

// The size of a tab, in pixels, before a test changes it.
const Width, Height = 1000, 700

// shared is the Chromium of this test binary. It is the one global of the package: TestMain, which ends it, and the tests,
// which use it, have nothing else in common.
var shared struct {
	mu      sync.Mutex
	ctx     context.Context // guarded by mu; nil before the first use
	closing []context.CancelFunc
}

// Run runs the tests of m, ends Chromium if it was started, and returns the exit code. goleak.VerifyTestMain takes a value with
// this method, so that it looks for leaks after the browser has ended.
func Run(m *testing.M) (code int) {
	defer func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		for _, closing := range shared.closing {
			closing()
		}
		shared.ctx, shared.closing = nil, nil
	}()
	return m.Run()
}

// Chromium returns the context of the shared browser, the parent for the context of a tab. It skips the test under
// -short, and on a machine without Chromium; but with CI=true no test may be left out, and a missing Chromium fails it.
func Chromium(t testing.TB) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no browser is started")
	}
	path := find(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.ctx != nil {
		return shared.ctx
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.WindowSize(Width, Height))
	for _, flag := range []string{"disable-gpu", "disable-quic", "disable-component-update"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocator, endProcess := chromedp.NewExecAllocator(context.Background(), options...)
	// Errorf: chromedp reports events of pages that have gone meanwhile. They are no failures.
	ctx, endBrowser := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	if err := chromedp.Do(ctx); err != nil {
		endBrowser()
		endProcess()
		t.Fatalf("starting %s: %v", path, err)
	}
	shared.ctx, shared.closing = ctx, []context.CancelFunc{endBrowser, endProcess}
	return ctx
}

// find returns the path of Chromium.
func find(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil || errors.Is(err, exec.ErrDot) {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("chromium is not installed, and CI=true forbids leaving tests out: apt-get install chromium")
	}
	t.Skip("LEFT OUT: chromium is not installed (apt-get install chromium)")
	return ""
}

// Complaint returns what an event of a tab says is wrong with its page: an error or warning on the console, an exception, a
// violation of the content security policy, a failed request. It is "" where nothing is wrong.
func Complaint(event any) string {
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level != "verbose" && e.Entry.Level != "info" {
			return fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		return fmt.Sprintf("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled: // a page that works writes nothing
		text := fmt.Sprintf("console.%s:", e.Type)
		for _, argument := range e.Args {
			text += fmt.Sprintf(" %s %s", argument.Value, argument.Description)
		}
		return text
	}
	return ""
}

// Look sets the size of a tab and the colours that its user prefers, "light" or "dark".
func Look(ctx context.Context, width, height int64, scheme string) error {
	return chromedp.Do(ctx, chromedp.EmulateViewport(width, height), func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return chromedp.Void{}, err
	})
}

// Focus has a tab act as the one that its user looks at, whatever other windows of the browser do: the tabs of parallel tests
// would take the focus from each other.
func Focus(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
	_, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return chromedp.Void{}, err
}

// Metrics returns what Chromium has counted for a tab since it was opened; times are in seconds.
func Metrics(ctx context.Context) (map[string]float64, error) {
	result, err := chromedp.Run(ctx, func(ctx context.Context, _ *chromedp.Target) (performance.GetMetricsResult, error) {
		if _, err := chromedp.Call(ctx, performance.Enable, performance.EnableParams{}); err != nil {
			return performance.GetMetricsResult{}, err
		}
		return chromedp.Call(ctx, performance.GetMetrics, cdp.Empty{})
	})
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for _, metric := range result.Metrics {
		values[metric.Name] = metric.Value
	}
	return values, nil
}
