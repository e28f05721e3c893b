package boltstore

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"

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
	if !ok {
		return store.Binding{}, fmt.Errorf("key %x is no address", key)
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

func checksum(key, value []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(key, table), table, value)
}

var errPanic = errors.New("its pages do not hang together")
