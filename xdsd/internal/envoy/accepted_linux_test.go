package envoy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
)

// FuzzAcceptedProxyServers sends random ProxyServers, Infras and Routes that an API server with our CRDs would accept to
// an Envoy, one after the other. Envoy must acknowledge each of them. A part of them is rejected by the CRDs and skipped.
// Envoy must also accept the bootstrap configuration with the limits of some of them.
func FuzzAcceptedProxyServers(f *testing.F) {
	proxy := startProxy(f, 1)
	api := newAPI(f)
	base, err := watch.ReadManifests("../../../internal/model/testdata/proxy-infra", fuzzOptions)
	lab.Must(f, err)
	text, err := os.ReadFile("testdata/random-objects.yaml")
	lab.Must(f, err)
	definitions := fields{}
	lab.Must(f, yaml.Unmarshal(text, &definitions))
	for seed := range uint64(lab.Length(300, 28_000)) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), definitions: definitions}
		in := *base
		infra, server := new(v1alpha1.Infra), new(v1alpha1.ProxyServer)
		accept(t, api, g.object("Infra"), infra)
		accept(t, api, g.object("ProxyServer"), server)
		in.Infras, in.ProxyServers = []*v1alpha1.Infra{infra}, []*v1alpha1.ProxyServer{server}
		in.Routes = slices.Clone(in.Routes)
		for range g.IntN(4) {
			r := *in.Routes[0]
			r.Name, r.Spec.Host = fmt.Sprintf("random-%d", len(in.Routes)), fmt.Sprint(g.value("$host"))
			in.Routes = append(in.Routes, &r)
		}
		limits := server.Spec.Limits
		if limits == nil {
			limits = &v1alpha1.ProxyLimits{}
		}
		p := model.Build(&in, fuzzOptions).ProxyServers[0]
		resources, omitted := NewTranslator(g.options(limits)).Translate(p)
		if omitted != nil {
			t.Fatal(omitted)
		}
		for _, u := range p.Upstreams {
			resources.Endpoints = append(resources.Endpoints, Endpoints(u, slicesOf(&in, u.Service)))
		}
		proxy.send(t, resources)
		if seed%64 == 0 {
			validateLimits(t, limits)
		}
	})
}

// TestDocumentedProxyServers sends the examples of the reference to an Envoy. The API server must accept them.
func TestDocumentedProxyServers(t *testing.T) {
	proxy := startProxy(t, 1)
	api := newAPI(t)
	blocks := strings.Split(string(lab.ReadFile(t, "docs", "reference", "proxy.md")), "```")
	examples := 0
	for _, block := range blocks {
		text, ok := strings.CutPrefix(block, "yaml\n")
		if !ok || !strings.Contains(text, "kind: ProxyServer\n") {
			continue
		}
		examples++
		written := fields{}
		lab.Must(t, yaml.Unmarshal([]byte(text), &written))
		server := new(v1alpha1.ProxyServer)
		lab.Must(t, decode(t, api, written, server))
		s := model.Build(&model.Objects{ProxyServers: []*v1alpha1.ProxyServer{server}}, fuzzOptions)
		for _, p := range s.Problems {
			if p.Reason != model.ReasonServiceNotFound {
				t.Error(p)
			}
		}
		resources, omitted := NewTranslator(Options{}).Translate(s.ProxyServers[0])
		if omitted != nil {
			t.Fatal(omitted)
		}
		for _, u := range s.ProxyServers[0].Upstreams {
			resources.Endpoints = append(resources.Endpoints, Endpoints(u, nil))
		}
		proxy.send(t, resources)
	}
	if examples < 2 {
		t.Errorf("found %d examples", examples)
	}
}

// management is the API server that judges the objects.
var management = lab.Shared{Config: lab.Config{Name: "accepted", CRDs: []lab.CRDSet{lab.Oooi}}}

func TestMain(m *testing.M) { lab.Main(m, &management) }

// newAPI returns a client of the API server, which has the namespace of the objects.
func newAPI(tb testing.TB) client.Client {
	tb.Helper()
	cp := management.Get(tb)
	lab.Must(tb, cp.Apply(tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: proxyName.Namespace}}))
	c, err := client.New(cp.RESTConfig(), client.Options{})
	lab.Must(tb, err)
	return c
}

