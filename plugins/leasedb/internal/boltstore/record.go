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

// A record is the checksum of key and value, which bbolt itself does not keep, and the value.
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
	if !ok { // in a damaged file its bytes may lie outside of it
		return store.Binding{}, fmt.Errorf("a key of %d bytes is no address", len(key))
	}
	if len(record) < sumSize || binary.BigEndian.Uint32(record) != checksum(key, record[sumSize:]) {
		return store.Binding{}, fmt.Errorf("the record of %v does not have its checksum", addr)
	}
	var b store.Binding
	if err := json.Unmarshal(record[sumSize:], &b); err != nil {
		return store.Binding{}, fmt.Errorf("decoding the record of %v: %w", addr, err)
	}
	if b.Addr != addr || b.Holder == "" || b.Revision == 0 {
		return store.Binding{}, fmt.Errorf("the record of %v is not complete", addr)
	}
	return b, nil
}

// marksBucket has the newest time of each pool, by the name of its bucket.
var marksBucket = []byte("marks")

func encodeMark(key []byte, at time.Time) []byte {
	value := []byte(at.UTC().Format(time.RFC3339Nano))
	record := binary.BigEndian.AppendUint32(nil, checksum(key, value))
	return append(record, value...)
}

// decodeMark is the inverse of encodeMark; zero where there is none.
func decodeMark(key, record []byte) (time.Time, error) {
	if record == nil {
		return time.Time{}, nil
	}
	if len(record) < sumSize || len(record) > maxMark || binary.BigEndian.Uint32(record) != checksum(key, record[sumSize:]) {
		return time.Time{}, errors.New("the newest time does not have its checksum")
	}
	at, err := time.Parse(time.RFC3339Nano, string(record[sumSize:]))
	if err != nil {
		return time.Time{}, fmt.Errorf("decoding the newest time: %w", err)
	}
	return at, nil
}

// maxMark is longer than any.
const maxMark = 64

func checksum(key, value []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(key, table), table, value)
}

var errPages = errors.New("its pages are inconsistent")

// guard calls a function that reads pages of the file. In a damaged one bbolt panics, or memory is read that is not there.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPages, p)
		}
	}()
	return f()
}
