package bootstrap

import (
	"errors"
	"fmt"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/xdsd/internal/message"
)

// YAML renders a message as YAML that Envoy reads. Equal messages have equal text.
func YAML(m proto.Message) ([]byte, error) {
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err == nil {
		data, err = yaml.JSONToYAML(data) // protojson varies its whitespace on purpose; this removes it, and sorts keys
	}
	if err != nil {
		return nil, fmt.Errorf("rendering a configuration of Envoy: %w", err)
	}
	return data, nil
}

// A packer packs messages into Any and collects validation errors.
type packer struct{ errs []error }

func (p *packer) pack(m message.Validated) *anypb.Any {
	packed, err := message.Pack(m)
	p.errs = append(p.errs, err)
	return packed
}

// check validates the outermost message and returns all errors. Call it after all messages inside m were packed.
func (p *packer) check(m message.Validated) error {
	return errors.Join(append(p.errs, m.ValidateAll())...)
}

func (p *packer) byName(name string, m message.Validated) map[string]*anypb.Any {
	return map[string]*anypb.Any{name: p.pack(m)}
}

func (p *packer) filter(name string, m message.Validated) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: p.pack(m)}}
}

func (p *packer) monitor(name string, m message.Validated) *overloadv3.ResourceMonitor {
	return &overloadv3.ResourceMonitor{Name: name, ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: p.pack(m)}}
}