var fuzzOptions = model.Options{Apps: &model.AppsOptions{}, Proxies: true}

// proxyName is the name of the ProxyServer.
var proxyName = types.NamespacedName{Namespace: "clusters", Name: "demo"}

// A proxy is an ADS server with a connected Envoy, in a network where every port is free.
type proxy struct {
	network *lab.Namespace
	server  *ads.Server
	envoy   *lab.Envoy
	changed <-chan struct{}
}

// startProxy starts an Envoy with the given number of worker threads.
func startProxy(tb testing.TB, workers int) *proxy {
	tb.Helper()
	return startLimited(tb, workers, bootstrap.Config{})
}

// startLimited is startProxy with the limits in config. Envoy has as many file descriptors as config.Descriptors.
func startLimited(tb testing.TB, workers int, config bootstrap.Config) *proxy {
	tb.Helper()
	network, err := lab.OpenNamespace()
	if errors.Is(err, os.ErrPermission) && os.Getenv("CI") == "" {
		tb.Skip(err)
	} else if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = network.Close() })
	dir := lab.TempDir(tb)
	config.NodeID, config.ProxyServer, config.DrainTime = "test", proxyName, time.Second
	config.ServerSocket, config.AdminSocket = filepath.Join(dir, "ads.sock"), filepath.Join(dir, "admin.sock")
	// Removed clusters are served for a second instead of 30: otherwise thousands would accumulate.
	server, err := ads.New(ads.Options{Log: slog.New(slog.DiscardHandler), Retain: time.Second})
	lab.Must(tb, err)
	listener, err := ads.ListenUnix(tb.Context(), config.ServerSocket)
	lab.Must(tb, err)
	go func() { _ = server.Serve(tb.Context(), listener) }() // until ctx is done
	changed, cancel := server.Subscribe()
	tb.Cleanup(cancel)

	text, err := config.YAML()
	lab.Must(tb, err)
	args := config.Args()
	binary, err := lab.FindEnvoy(tb.Context(), tb.Logf)
	lab.Must(tb, err)
	inside := filepath.Join(dir, "envoy")
	script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", strings.Join(network.CommandLine(binary), " "))
	lab.Must(tb, os.WriteFile(inside, []byte(script), 0o700))
	envoy := lab.NewEnvoy(tb, lab.EnvoyConfig{
		Bootstrap: text, Args: append(args, "--concurrency", fmt.Sprint(workers)), Binary: inside, Unready: true, Descriptors: int(config.Descriptors),
	})
	tb.Cleanup(func() {
		// Listeners that Envoy accepted, but could not open.
		if stats, err := envoy.Stats(context.Background()); err != nil {
			tb.Error(err)
		} else if n := stats["listener_manager.listener_create_failure"]; n != 0 {
			tb.Errorf("%d listeners could not be created", n)
		}
	})
	return &proxy{network, server, envoy, changed}
}

// send replaces the configuration and waits until Envoy has acknowledged or rejected it.
func (p *proxy) send(t *testing.T, resources ads.Resources) {
	t.Helper()
	started := time.Now()
	p.server.Set(proxyName.String(), resources)
	timeout := time.After(2 * time.Minute)
	for {
		_, e := p.server.Envoy(proxyName.String(), "test")
		for _, kind := range e.Types {
			if kind.NACK != nil && kind.NACK.Time.After(started) {
				t.Fatalf("Envoy rejected a %s: %s", kind.NACK.Type, kind.NACK.Message)
			}
		}
		if e.Current {
			return
		}
		select {
		case <-p.changed:
		case <-timeout:
			t.Fatalf("Envoy has not answered: %+v", e)
		}
	}
}

// validateLimits runs Envoy's validation on a bootstrap configuration with the limits.
func validateLimits(t *testing.T, limits *v1alpha1.ProxyLimits) {
	t.Helper()
	config := bootstrap.Config{NodeID: "fuzz", ProxyServer: proxyName, PortConnections: map[uint16]uint32{}}
	if limits.MaxConnections != nil {
		config.MaxConnections = uint32(*limits.MaxConnections)
	}
	for _, p := range limits.Ports {
		if p.MaxConnections != nil {
			config.PortConnections[uint16(p.Port)] = uint32(*p.MaxConnections)
		}
	}
	text, err := config.YAML()
	lab.Must(t, err)
	lab.Report(t, lab.ValidateEnvoy(t.Context(), text))
}

