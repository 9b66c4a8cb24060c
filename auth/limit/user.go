package limit

// User holds the counts of one user of an owner. A store keeps them only if the tier limits a user to less than the account.
// The zero value is empty. A User is not safe for concurrent use.
type User struct {
	Requests Window
	Tokens   Window
}

// UserUse holds the numbers of requests and tokens that count for a user in the last minute.
type UserUse struct{ Requests, Tokens int }

// Use returns the numbers of requests and tokens in the windows.
func (u *User) Use(now Second) UserUse { return UserUse{u.Requests.Used(now), u.Tokens.Used(now)} }

// Idle reports whether both windows are empty.
func (u *User) Idle(now Second) bool { return u.Use(now) == UserUse{} }

// UserRequests returns the limit of requests a minute for one user. It returns 0 if the tier has no such limit, or if the
// limit is not lower than the account's. The account's limit then suffices.
func (l *TierLimits) UserRequests() int { return lower(l.UserRequestsPerMinute, l.RequestsPerMinute) }

// UserTokens returns the limit of tokens a minute for one user. It returns 0 in the same cases as UserRequests.
func (l *TierLimits) UserTokens() int { return lower(l.UserTokensPerMinute, l.TokensPerMinute) }

// LimitsUsers reports whether the tier limits a user to less than the account.
func (l *TierLimits) LimitsUsers() bool { return l.UserRequests() > 0 || l.UserTokens() > 0 }

func lower(user, account int) int {
	if user < account {
		return user
	}
	return 0
}

// userLimit returns the limit of requests a minute that applies to r.User; 0 for none.
func (r *Request) userLimit() int {
	if r.User == nil {
		return 0
	}
	return r.Limits.UserRequests()
}

// TurnTokens are the tokens that one turn has reserved. Settle only one copy of them: see [Window.Settle].
type TurnTokens struct {
	Owner Reservation
	User  Reservation // zero if the tier does not limit the tokens of a user
}

// ReserveTokens reserves the tokens of a turn in the window of the owner. If the tier limits the tokens of a user, it also
// reserves them in the window of u. If the tokens do not fit one of these windows, ReserveTokens reserves nothing, and refused
// is the state of that window's limit. If the tokens were reserved, refused is zero.
func (c *Counters) ReserveTokens(now Second, limits TierLimits, u *User, tokens int) (r TurnTokens, refused Status) {
	if most := limits.UserTokens(); most > 0 && u != nil {
		var ok bool
		if r.User, ok = u.Tokens.Reserve(now, tokens, most); !ok {
			return r, u.Tokens.status(now, ByUserTokens, capped(tokens, most), most)
		}
	}
	most, ok := limits.TokensPerMinute, false
	if r.Owner, ok = c.Tokens.Reserve(now, tokens, most); !ok {
		if r.User.Tokens > 0 {
			u.Tokens.Release(now, &r.User)
		}
		return TurnTokens{}, c.Tokens.status(now, ByTokens, capped(tokens, most), most)
	}
	return r, Status{}
}

// SettleTokens replaces the tokens that a turn has reserved with the tokens that it used: see [Window.Settle]. u holds the
// counts of the turn's user. u may be nil if the turn has reserved no tokens of the user.
func (c *Counters) SettleTokens(now Second, u *User, r *TurnTokens, used int) {
	c.Tokens.Settle(now, &r.Owner, used)
	if r.User.Tokens > 0 {
		u.Tokens.Settle(now, &r.User, used)
	}
}
