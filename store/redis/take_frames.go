package redis

import (
	"context"
	"time"

	"parley/auth"
	"parley/auth/limit"
)

var takeFramesScript = newScript("take_frames", 0)

// TakeFrames implements auth.Store. After a lost reply, it does not send the script again. The frames of the lost lease stop
// counting after a minute.
func (s *Store) TakeFrames(ctx context.Context, owner auth.Owner, keyID string, take limit.FrameTake) (limit.FrameLease, error) {
	tag := ownerTag(owner)
	reply, err := s.run(ctx, takeFramesScript, tag, []string{framesKey(tag, keyID)},
		take.Limit, take.Want, int64(take.Back.Second), take.Back.Tokens)
	if err != nil {
		return limit.FrameLease{}, err
	}
	parts := list(reply)
	if len(parts) != 4 {
		return limit.FrameLease{}, takeFramesScript.malformed()
	}
	return limit.FrameLease{
		Taken: limit.Reservation{Second: limit.Second(integer(parts[0])), Tokens: int(integer(parts[1]))},
		Wait:  int(integer(parts[2])),
		Life:  time.Duration(integer(parts[3])) * time.Millisecond,
	}, nil
}
