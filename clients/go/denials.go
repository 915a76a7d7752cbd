package throttle

import (
	"container/list"
	"strings"
	"sync"
	"time"
)

// forgottenMax is the maximum number of keys of which the cache knows when they were forgotten.
const forgottenMax = 10_000

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
	entries map[string]map[string]bool
	// forgotten has the turn at which a key was last forgotten.
	forgotten      map[string]*list.Element
	forgottenOrder *list.List
	// No denial is stored of a call that was sent before oldestTurn.
	oldestTurn, turn uint64
}

type denial struct {
	name     string
	decision Decision
	at       time.Time
	life     time.Duration
	keys     []string
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

func newDenialCache(size int, longest time.Duration) *denialCache {
	if size == 0 {
		return nil
	}
	return &denialCache{
		size: size, longest: longest,
		denials: map[string]*list.Element{}, order: list.New(),
		entries:   map[string]map[string]bool{},
		forgotten: map[string]*list.Element{}, forgottenOrder: list.New(),
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

// asked returns the moment for put, before the call is sent.
func (c *denialCache) asked() asked {
	if c == nil {
		return asked{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
	return asked{time.Now(), c.turn}
}

// put keeps a denial, unless one of its keys was forgotten after the call was sent.
func (c *denialCache) put(of *call, d Decision, asked asked) {
	if c == nil || d.Allowed || d.Source != SourceServer || d.RetryAfter <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range of.keys {
		last := c.oldestTurn
		if element := c.forgotten[key]; element != nil {
			last = element.Value.(*forgottenKey).turn
		}
		if asked.turn < last {
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

// forget removes all denials of a key. Those on their way are not kept either.
func (c *denialCache) forget(key string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.entries[key] {
		c.remove(c.denials[name])
	}
	c.turn++
	if old := c.forgotten[key]; old != nil {
		c.forgottenOrder.Remove(old)
	}
	c.forgotten[key] = c.forgottenOrder.PushBack(&forgottenKey{key, c.turn})
	if c.forgottenOrder.Len() > forgottenMax {
		oldest := c.forgottenOrder.Remove(c.forgottenOrder.Front()).(*forgottenKey)
		delete(c.forgotten, oldest.key)
		c.oldestTurn = oldest.turn
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
