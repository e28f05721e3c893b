package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/xdsd/internal/message"
)

// YAML renders a configuration as Envoy reads it. The same one is always the
// same text.
func YAML(m proto.Message) ([]byte, error) {
	// protojson varies its spaces on purpose; this sorts as well.
	data, err := toJSON(m)
	if err != nil {
		return nil, err
	}
	if data, err = yaml.JSONToYAML(data); err != nil {
		return nil, fmt.Errorf("rendering a configuration of Envoy: %w", err)
	}
	return data, nil
}

// JSON is YAML's twin.
func JSON(m proto.Message) ([]byte, error) {
	data, err := YAML(m)
	if err != nil {
		return nil, err
	}
	if data, err = yaml.YAMLToJSON(data); err != nil {
		return nil, fmt.Errorf("rendering a configuration of Envoy: %w", err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return nil, fmt.Errorf("rendering a configuration of Envoy: %w", err)
	}
	indented.WriteByte('\n')
	return indented.Bytes(), nil
}

func toJSON(m proto.Message) ([]byte, error) {
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("rendering a configuration of Envoy: %w", err)
	}
	return data, nil
}

// The secrets that Envoy reads from files, and the names of those.
const (
	clientSecret    = "xdsd-client"
	authoritySecret = "xdsd-ca"
)

// SecretFiles returns the files that belong into Server.TLS.SecretsDir, by
// name. They have paths in them, and no secrets. Without Server.Address there
// are none.
func (c Config) SecretFiles() (map[string][]byte, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("secret files of Envoy: %w", err)
	}
	if c.Server.Address == "" {
		return map[string][]byte{}, nil
	}
	t := c.Server.TLS
	// The watch is for renames in the folder: a kubelet replaces a link there.
	secrets := []*tlsv3.Secret{
		{Name: clientSecret, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: file(t.CertFile),
			PrivateKey:       file(t.KeyFile),
			WatchedDirectory: &corev3.WatchedDirectory{Path: filepath.Dir(t.CertFile)},
		}}},
		{Name: authoritySecret, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa:        file(t.CAFile),
			WatchedDirectory: &corev3.WatchedDirectory{Path: filepath.Dir(t.CAFile)},
		}}},
	}
	files := map[string][]byte{}
	for _, secret := range secrets {
		var p packer
		response := &discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{p.pack(secret)}}
		if err := p.check(response); err != nil {
			return nil, fmt.Errorf("secret files of Envoy: %w", err)
		}
		data, err := YAML(response)
		if err != nil {
			return nil, err
		}
		files[secret.GetName()+".yaml"] = data
	}
	return files, nil
}

func file(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}

// A packer packs messages and keeps what is wrong with them.
type packer struct{ errs []error }

func (p *packer) pack(m message.Validated) *anypb.Any {
	packed, err := message.Pack(m)
	p.errs = append(p.errs, err)
	return packed
}

// check is for the outermost message, when all within it are packed.
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
