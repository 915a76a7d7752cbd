package throttle

import (
	"container/list"
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

// forgotten knows the turns at which keys were last forgotten: a denial that was asked for before
// is not kept.
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

// asked is the moment before a call was sent.
type asked struct {
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
func (c *denialCache) put(of *call, d Decision, asked asked) {
	if c == nil || d.Allowed || d.Source != SourceServer || d.RetryAfter <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range of.keys {
		if c.forgotten.isAfter(key, asked.turn) {
			return
		}
	}
	name := of.nameOf()
	if old := c.denials[name]; old != nil {
		c.remove(old)
	}
	life := min(d.RetryAfter, c.longest)
	c.denials[name] = c.order.PushBack(&denial{name, d, asked.at, life, of.keys})
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