// accept is decode for an object that may be rejected: the test is skipped then.
func accept(t *testing.T, c client.Client, written fields, into client.Object) {
	t.Helper()
	if err := decode(t, c, written, into); apierrors.IsInvalid(err) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// decode decodes an object as an API server with our CRDs returns it, without storing it. It returns the API server's error.
func decode(t *testing.T, c client.Client, written fields, into client.Object) error {
	t.Helper()
	text, err := json.Marshal(written)
	lab.Must(t, err)
	created := &unstructured.Unstructured{}
	lab.Must(t, created.UnmarshalJSON(text))
	created.SetNamespace(proxyName.Namespace)
	if err := c.Create(t.Context(), created, client.DryRunAll); err != nil {
		return err
	}
	lab.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, into))
	return nil
}

// A generator generates random values from the definitions in testdata/random-objects.yaml, which describes them.
type generator struct {
	*rand.Rand

	definitions fields
	index       int // in the innermost list
}

type fields = map[string]any

func (g *generator) object(kind string) fields {
	return fields{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kind, "spec": g.value(g.definitions[kind]),
		"metadata": fields{"namespace": proxyName.Namespace, "name": proxyName.Name},
	}
}

// value returns a random value of a definition.
func (g *generator) value(definition any) any {
	switch d := definition.(type) {
	case string:
		if name, ok := strings.CutPrefix(d, "$"); ok {
			return g.value(g.definitions[name])
		}
		return strings.ReplaceAll(d, "{n}", strconv.Itoa(g.index))
	case []any:
		return g.value(d[g.IntN(len(d))])
	case fields:
		for function, arguments := range d {
			if list, ok := arguments.([]any); ok && strings.HasPrefix(function, "_") {
				return g.function(function, list)
			}
		}
		object := fields{}
		for _, name := range slices.Sorted(maps.Keys(d)) {
			if field, optional := strings.CutSuffix(name, "~"); !optional || g.IntN(2) == 0 {
				object[field] = g.value(d[name])
			}
		}
		return object
	}
	return definition
}

func (g *generator) function(name string, arguments []any) any {
	number := func(i int) int { return int(arguments[i].(float64)) } //nolint:errcheck // another type would be a mistake in the file
	switch name {
	case "_int":
		return number(0) + g.IntN(number(1)-number(0)+1)
	case "_list":
		list, outer := []any{}, g.index
		for g.index = range number(0) + g.IntN(number(1)-number(0)+1) {
			list = append(list, g.value(arguments[2]))
		}
		g.index = outer
		return list
	case "_each":
		list := []any{}
		for _, element := range arguments {
			list = append(list, g.value(element))
		}
		return list
	case "_repeat":
		return strings.Repeat(fmt.Sprint(arguments[0]), number(1))
	case "_join":
		text := ""
		for _, part := range arguments {
			text += fmt.Sprint(g.value(part))
		}
		return text
	default: // _merge
		merged := fields{}
		for _, part := range arguments {
			maps.Copy(merged, g.value(part).(fields)) //nolint:errcheck // as above
		}
		return merged
	}
}

// options returns the options of xdsd serve that setup derives from the limits, and random ones for its addresses.
func (g *generator) options(limits *v1alpha1.ProxyLimits) Options {
	o := Options{PortConnectionRates: map[uint16]uint32{}, ConnectionRate: uint32(v1alpha1.DefaultConnectionsPerSecond)}
	if rate := limits.ConnectionsPerSecond; rate != nil {
		o.ConnectionRate = uint32(*rate)
	}
	for _, p := range limits.Ports {
		if rate := p.ConnectionsPerSecond; rate != nil {
			o.PortConnectionRates[uint16(p.Port)] = uint32(*rate)
		}
	}
	if g.IntN(8) == 0 {
		o.Bind, o.Floating = []netip.Addr{netip.MustParseAddr("127.0.0.1")}, []netip.Addr{netip.MustParseAddr("192.168.50.3"), netip.MustParseAddr("fd00:50::3")}
		o.Source, o.Device = []netip.Addr{netip.MustParseAddr("192.168.50.4"), netip.MustParseAddr("fd00:50::4")}, "net1"
	}
	return o
}
