package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// redisUsage holds the counts of a Redis server since its start, and its memory.
type redisUsage struct {
	cpu      time.Duration // user and system, of the whole process
	calls    map[string]int64
	inside   time.Duration // the time of EVALSHA and FCALL, with the commands in the scripts
	resident int64         // bytes
}

// redisTimeout bounds one reading of the figures: the connection and its commands.
const redisTimeout = 5 * time.Second

// readRedis asks a Redis server for its figures (INFO). address is host:port, or a redis:// URL with a password.
func readRedis(ctx context.Context, address string) (u redisUsage, err error) {
	host, login := address, ""
	if strings.Contains(address, "://") {
		parsed, err := url.Parse(address)
		if err != nil || parsed.Scheme != "redis" {
			return u, fmt.Errorf("--redis: invalid address: use HOST:PORT or redis://USER:PASSWORD@HOST:PORT")
		}
		host = parsed.Host
		if password, ok := parsed.User.Password(); ok {
			login = strings.TrimSpace("AUTH "+parsed.User.Username()) + " " + password + "\r\n"
		}
	}
	connection, err := (&net.Dialer{Timeout: redisTimeout}).DialContext(ctx, "tcp", host)
	if err != nil {
		return u, fmt.Errorf("--redis: %w", err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(redisTimeout))
	if _, err := io.WriteString(connection, login+"INFO all\r\n"); err != nil {
		return u, fmt.Errorf("--redis: %w", err)
	}
	reader := bufio.NewReader(connection)
	if login != "" {
		if line, err := reader.ReadString('\n'); err != nil || line[0] != '+' {
			return u, fmt.Errorf("--redis: %s refused the password", host)
		}
	}
	info, err := readBulk(reader)
	if err != nil {
		return u, fmt.Errorf("--redis: INFO of %s: %w", host, err)
	}
	return parseInfo(info), nil
}

// readBulk reads a bulk string of the protocol of Redis.
func readBulk(reader *bufio.Reader) (string, error) {
	line, err := reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "$")))
	if err != nil || n < 0 {
		return "", fmt.Errorf("unexpected response %.60q", line)
	}
	text := make([]byte, n)
	_, err = io.ReadFull(reader, text)
	return string(text), err
}

// parseInfo reads the response to INFO.
func parseInfo(info string) redisUsage {
	u := redisUsage{calls: make(map[string]int64)}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "used_cpu_user" || name == "used_cpu_sys":
			seconds, _ := strconv.ParseFloat(value, 64)
			u.cpu += time.Duration(seconds * float64(time.Second))
		case name == "used_memory_rss":
			u.resident, _ = strconv.ParseInt(value, 10, 64)
		case strings.HasPrefix(name, "cmdstat_"):
			var calls, microseconds int64
			_, _ = fmt.Sscanf(value, "calls=%d,usec=%d", &calls, &microseconds)
			command := strings.TrimPrefix(name, "cmdstat_")
			if u.calls[command] = calls; strings.HasPrefix(command, "evalsha") || strings.HasPrefix(command, "fcall") {
				u.inside += time.Duration(microseconds) * time.Microsecond
			}
		}
	}
	return u
}
