// Package ring holds a bounded buffer.
package ring

import (
	"errors"
	"sync"
)

const DefaultSize = 64

const (
	stateOpen = iota
	stateClosed
)

// ErrFull says that nothing more fits.
var ErrFull = errors.New("ring: full")

var registry = map[string]*Ring[int]{}

// Ring is a first-in first-out buffer.
type Ring[T any] struct {
	mu    sync.Mutex
	items []T
	head  int
	size  int
}

type Sink interface {
	Put(item int) error
	Close() error
}

type Visitor func(index int) bool

type Name = string

// New makes a ring of the given size.
func New[T any](size int) *Ring[T] {
	return &Ring[T]{items: make([]T, size)}
}

func (r *Ring[T]) Put(item T) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size == len(r.items) {
		return ErrFull
	}
	r.items[(r.head+r.size)%len(r.items)] = item
	r.size++
	return nil
}

func (r *Ring[T]) Len() int { return r.size }

type counter struct{ n int }

func (c counter) String() string {
	return "counter"
}

func visit(v Visitor) bool {
	inner := func(i int) bool { return v(i) }
	return inner(stateClosed)
}
