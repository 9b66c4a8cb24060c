// Package browsertest starts one headless Chromium for all tests of a package. Only tests import it.
//
// Starting Chromium takes longer than most tests. So a test binary starts Chromium once, on first use. Each test opens its tab
// with chromedp.WithNewBrowserContext. A browser context has its own cookies, storage and window, so tests may run in parallel.
//
// TestMain calls [Run], which stops Chromium after the tests. If a panic or a signal ends the test binary first, the kernel kills
// Chromium, because chromedp starts Chromium with PR_SET_PDEATHSIG.
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

// Timeout limits one step in a browser. A step takes milliseconds, or seconds on a single core that other programs keep busy. A
// step that takes three minutes hangs for certain.
const Timeout = 3 * time.Minute

// Width and Height are the initial size of a tab in pixels.
const Width, Height = 1000, 700

// shared is the Chromium of this test binary. It is the only global of the package, because TestMain must stop Chromium and
// shares no other value with the tests.
var shared struct {
	mu      sync.Mutex
	ctx     context.Context      // guarded by mu; nil before the first use
	closing []context.CancelFunc // guarded by mu; functions that stop Chromium
}

// Run runs the tests of m, stops Chromium if it was started, and returns the exit code. If a TestMain uses
// goleak.VerifyTestMain, it must pass goleak a value whose Run method calls this function. So goleak looks for leaks after
// Chromium has stopped.
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

// Chromium returns the context of the shared browser, which is the parent of the context of each tab. It starts the browser on
// first use. With -short it skips the test. If Chromium is not installed, it also skips the test, or fails it if CI=true.
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
	// chromedp reports events of closed tabs as errors. Such an error does not mean that a test failed, so it is not logged.
	ctx, endBrowser := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	if err := chromedp.Do(ctx); err != nil {
		endBrowser()
		endProcess()
		t.Fatalf("starting %s: %v", path, err)
	}
	shared.ctx, shared.closing = ctx, []context.CancelFunc{endBrowser, endProcess}
	return ctx
}

// find returns the path of Chromium. If there is none, it skips the test, or fails it if CI=true. It prefers the headless shell,
// which draws no windows: the tests of the page then take 28 % less CPU time.
func find(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil || errors.Is(err, exec.ErrDot) {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("Chromium is not installed; with CI=true no test may be skipped: apt-get install chromium-headless-shell")
	}
	t.Skip("Chromium is not installed: apt-get install chromium-headless-shell")
	return ""
}

// Complaint describes the problem that an event of a tab reports: output on the console, an exception, a violation of the content
// security policy, or a failed request. It returns "" if the event reports no problem.
func Complaint(event any) string {
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level != "verbose" && e.Entry.Level != "info" {
			return fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		return fmt.Sprintf("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled: // the page writes to the console only after an error
		text := fmt.Sprintf("console.%s:", e.Type)
		for _, argument := range e.Args {
			text += fmt.Sprintf(" %s %s", argument.Value, argument.Description)
		}
		return text
	}
	return ""
}

// Look sets the size of a tab in pixels and its preferred colour scheme, "light" or "dark".
func Look(ctx context.Context, width, height int64, scheme string) error {
	return chromedp.Do(ctx, chromedp.EmulateViewport(width, height), func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return chromedp.Void{}, err
	})
}

// Focus makes a tab behave as if it had the focus at all times. Otherwise the tabs of parallel tests would take the focus from
// each other.
func Focus(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
	_, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return chromedp.Void{}, err
}

// Metrics returns Chromium's performance metrics of a tab by their names. Durations are CPU times of the tab's main thread, in
// seconds, so that the load of the machine does not change them.
func Metrics(ctx context.Context) (map[string]float64, error) {
	result, err := chromedp.Run(ctx, func(ctx context.Context, _ *chromedp.Target) (performance.GetMetricsResult, error) {
		if _, err := chromedp.Call(ctx, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}); err != nil {
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
