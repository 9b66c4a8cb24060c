package limit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Tier is the subscription of an account. The limits of the account depend on the tier.
type Tier string

// The tiers.
const (
	Free       Tier = "free"
	Pro        Tier = "pro"
	Enterprise Tier = "enterprise"
)

const tierNames = "free, pro, enterprise"

// ParseTier returns the tier with that name. The error for an unknown name lists the tiers.
func ParseTier(name string) (Tier, error) {
	if new(Tiers).limits(Tier(name)) == nil {
		return "", fmt.Errorf("unknown tier %q (%s)", name, tierNames)
	}
	return Tier(name), nil
}

// TierLimits are the rate limits and quotas of a tier.
type TierLimits struct {
	RequestsPerMinute int // 1 to MaxLimit
	TokensPerMinute   int // 1 to MaxLimit

	// UserRequestsPerMinute and UserTokensPerMinute limit each user of an account. 0 means the account's own limit, which is
	// the default. See UserRequests.
	UserRequestsPerMinute int
	UserTokensPerMinute   int

	// FramesPerMinute limits the frames that clients send on WebSockets with one API key, 1 to MaxLimit. 0 means no limit. No
	// tier has 0. A chat page sends 3 frames for a message (subscribe, send, cancel), and one for each 25 s without traffic:
	// less than 20 a minute. The smallest default is 1,200, so that a socket can subscribe to its 1,000 sessions again after a
	// reconnect. The tier pro allows more than 20 frames for each of its ActiveSessions, because the pages of all users of an
	// account may share one key. The tier enterprise allows fewer: 10,000 a second, half of what a core can serve.
	FramesPerMinute int

	// The usage report of a calendar month (UTC) contains these figures. Parley enforces TokensPerMonth only if EnforceMonth is
	// set. Otherwise, the operator decides what happens to a customer who exceeds a figure.
	RequestsPerMonth int64
	TokensPerMonth   int64

	// EnforceMonth makes a send fail with a quota error if the account has used up TokensPerMonth in the calendar month (UTC).
	EnforceMonth bool

	// The fields below are quotas: see the constants of type Quota. Each is at least 1. 0 means no limit. No tier has 0.

	ActiveSessions int64 // up to maxReported
	StoredBytes    int64 // up to maxReported
	Keys           int64 // up to maxKeys
	Sockets        int64 // up to maxSockets
}

// Quota returns how much a quota allows. It returns 0, which means no limit, for an unknown quota.
func (l *TierLimits) Quota(q Quota) int64 {
	switch q {
	case QuotaKeys:
		return l.Keys
	case QuotaActiveSessions:
		return l.ActiveSessions
	case QuotaStoredBytes:
		return l.StoredBytes
	case QuotaTokensPerMonth:
		return l.EnforcedTokens()
	case QuotaSockets:
		return l.Sockets
	}
	return 0
}

const (
	// maxReported is the maximum of most figures. It is below 2^53, so that JavaScript can represent them exactly.
	maxReported = 1_000_000_000_000_000
	// maxKeys is the maximum of Keys. The embedded store counts the active keys of the owner for each new key, which takes
	// 3 ms for 100,000 keys.
	maxKeys = 100_000
	// maxSockets is the maximum of Sockets: ten nodes, each with the default maximum of open WebSockets.
	maxSockets = 1_000_000
)

// EnforcedTokens returns the number of tokens that an account may use in a calendar month (UTC); 0 for no limit.
func (l *TierLimits) EnforcedTokens() int64 {
	if l.EnforceMonth {
		return l.TokensPerMonth
	}
	return 0
}

// Quota names a quota, in errors and in PARLEY_TIERS.
type Quota string

// The quotas that a store enforces.
const (
	QuotaKeys           Quota = "keys"           // active API keys of an owner
	QuotaActiveSessions Quota = "activeSessions" // sessions of an owner that have not expired
	// QuotaStoredBytes counts the bytes that an owner keeps: the content of messages (UTF-8), and the metadata (JSON) of
	// messages and sessions. A reply counts when it has ended, so the quota never cuts a reply off.
	QuotaStoredBytes Quota = "storedBytes"
	// QuotaSockets counts the open WebSockets of an owner on all nodes. By default, a server has at most 100,000 WebSockets, so
	// even an account of the tier enterprise leaves half of them to others.
	QuotaSockets        Quota = "sockets"
	QuotaTokensPerMonth Quota = "tokensPerMonth" // tokens of a calendar month (UTC), if EnforceMonth is set
)

// Tiers holds the limits of each tier.
type Tiers struct{ free, pro, enterprise TierLimits }

// DefaultTiers returns the default limits of each tier. StoredBytes allows 1 MB for each of the ActiveSessions: room for 500
// messages of 2 KB in every session.
func DefaultTiers() Tiers {
	return Tiers{
		free: TierLimits{
			RequestsPerMinute: 60, TokensPerMinute: 10_000, FramesPerMinute: 1_200,
			RequestsPerMonth: 10_000, TokensPerMonth: 1_000_000,
			ActiveSessions: 100, StoredBytes: 100_000_000, Keys: 1_000, Sockets: 50,
		},
		pro: TierLimits{
			RequestsPerMinute: 300, TokensPerMinute: 100_000, FramesPerMinute: 120_000,
			RequestsPerMonth: 500_000, TokensPerMonth: 50_000_000,
			ActiveSessions: 5_000, StoredBytes: 5_000_000_000, Keys: 1_000, Sockets: 20_000,
		},
		enterprise: TierLimits{
			RequestsPerMinute: 1_000, TokensPerMinute: 500_000, FramesPerMinute: 600_000,
			RequestsPerMonth: 5_000_000, TokensPerMonth: 1_000_000_000,
			ActiveSessions: 50_000, StoredBytes: 50_000_000_000, Keys: 1_000, Sockets: 50_000,
		},
	}
}

