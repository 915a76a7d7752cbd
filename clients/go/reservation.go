package throttle

import (
	"context"
	"time"
)

// Reservation is an admission of one reservation, made by [Limiter.Reserve]. It renews itself until
// its end.
type Reservation struct {
	admission *Admission
}

// Reserve reserves the item's cost until the work's real cost is known. The rule is a [Fixed], a
// [Quota] or a [Policy] of them. An abandoned reservation ends after ttl; 0 is 30 seconds. Its
// errors are those of Admit.
func (l *Limiter) Reserve(
	ctx context.Context, item Item, ttl time.Duration, opts ...CallOption,
) (*Reservation, error) {
	if item.rule != nil && item.ttl == 0 {
		item.hasCost = false
		item = item.Reserve(item.cost, ttl)
	}
	admitted, err := l.Admit(ctx, []Item{item}, opts...)
	if err != nil {
		return nil, err
	}
	return &Reservation{admitted}, nil
}

// Decision returns the decision that allowed the reservation.
func (r *Reservation) Decision() Decision { return r.whole().Decision() }

// ID returns the id of the reservation.
func (r *Reservation) ID() string { return r.whole().ID() }

// Held returns true until the end, or until the reservation is lost, by the clock of this process.
func (r *Reservation) Held() bool { return r.whole().Held() }

// Lost returns a channel that is closed when the reservation is lost.
func (r *Reservation) Lost() <-chan struct{} { return r.whole().Lost() }

// whole returns the admission; nil of a nil reservation.
func (r *Reservation) whole() *Admission {
	if r == nil {
		return nil
	}
	return r.admission
}

// Commit charges the units that the work took, and ends the reservation; see [Admission.Finish].
// After the end it returns an [InvalidArgument].
func (r *Reservation) Commit(ctx context.Context, actual int64) error {
	if r == nil {
		return invalid("reservation", "one that Reserve returned")
	}
	err := r.admission.Settle(r.admission.parts[0].item.rule, actual)
	if err == nil {
		r.admission.Finish(ctx)
	}
	return err
}

// Cancel frees the reserved units. After the end, and of a nil reservation, it does nothing, so it
// can be deferred.
func (r *Reservation) Cancel(ctx context.Context) {
	if r != nil {
		r.admission.Finish(ctx)
	}
}
