// Package message provides helpers for messages of Envoy's API, which the bootstrap configuration and xDS resources
// share.
package message

import (
	"errors"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Validated is a message with the methods that protoc-gen-validate generates.
type Validated interface {
	proto.Message
	ValidateAll() error
}

// Pack validates a message and packs it into an Any, because validation of an outer message does not descend into an
// Any. Equal messages give equal bytes. It returns all errors of validation and packing; if only the validation
// fails, the result is still a usable Any.
func Pack(m Validated) (*anypb.Any, error) {
	packed := new(anypb.Any)
	// Without Deterministic, the order of map entries varies.
	err := anypb.MarshalFrom(packed, m, proto.MarshalOptions{Deterministic: true})
	return packed, errors.Join(m.ValidateAll(), err)
}

// ADSSource returns the ConfigSource of resources that are sent on the ADS stream.
func ADSSource() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// XDSDService returns the gRPC service of xdsd, whose cluster is in the bootstrap configuration.
func XDSDService() *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "xdsd"}}}
}

// SocketAddress returns the socket address of a port at a host, which is an IP address or a name.
func SocketAddress(host string, port uint16) *corev3.SocketAddress {
	return &corev3.SocketAddress{Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}
}

// Address returns a SocketAddress as an Address, the type of fields that also accept a pipe.
func Address(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: SocketAddress(host, port)}}
}

// BindToDevice returns the socket option SO_BINDTODEVICE, which restricts a socket to one network interface.
func BindToDevice(device string) *corev3.SocketOption {
	return &corev3.SocketOption{
		Description: "SO_BINDTODEVICE", Level: unix.SOL_SOCKET, Name: unix.SO_BINDTODEVICE,
		Value: &corev3.SocketOption_BufValue{BufValue: append([]byte(device), 0)},
		State: corev3.SocketOption_STATE_PREBIND,
	}
}

// SocketOption returns a socket option with a number as its value.
func SocketOption(description string, level, name, value int64, state corev3.SocketOption_SocketState) *corev3.SocketOption {
	return &corev3.SocketOption{Description: description, Level: level, Name: name, Value: &corev3.SocketOption_IntValue{IntValue: value}, State: state}
}
