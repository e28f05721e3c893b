package boltstore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/densityops/oooi/plugins/leasedb/internal/store"
)

// A record is the checksum of key and value, which bbolt does not store, followed by the value.
const sumSize = 4

func encode(b store.Binding) ([]byte, error) {
	value, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encoding the binding of %v: %w", b.Addr, err)
	}
	record := make([]byte, sumSize, sumSize+len(value))
	binary.BigEndian.PutUint32(record, checksum(b.Addr.AsSlice(), value))
	return append(record, value...), nil
}

func decode(key, record []byte) (store.Binding, error) {
	addr, ok := netip.AddrFromSlice(key)
	if !ok { // do not print the key: in a damaged file it may refer to memory outside of the file
		return store.Binding{}, fmt.Errorf("a key of %d bytes is not an address", len(key))
	}
	if len(record) < sumSize || binary.BigEndian.Uint32(record) != checksum(key, record[sumSize:]) {
		return store.Binding{}, fmt.Errorf("the record of %v has an invalid checksum", addr)
	}
	var b store.Binding
	if err := json.Unmarshal(record[sumSize:], &b); err != nil {
		return store.Binding{}, fmt.Errorf("decoding the record of %v: %w", addr, err)
	}
	if b.Addr != addr || b.Holder == "" || b.Revision == 0 {
		return store.Binding{}, fmt.Errorf("the record of %v is incomplete", addr)
	}
	return b, nil
}

// marksBucket contains the last mark of each pool, by the name of the pool's bucket.
var marksBucket = []byte("marks")

func encodeMark(key []byte, at time.Time) []byte {
	value := []byte(at.UTC().Format(time.RFC3339Nano))
	record := binary.BigEndian.AppendUint32(nil, checksum(key, value))
	return append(record, value...)
}

// decodeMark is the inverse of encodeMark. It returns the zero time if record is nil.
func decodeMark(key, record []byte) (time.Time, error) {
	if record == nil {
		return time.Time{}, nil
	}
	if len(record) < sumSize || len(record) > maxMark || binary.BigEndian.Uint32(record) != checksum(key, record[sumSize:]) {
		return time.Time{}, errors.New("the time mark has an invalid checksum")
	}
	at, err := time.Parse(time.RFC3339Nano, string(record[sumSize:]))
	if err != nil {
		return time.Time{}, fmt.Errorf("decoding the time mark: %w", err)
	}
	return at, nil
}

// maxMark is an upper limit for the length of an encoded mark.
const maxMark = 64

func checksum(key, value []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(key, table), table, value)
}

var errPages = errors.New("database pages are inconsistent")

// recoverPanics calls a function that reads pages of the file, and converts panics to errors. In a damaged file,
// bbolt panics or accesses unmapped memory.
func recoverPanics(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPages, p)
		}
	}()
	return f()
}
