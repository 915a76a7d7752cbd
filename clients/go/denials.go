package throttle

import (
	"container/list"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// forgottenMax is the maximum number of keys of which it is known when they were forgotten.
const forgottenMax = 10_000

// denials are what the limiter remembers of the server's denials.
type denials struct {
	cache     *denialCache
	known     *knownDenials
	forgotten *forgotten
}

func newDenials(o *options) *denials {
	f := newForgotten()
	return &denials{
		cache: newDenialCache(o.denialCache, o.denialCacheMax, f), known: newKnownDenials(o, f),
		forgotten: f,
	}
}

// forget removes the denials of a key, also those on their way.
func (d *denials) forget(key string) {
	d.forgotten.add(key)
	d.cache.forget(key)
	d.known.forget(key)
}

// charge removes the cached denials of a key, whose times are not the server's any more. A known
// denial stays: a charge allows no call.
func (d *denials) charge(key string) {
	d.forgotten.add(key)
	d.cache.forget(key)
}

// forgotten knows the turns at which keys were last forgotten: a denial of a call that was sent
// before is not kept.
type forgotten struct {
	turn atomic.Uint64

	mu    sync.Mutex
	keys  map[string]*list.Element
	order *list.List
	// No denial is kept of a call that was sent before oldest.
	oldest uint64
}

type forgottenKey struct {
	key  string
	turn uint64
}

// callStart is the moment before a call was sent.
type callStart struct {
	at   time.Time
	turn uint64
}

func newForgotten() *forgotten {
	return &forgotten{keys: map[string]*list.Element{}, order: list.New()}
}

// isAfter returns true if a key was forgotten after a turn.
func (f *forgotten) isAfter(key string, turn uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if element := f.keys[key]; element != nil {
		return turn < element.Value.(*forgottenKey).turn
	}
	return turn < f.oldest
}

func (f *forgotten) add(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	turn := f.turn.Add(1)
	if old := f.keys[key]; old != nil {
		f.order.Remove(old)
	}
	f.keys[key] = f.order.PushBack(&forgottenKey{key, turn})
	if f.order.Len() > forgottenMax {
		oldest := f.order.Remove(f.order.Front()).(*forgottenKey)
		delete(f.keys, oldest.key)
		f.oldest = oldest.turn
	}
}

// denialCache keeps denials, which decide the same command again until they expire. When it is
// full, the oldest is dropped. A nil cache keeps nothing.
type denialCache struct {
	size    int
	longest time.Duration

	mu sync.Mutex
	// denials has the elements of order by the words of their calls.
	denials map[string]*list.Element
	order   *list.List
	// entries has the names of the denials of each key.
	entries   map[string]map[string]bool
	forgotten *forgotten
}

type denial struct {
	name     string
	decision Decision
	at       time.Time
	life     time.Duration
	keys     []string
}

func newDenialCache(size int, longest time.Duration, f *forgotten) *denialCache {
	if size == 0 {
		return nil
	}
	return &denialCache{
		size: size, longest: longest,
		denials: map[string]*list.Element{}, order: list.New(),
		entries: map[string]map[string]bool{}, forgotten: f,
	}
}

// nameOf returns the name of a call's denial. It has every word, such as the cost.
func (c *call) nameOf() string { return strings.Join(c.words, "\x00") }

// get returns the kept denial of a call as it is now.
func (c *denialCache) get(of *call) (Decision, bool) {
	if c == nil {
		return Decision{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.denials[of.nameOf()]
	if element == nil {
		return Decision{}, false
	}
	kept := element.Value.(*denial)
	passed := time.Since(kept.at).Truncate(time.Millisecond)
	if passed >= kept.life {
		c.remove(element)
		return Decision{}, false
	}
	return kept.decision.aged(passed), true
}

// put keeps a denial, unless one of its keys was forgotten after the call was sent.
func (c *denialCache) put(of *call, d Decision, start callStart) {
	if c == nil || d.Allowed || d.Source != SourceServer || d.RetryAfter <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range of.keys {
		if c.forgotten.isAfter(key, start.turn) {
			return
		}
	}
	name := of.nameOf()
	if old := c.denials[name]; old != nil {
		c.remove(old)
	}
	life := min(d.RetryAfter, c.longest)
	c.denials[name] = c.order.PushBack(&denial{name, d, start.at, life, of.keys})
	for _, key := range of.keys {
		if c.entries[key] == nil {
			c.entries[key] = map[string]bool{}
		}
		c.entries[key][name] = true
	}
	if c.order.Len() > c.size {
		c.remove(c.order.Front())
	}
}

// forget removes all denials of a key.
func (c *denialCache) forget(key string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.entries[key] {
		c.remove(c.denials[name])
	}
}

func (c *denialCache) remove(element *list.Element) {
	kept := c.order.Remove(element).(*denial)
	delete(c.denials, kept.name)
	for _, key := range kept.keys {
		delete(c.entries[key], kept.name)
		if len(c.entries[key]) == 0 {
			delete(c.entries, key)
		}
	}
}

// knownLongest is the longest time for which a denial decides calls without a final reply.
const knownLongest = time.Hour

// errDeniedBefore ends a call that a known denial decides.
var errDeniedBefore = errors.New("denied by a known denial")

// knownDenials has the last denial of each key. Under pressure it denies without a call. If a call
// gets no final reply, it decides before OnError.
type knownDenials struct {
	size    int
	longest time.Duration

	// count is the number of keys, which a call reads without the lock.
	count     atomic.Int64
	mu        sync.Mutex
	denials   map[string]*knownDenial
	forgotten *forgotten
}

// knownDenial is the last denial of a key. It does not change, except for isLocal.
type knownDenial struct {
	// text and leave are the words of the call without COST and PARTIAL.
	text, leave string
	cost        int64
	row         Decision
	// readAt is the moment at which the denial was read.
	readAt time.Time
	// isLocal says whether this process keeps the limit of the key, because the retry time is over.
	// The mutex of the local limiter guards it.
	isLocal bool
}

func newKnownDenials(o *options, f *forgotten) *knownDenials {
	return &knownDenials{
		size: o.knownDenials, longest: o.denialCacheMax,
		denials: map[string]*knownDenial{}, forgotten: f,
	}
}

// retryEnd returns the end of the retry time, in nanoseconds since 1970.
func (d *knownDenial) retryEnd() int64 {
	if d.row.RetryAfter > math.MaxInt64-time.Duration(d.readAt.UnixNano()) {
		return math.MaxInt64
	}
	return d.readAt.UnixNano() + int64(d.row.RetryAfter)
}

// isUsable returns true if the retry time is not over and the denial is not too old.
func (d *knownDenial) isUsable(now time.Time, longest time.Duration) bool {
	return now.Sub(d.readAt) < min(d.row.RetryAfter, longest)
}

// isOf returns true if the denial is of an item with the same rule and LEAVE.
func (d *knownDenial) isOf(keyed *keyedItem) bool {
	return d.text == keyed.rule.text && d.leave == keyed.leave
}

// knownCost returns the cost with which a denial of the item is stored. That of a partial call is
// 1, because not even one unit was left.
func (k *keyedItem) knownCost() int64 {
	if k.partial {
		return 1
	}
	return k.cost
}

// deniesNow returns true if a call must not be sent under pressure, and gives it the denial.
func (k *knownDenials) deniesNow(c *call, now time.Time) bool {
	denial, ok := k.deny(c, now, k.longest)
	if ok {
		c.denied = &denial
	}
	return ok
}

// deny returns the denial of a call by entries that are not too old.
func (k *knownDenials) deny(c *call, now time.Time, longest time.Duration) (Decision, bool) {
	if !c.isKnowable || k.count.Load() == 0 {
		return Decision{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var rows []Decision
	for at, keyed := range c.items {
		found := k.denials[keyed.key]
		if found == nil || !found.isOf(keyed) || found.cost > keyed.knownCost() ||
			!found.isUsable(now, longest) {
			continue
		}
		row := found.row.aged(now.Sub(found.readAt).Truncate(time.Millisecond))
		if len(c.items) == 1 {
			return row, true
		}
		if rows == nil {
			rows = allowedRows(c.items)
		}
		rows[at] = row
	}
	if rows == nil {
		return Decision{}, false
	}
	return combined(rows, make([]int64, len(rows))), true
}

// allowedRows returns the rows of rules that another rule's denial leaves untouched.
func allowedRows(items []*keyedItem) []Decision {
	rows := make([]Decision, len(items))
	for at, keyed := range items {
		rows[at] = decisionOf(
			Decision{Allowed: true, Limit: keyed.rule.limit, Source: SourceLocal}, keyed.rule)
	}
	return rows
}

// after returns the denial of a key whose retry time is over; nil if there is none.
func (k *knownDenials) after(keyed *keyedItem, now time.Time) *knownDenial {
	if k.count.Load() == 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	found := k.denials[keyed.key]
	if found == nil || !found.isOf(keyed) || found.isUsable(now, knownLongest) {
		return nil
	}
	return found
}

// note remembers the denials of a decision that was read from the server at that moment, and
// forgets those that it ends.
func (k *knownDenials) note(c *call, now time.Time) {
	d := &c.decision
	if c.err != nil || k.size == 0 || d.Allowed && k.count.Load() == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for at, keyed := range c.items {
		row := d
		if len(d.Rows) > 0 {
			row = &d.Rows[at]
		}
		k.noteRow(keyed, row, c.start.turn, now)
	}
	k.count.Store(int64(len(k.denials)))
}

func (k *knownDenials) noteRow(keyed *keyedItem, row *Decision, turn uint64, now time.Time) {
	found := k.denials[keyed.key]
	switch {
	case row.Allowed && found == nil:
	case row.Allowed:
		if found.isOf(keyed) && found.cost <= keyed.knownCost() {
			delete(k.denials, keyed.key)
		}
	case row.RetryAfter <= 0 || k.forgotten.isAfter(keyed.key, turn):
	case found != nil && found.isOf(keyed) && found.cost < keyed.knownCost() &&
		found.isUsable(now, knownLongest):
		// That of the smaller cost denies more calls.
	default:
		if found == nil && len(k.denials) >= k.size {
			k.evict()
		}
		kept := *row
		kept.Rows = nil
		k.denials[keyed.key] = &knownDenial{
			text: keyed.rule.text, leave: keyed.leave, cost: keyed.knownCost(), row: kept,
			readAt: now,
		}
	}
}

// evict drops the tenth of the keys whose retry times end first, so that a new key costs a constant
// time on average.
func (k *knownDenials) evict() {
	type end struct {
		key string
		at  int64
	}
	ends := make([]end, 0, len(k.denials))
	for key, one := range k.denials {
		ends = append(ends, end{key, one.retryEnd()})
	}
	slices.SortFunc(ends, func(one, other end) int {
		switch {
		case one.at < other.at:
			return -1
		case one.at > other.at:
			return 1
		}
		return 0
	})
	for _, one := range ends[:(k.size+9)/10] {
		delete(k.denials, one.key)
	}
}

// forget removes the denial of a key.
func (k *knownDenials) forget(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.denials, key)
	k.count.Store(int64(len(k.denials)))
}
