package limit

import (
	"strings"
	"testing"
)

func TestDefaultTiers_HavePublishedLimits(t *testing.T) {
	for tier, want := range map[Tier]TierLimits{
		Free: {
			RequestsPerMinute: 60, TokensPerMinute: 10_000, FramesPerMinute: 1_200,
			RequestsPerMonth: 10_000, TokensPerMonth: 1_000_000, ActiveSessions: 100,
			StoredBytes: 100_000_000, Keys: 1_000, Sockets: 50,
		},
		Pro: {
			RequestsPerMinute: 300, TokensPerMinute: 100_000, FramesPerMinute: 120_000,
			RequestsPerMonth: 500_000, TokensPerMonth: 50_000_000, ActiveSessions: 5_000,
			StoredBytes: 5_000_000_000, Keys: 1_000, Sockets: 20_000,
		},
		Enterprise: {
			RequestsPerMinute: 1_000, TokensPerMinute: 500_000, FramesPerMinute: 600_000,
			RequestsPerMonth: 5_000_000, TokensPerMonth: 1_000_000_000, ActiveSessions: 50_000,
			StoredBytes: 50_000_000_000, Keys: 1_000, Sockets: 50_000,
		},
	} {
		equal(t, "the limits of "+string(tier), limitsOf(tier), want)
		parsed, err := ParseTier(string(tier))
		equal(t, "the parsed tier", parsed, tier)
		equal(t, "the error of ParseTier", err, nil)
	}
	tiers := DefaultTiers()
	_, ok := tiers.Limits("gold")
	equal(t, "the tier gold exists", ok, false)
	for _, name := range []string{"gold", "", "Pro", "pro "} {
		if _, err := ParseTier(name); err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("the error for the tier %q is %v, want one with the name", name, err)
		}
	}
}

func TestParseTiers_Overrides_ReplaceDefaults(t *testing.T) {
	want := DefaultTiers()
	for _, none := range []string{"", " \n", "{}", ` {"pro":{}} `} {
		got, err := ParseTiers(none)
		equal(t, "the tiers without overrides", got, want)
		equal(t, "the error without overrides", err, nil)
	}
	got, err := ParseTiers(`{"enterprise":{"requestsPerMinute":2000,"tokensPerMinute":1000000000},
		"free":{"requestsPerMonth":1,"tokensPerMonth":1000000000000000,"activeSessions":3,
		"storedBytes":1000000000000000,"keys":100000,"sockets":1000000,"userRequestsPerMinute":20,"userTokensPerMinute":3000,"framesPerMinute":60,
		"enforceMonth":true}}`)
	want.enterprise.RequestsPerMinute, want.enterprise.TokensPerMinute = 2_000, 1_000_000_000
	want.free.RequestsPerMonth, want.free.TokensPerMonth, want.free.ActiveSessions = 1, 1_000_000_000_000_000, 3
	want.free.StoredBytes, want.free.Keys, want.free.Sockets = 1_000_000_000_000_000, 100_000, 1_000_000
	want.free.UserRequestsPerMinute, want.free.UserTokensPerMinute, want.free.FramesPerMinute = 20, 3_000, 60
	want.free.EnforceMonth = true
	equal(t, "the tiers", got, want)
	equal(t, "the error", err, nil)
}

func TestParseTiers_InvalidOverrides_Refused(t *testing.T) {
	for overrides, want := range map[string]string{
		`{"gold":{"requestsPerMinute":1}}`:                      `unknown tier "gold"`,
		`{"Pro":{"requestsPerMinute":1}}`:                       `unknown tier "Pro"`,
		`{"pro":{"requests":1}}`:                                `unknown field "requests" of pro (requestsPerMinute, tokensPerMinute, userRequestsPerMinute, userTokensPerMinute, framesPerMinute,`,
		`{"pro":{"RequestsPerMinute":1}}`:                       `unknown field "RequestsPerMinute" of pro`,
		`{"pro":{"requestsPerMinute":0}}`:                       `pro.requestsPerMinute is 0: use a whole number from 1 to 1000000000`,
		`{"pro":{"tokensPerMinute":-5}}`:                        `pro.tokensPerMinute is -5:`,
		`{"pro":{"tokensPerMinute":1.5}}`:                       `pro.tokensPerMinute is 1.5:`,
		`{"pro":{"tokensPerMinute":1e3}}`:                       `pro.tokensPerMinute is 1e3:`,
		`{"pro":{"tokensPerMinute":1000000001}}`:                `pro.tokensPerMinute is 1000000001:`,
		`{"pro":{"tokensPerMonth":1000000000000001}}`:           `pro.tokensPerMonth is 1000000000000001:`,
		`{"pro":{"activeSessions":99999999999999999999}}`:       `pro.activeSessions is 99999999999999999999:`,
		`{"pro":{"storedBytes":0}}`:                             `pro.storedBytes is 0: use a whole number from 1 to 1000000000000000`,
		`{"pro":{"keys":0}}`:                                    `pro.keys is 0: use a whole number from 1 to 100000`,
		`{"pro":{"keys":100001}}`:                               `pro.keys is 100001:`,
		`{"pro":{"framesPerMinute":0}}`:                         `pro.framesPerMinute is 0:`,
		`{"pro":{"enforceMonth":1}}`:                            `pro.enforceMonth must be true or false`,
		`{"pro":{"sockets":0}}`:                                 `pro.sockets is 0: use a whole number from 1 to 1000000`,
		`{"pro":{"sockets":1000001}}`:                           `pro.sockets is 1000001:`,
		`{"pro":{"requestsPerMonth":0}}`:                        `pro.requestsPerMonth is 0:`,
		`{"pro":{"requestsPerMinute":"1"}}`:                     `pro.requestsPerMinute must be a number`,
		`{"pro":{"requestsPerMinute":null}}`:                    `pro.requestsPerMinute must be a number`,
		`{"pro":{"requestsPerMinute":{}}}`:                      `pro.requestsPerMinute must be a number`,
		`{"pro":{"requestsPerMinute":1,"requestsPerMinute":2}}`: `pro contains "requestsPerMinute" twice`,
		`{"pro":{},"pro":{}}`:                                   `the value contains "pro" twice`,
		`{"pro":null}`:                                          `pro must be an object`,
		`{"pro":[]}`:                                            `pro must be an object`,
		`[]`:                                                    `the value must be an object`,
		`null`:                                                  `the value must be an object`,
		`{"pro":{}} {}`:                                         `unexpected text after the JSON object`,
		`{"pro":{}}}`:                                           `unexpected text after the JSON object`,
		`{"pro":{"requestsPerMinute":1}`:                        `malformed JSON`,
		`{"pro":{"requestsPerMinute":1,}}`:                      `malformed JSON`,
		`{"pro":{"requestsPerMinute"}}`:                         `malformed JSON`,
		`{"pro":{"requestsPerMinute":`:                          `malformed JSON`,
		`{"pro"`:                                                `malformed JSON`,
		`{pro:{}}`:                                              `malformed JSON`,
		`x`:                                                     `malformed JSON`,
	} {
		got, err := ParseTiers(overrides)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the error %v, want %s", overrides, err, want)
		}
		equal(t, "the tiers after an error", got, Tiers{})
	}
}