// Limits returns the limits of a tier. ok is false if the tier is unknown.
func (t *Tiers) Limits(tier Tier) (limits TierLimits, ok bool) {
	if f := t.limits(tier); f != nil {
		return *f, true
	}
	return TierLimits{}, false
}

func (t *Tiers) limits(tier Tier) *TierLimits {
	switch tier {
	case Free:
		return &t.free
	case Pro:
		return &t.pro
	case Enterprise:
		return &t.enterprise
	}
	return nil
}

// tierFields lists the fields of a tier in PARLEY_TIERS. read decodes the next value of d, and sets the field of l. An error
// contains name, for example "pro.keys".
var tierFields = []struct {
	name string
	read func(d *json.Decoder, name string, l *TierLimits) error
}{
	{"requestsPerMinute", number(MaxLimit, func(l *TierLimits) *int { return &l.RequestsPerMinute })},
	{"tokensPerMinute", number(MaxLimit, func(l *TierLimits) *int { return &l.TokensPerMinute })},
	{"userRequestsPerMinute", number(MaxLimit, func(l *TierLimits) *int { return &l.UserRequestsPerMinute })},
	{"userTokensPerMinute", number(MaxLimit, func(l *TierLimits) *int { return &l.UserTokensPerMinute })},
	{"framesPerMinute", number(MaxLimit, func(l *TierLimits) *int { return &l.FramesPerMinute })},
	{"requestsPerMonth", number(maxReported, func(l *TierLimits) *int64 { return &l.RequestsPerMonth })},
	{string(QuotaTokensPerMonth), number(maxReported, func(l *TierLimits) *int64 { return &l.TokensPerMonth })},
	{string(QuotaActiveSessions), number(maxReported, func(l *TierLimits) *int64 { return &l.ActiveSessions })},
	{string(QuotaStoredBytes), number(maxReported, func(l *TierLimits) *int64 { return &l.StoredBytes })},
	{string(QuotaKeys), number(maxKeys, func(l *TierLimits) *int64 { return &l.Keys })},
	{string(QuotaSockets), number(maxSockets, func(l *TierLimits) *int64 { return &l.Sockets })},
	{"enforceMonth", readEnforceMonth},
}

func readEnforceMonth(d *json.Decoder, name string, l *TierLimits) error {
	token, err := d.Token()
	if err != nil {
		return malformed(err)
	}
	var ok bool
	if l.EnforceMonth, ok = token.(bool); !ok {
		return fmt.Errorf("%s must be true or false", name)
	}
	return nil
}

// number returns a read function for tierFields. It accepts a whole number from 1 to most, and stores the number in field(l).
func number[N int | int64](most int64, field func(*TierLimits) *N) func(*json.Decoder, string, *TierLimits) error {
	return func(d *json.Decoder, name string, l *TierLimits) error {
		n, err := readNumber(d, name, most)
		*field(l) = N(n)
		return err
	}
}

// ParseTiers returns the default tiers with the changes in overrides, the value of PARLEY_TIERS. overrides is a JSON object
// such as {"pro":{"requestsPerMinute":600}}, with the fields in tierFields. enforceMonth is true or false; all other values
// are whole numbers of at least 1. An empty text changes nothing. An unknown or repeated name is an error: otherwise, nobody
// would notice a typing error. The error names the field.
func ParseTiers(overrides string) (Tiers, error) {
	tiers := DefaultTiers()
	if strings.TrimSpace(overrides) == "" {
		return tiers, nil
	}
	d := json.NewDecoder(strings.NewReader(overrides))
	d.UseNumber()
	err := eachField(d, "the value", func(name string) error {
		limits := tiers.limits(Tier(name))
		if limits == nil {
			return fmt.Errorf("unknown tier %q (%s)", name, tierNames)
		}
		return eachField(d, name, func(field string) error {
			return limits.override(d, name, field)
		})
	})
	if err != nil {
		return Tiers{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Tiers{}, errors.New("unexpected text after the JSON object")
	}
	return tiers, nil
}

// override decodes the next value of d, and sets the field of l that has the JSON name field.
func (l *TierLimits) override(d *json.Decoder, tier, field string) error {
	names := make([]string, len(tierFields))
	for i, f := range tierFields {
		if names[i] = f.name; f.name == field {
			return f.read(d, tier+"."+field, l)
		}
	}
	return fmt.Errorf("unknown field %q of %s (%s)", field, tier, strings.Join(names, ", "))
}

// readNumber decodes the next value of d, which must be a whole number from 1 to most. The error contains name.
func readNumber(d *json.Decoder, name string, most int64) (int64, error) {
	token, err := d.Token()
	if err != nil {
		return 0, malformed(err)
	}
	number, ok := token.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%s must be a number", name)
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s is %s: use a whole number from 1 to %d", name, number, most)
	}
	return n, nil
}

// eachField decodes the next value of d, which must be an object. For each field, it calls read with the name of the field.
// read must decode the value of the field. An error contains name.
func eachField(d *json.Decoder, name string, read func(field string) error) error {
	token, err := d.Token()
	if err != nil {
		return malformed(err)
	}
	if token != json.Delim('{') {
		return fmt.Errorf("%s must be an object", name)
	}
	var seen []string
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return malformed(err)
		}
		field, _ := token.(string) // the decoder allows only strings here
		if slices.Contains(seen, field) {
			return fmt.Errorf("%s contains %q twice", name, field)
		}
		seen = append(seen, field)
		if err := read(field); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return malformed(err)
	}
	return nil
}

func malformed(err error) error { return fmt.Errorf("malformed JSON: %w", err) }
