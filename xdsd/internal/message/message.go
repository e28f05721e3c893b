// Package message has what every configuration of Envoy is put together with.
package message

import (
	"errors"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Validated is what the generated validators are methods of.
type Validated interface {
	proto.Message
	ValidateAll() error
}

// Pack checks a message and wraps it. Nobody can check it afterwards: the validation of a
// message does not look into those that are wrapped in it. The same message makes the same
// bytes; the order in maps would else differ from one time to the next. The result is
// usable, if wrong, also with an error.
func Pack(m Validated) (*anypb.Any, error) {
	packed := new(anypb.Any)
	err := anypb.MarshalFrom(packed, m, proto.MarshalOptions{Deterministic: true})
	return packed, errors.Join(m.ValidateAll(), err)
}

// SocketAddress is a host, by address or by name, and a port.
func SocketAddress(host string, port uint16) *corev3.SocketAddress {
	return &corev3.SocketAddress{Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}
}

// Address is SocketAddress where a pipe could be, too.
func Address(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: SocketAddress(host, port)}}
}

// BindToDevice has a socket send and receive by one network interface (SO_BINDTODEVICE).
func BindToDevice(device string) *corev3.SocketOption {
	const solSocket, soBindToDevice = 1, 25
	return &corev3.SocketOption{
		Description: "SO_BINDTODEVICE", Level: solSocket, Name: soBindToDevice,
		Value: &corev3.SocketOption_BufValue{BufValue: append([]byte(device), 0)},
		State: corev3.SocketOption_STATE_PREBIND,
	}
}
