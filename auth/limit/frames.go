package limit

import "time"

// A node does not ask the store about each frame that a client sends. It takes a lease of some frames from the window of the API
// key, which all nodes share, and then counts locally (FrameMeter).
//
// A lease ends with the second in which the store has counted it. So each frame is counted in the second in which it came, and
// the nodes together never admit more than the limit in any 60 seconds. The request for the next lease returns the unused
// frames of this lease. The first lease of a second is small, and each further lease is four times as large. So 1,000 frames in
// a second take 5 leases. If the limit is reached, the node asks again only when a frame fits.

const (
	// firstLease is the size of a key's first lease in a second. A page seldom sends more frames in a second. A larger lease
	// would keep frames from the other nodes until the next frame comes.
	firstLease = 4
	// leaseGrowth is the size of a lease divided by the size of the lease before, in the same second.
	leaseGrowth = 4
)

// FrameTake is a request to the store for a lease of frames.
type FrameTake struct {
	Limit int         // frames a minute of the API key
	Want  int         // number of frames, at least 1; the store grants fewer if no more fit
	Back  Reservation // the frames of the last lease that were not used
}

// FrameLease is the store's answer to a FrameTake.
type FrameLease struct {
	Taken Reservation   // the frames that were granted; none if Wait is not 0
	Wait  int           // number of seconds until a frame fits; 0 if frames were granted
	Life  time.Duration // the rest of the store's second, after which the lease ends
}

// Lease takes frames from the window of an API key. now is the store's time.
func (w *Window) Lease(now time.Time, take FrameTake) FrameLease {
	second := SecondOf(now)
	w.Release(second, &take.Back)
	wait := w.status(second, ByFrames, 1, take.Limit).Wait
	lease := FrameLease{Wait: wait, Life: now.Truncate(time.Second).Add(time.Second).Sub(now)}
	if wait == 0 {
		lease.Taken, _ = w.Reserve(second, min(take.Want, w.Remaining(second, take.Limit)), take.Limit)
	}
	return lease
}

// FrameMeter counts the frames of one API key on one node. The zero value has no lease. A FrameMeter is not safe for concurrent
// use. Its times are from the node's clock, which may differ from the store's.
type FrameMeter struct {
	lease   Reservation // the frames of the last lease that are left
	granted int         // size of the last lease
	ends    time.Time   // time at which the last lease ends
	refused time.Time   // no frame fits before this time
}

// Take counts a frame that came now. If the meter cannot decide alone, ok is false: the caller must pass the FrameTake of
// [FrameMeter.Next] to the store, and then call Granted. If the frame does not fit, wait is the number of seconds until it does.
func (m *FrameMeter) Take(now time.Time) (wait int, ok bool) {
	switch {
	case now.Before(m.refused):
		return int((m.refused.Sub(now) + time.Second - 1) / time.Second), true
	case m.lease.Tokens > 0 && now.Before(m.ends):
		m.lease.Tokens--
		return 0, true
	}
	return 0, false
}

// Next returns the FrameTake for a frame that came now.
func (m *FrameMeter) Next(now time.Time, limit int) FrameTake {
	want := firstLease
	if now.Before(m.ends) { // the lease of this second is used up
		want = max(want, leaseGrowth*m.granted)
	}
	return FrameTake{Limit: limit, Want: want, Back: m.lease}
}

// Alone returns a lease for a frame that came now while the store cannot be reached: a sixtieth of the limit for a second. So the
// node admits about the limit in a minute. In the second in which the store fails, the store may have granted a smaller lease
// before.
func (m *FrameMeter) Alone(now time.Time, limit int) FrameLease {
	share := max(1, limit/60)
	if now.Before(m.ends) && m.granted >= share { // the lease of this second is used up
		return FrameLease{Wait: 1}
	}
	return FrameLease{Taken: Reservation{Tokens: share}, Life: time.Second}
}

// Granted stores the lease that the store returned for a frame, and counts the frame. asked is the time just before the store was
// asked. Granted returns the number of seconds until the frame fits; 0 if it fits. The frame came before the lease, so it
// fits even if the lease has ended meanwhile.
func (m *FrameMeter) Granted(asked time.Time, lease FrameLease) (wait int) {
	m.lease, m.granted, m.ends = lease.Taken, lease.Taken.Tokens, asked.Add(lease.Life)
	if lease.Wait > 0 {
		m.refused = asked.Add(time.Duration(lease.Wait) * time.Second)
		return lease.Wait
	}
	m.lease.Tokens--
	return 0
}
