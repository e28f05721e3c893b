package pool

import "math/bits"

const wordBits = 64

// A bitmap contains the numbers below size that are taken.
type bitmap struct {
	words []uint64
	size  int
	taken int
}

func newBitmap(size int) bitmap {
	return bitmap{words: make([]uint64, (size+wordBits-1)/wordBits), size: size}
}

func (b *bitmap) set(i int, taken bool) {
	bit := uint64(1) << (i % wordBits)
	switch word := &b.words[i/wordBits]; {
	case taken && *word&bit == 0:
		*word |= bit
		b.taken++
	case !taken && *word&bit != 0:
		*word &^= bit
		b.taken--
	}
}

// free returns the first number at or after start that is not taken, and continues at 0. It returns false if all
// are taken.
func (b *bitmap) free(start int) (int, bool) {
	if b.taken == b.size {
		return 0, false
	}
	if i := b.freeFrom(start); i < b.size {
		return i, true
	}
	return b.freeFrom(0), true
}

func (b *bitmap) freeFrom(start int) int {
	mask := ^uint64(0) << (start % wordBits)
	for w := start / wordBits; w < len(b.words); w++ {
		if open := ^b.words[w] & mask; open != 0 {
			return w*wordBits + bits.TrailingZeros64(open)
		}
		mask = ^uint64(0)
	}
	return b.size
}
