package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"parley/conversation/service"
	"parley/conversation/tokens"
	"parley/server"
)

// These constants limit the HTTP server. None of them limits the time of a response, because a streamed reply may take any time.
// Package transport cuts a response that makes no progress.
const (
	// A client sends its headers in one packet or a few. 10 s is enough on a slow mobile network, and frees the connections of
	// clients that send their headers very slowly.
	headerTimeout = 10 * time.Second
	// Most load balancers keep an idle connection for 60 s. With a longer timeout here, the load balancer closes the connection
	// first, and never sends a request on a connection that the server is closing.
	idleTimeout = 2 * time.Minute
	// Browsers send about 4 KiB of headers. Go's default is 1 MiB.
	maxHeaderBytes = 64 << 10
	// After the drain timeout, every reply has ended. The server must still write the terminal frames and the pending responses.
	// These take a few kilobytes, so 2 s is enough for any client that reads.
	flushTimeout = 2 * time.Second
	// drainMargin is the longest time between the drain timeout and the end of the process, even if the store does not respond. A
	// store has 2 s for the endings of replies, and each of its calls takes 2 s at most. Clients have flushTimeout twice.
	drainMargin = 10 * time.Second
)

// warmed builds the vocabulary of the counter in the background when the first API request arrives. So an idle process does not
// have the vocabulary, and a client that creates a session before it sends a message does not wait for it.
func warmed(handler http.Handler, counter *tokens.Counter) http.Handler {
	warm := sync.OnceFunc(func() { go counter.Warm() })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			warm()
		}
		handler.ServeHTTP(w, r)
	})
}

// serve serves requests until ctx is done, then drains.
func (c *serve) serve(ctx context.Context, stop context.CancelFunc, listener net.Listener, handler *server.Server, service *service.Service,
	counter *tokens.Counter, log *slog.Logger,
) error {
	web := &http.Server{
		Handler:           warmed(handler, counter),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	handler.Connections.Configure(web)
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(handler.Connections.Listener(listener)) }()
	select {
	case err := <-failed:
		limit, cancel := context.WithTimeout(ctx, time.Duration(c.DrainTimeout))
		defer cancel()
		service.Drain(limit)
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
		stop()
		return c.drain(web, handler, service, failed, log)
	}
}

// drain ends the service and the server (see the package comment). failed gets the result of web.Serve.
func (c *serve) drain(web *http.Server, handler *server.Server, service *service.Service, failed <-chan error, log *slog.Logger) error {
	log.Info("draining: waiting for live replies to end; a second signal stops at once", "live", service.LiveReplies(), "timeout", time.Duration(c.DrainTimeout).String())
	time.AfterFunc(time.Duration(c.DrainTimeout)+drainMargin, func() { // also bounds closing the store, which comes last
		log.Error("stopped before everything was stored, because the store or the model does not respond", "live", service.LiveReplies())
		os.Exit(1)
	})
	handler.BeginDrain()
	limit, cancel := context.WithTimeout(context.Background(), time.Duration(c.DrainTimeout))
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		service.Drain(limit)
	}()
	// Sockets stay open flushTimeout longer than replies, so that viewers receive the terminal frames.
	sockets, cancelSockets := context.WithTimeout(context.Background(), time.Duration(c.DrainTimeout)+flushTimeout)
	defer cancelSockets()
	handler.DrainSockets(sockets)
	<-drained
	// The replies of pending requests have ended by now. The server must still write their responses.
	last, cancelLast := context.WithTimeout(context.Background(), flushTimeout)
	defer cancelLast()
	if err := web.Shutdown(last); err != nil {
		_ = web.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	handler.Close()
	log.Info("stopped")
	return nil
}
