package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"parley/conversation"
)

// unavailableErrors lists prefixes of errors. A server returns these errors if it cannot execute a command now.
var unavailableErrors = []string{
	"LOADING ", "READONLY ", "MASTERDOWN ", "CLUSTERDOWN ", "OOM ", "MISCONF ", "NOREPLICAS ", "TRYAGAIN ", "BUSY ",
	"MOVED ", "ASK ", "NOAUTH ", "WRONGPASS ", "ERR max number of clients",
}

// fault converts an error of the go-redis client. The result wraps conversation.ErrUnavailable if a later attempt may succeed.
// fault returns context.Canceled unchanged. It also returns a server's other errors unchanged: they are caused by a bug in Parley
// or by malformed data. No error contains an argument of the call.
func fault(err error) error {
	if err == nil {
		return nil
	}
	var network net.Error
	var redisError redis.Error
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.Canceled):
		return err // the caller cancelled
	case errors.As(err, &certificate):
		return unavailable(badCertificate(certificate.Err))
	case strings.HasPrefix(err.Error(), "redis: all sentinels"): // its text is dropped, because it quotes the Sentinels
		return unavailable(errors.New("redis: no Sentinel names the master"))
	case errors.As(err, &redisError):
		return replied(err)
	case errors.Is(err, redis.ErrPoolTimeout): // too many calls at once, or Redis does not respond
		return fmt.Errorf("%w: %w", conversation.ErrStoreBusy, err)
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrClosed):
		return unavailable(err)
	}
	// The client has other errors too, for example "cluster has no nodes".
	return unavailable(errors.New("redis: the server cannot be reached"))
}

// replied does the same as fault, for an error that a server has returned.
func replied(err error) error {
	if right := missingRight(err.Error()); right != "" {
		return unavailable(errors.New("redis: the user of the store's URL lacks a right: " + right))
	}
	for _, prefix := range unavailableErrors {
		if strings.HasPrefix(err.Error(), prefix) {
			return unavailable(errors.New("redis: the server replied " + strings.TrimSpace(prefix)))
		}
	}
	return err
}

// badCertificate returns an error with the reason why TLS refused the server's certificate, and with advice.
func badCertificate(why error) error {
	advice := ""
	var unknown x509.UnknownAuthorityError
	if errors.As(why, &unknown) {
		advice = "; set caFile=PATH in the store's URL to the certificate of the authority that signed it"
	}
	return errors.New("redis: the server's certificate is refused: " + why.Error() + advice)
}

// deniedCommand matches the name of the command in an error about a missing right.
var deniedCommand = regexp.MustCompile(`run the '([^']*)' command`)

// If text is the error of a server that refused a command because the user lacks a right, missingRight returns that
// right. It returns "" for other errors. A command in a script has other error texts than a command of a client. Redis
// 7.0 and later versions have different texts.
func missingRight(text string) string {
	ofScript, inScript := strings.CutPrefix(text, "ERR The user executing the script can't ")
	if !inScript && !strings.HasPrefix(text, "NOPERM ") && !strings.HasPrefix(text, "ERR ACL failure in script") {
		return ""
	}
	command := deniedCommand.FindStringSubmatch(text)
	switch {
	case command != nil:
		return "the command " + command[1] + " (+" + command[1] + ")"
	case strings.HasPrefix(ofScript, "run this command"):
		return "a command of a script; ACL LOG names it"
	case strings.Contains(text, "channel"):
		return "channels (&inbox:*)"
	}
	return "a key; ACL LOG names it"
}
