// Package kubevirt is a CoreDHCP plugin that knows KubeVirt's virtual machines: who has the
// MAC address that asks. Packets of others are met with silence. It follows an API server,
// so that no packet waits for one.
package kubevirt

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/coredhcp/coredhcp/handler"
	"github.com/coredhcp/coredhcp/plugins"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/plugins/internal/vm"
)

// Plugin is for CoreDHCP's registry. It belongs in front of every plugin that gives
// addresses.
var Plugin = plugins.Plugin{Name: "kubevirt", Setup4: setup4}

// process is the one that CoreDHCP has set up: it gives plugins
// no context and never ends them.
var process struct {
	mu        sync.Mutex
	directory *directory
	cancel    context.CancelFunc
	ended     chan struct{}
}

// Check reports what is wrong with the plugin's arguments. It reaches no server.
func Check(args ...string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if c.kubeconfig == "" {
		return nil // a pod has its own
	}
	_, err = watch.RESTConfig(c.source())
	return err
}

func (c config) source() watch.Config {
	return watch.Config{Kubeconfig: c.kubeconfig, Context: c.context}
}

func setup4(args ...string) (handler.Handler4, error) {
	d, err := start(args)
	if err != nil {
		return nil, err
	}
	return d.handle4, nil
}

// start returns the process's directory, which the first caller starts.
func start(args []string) (*directory, error) {
	c, err := parse(args)
	if err != nil {
		return nil, err
	}
	process.mu.Lock()
	defer process.mu.Unlock()
	if d := process.directory; d != nil {
		if d.config != c {
			return nil, fmt.Errorf("kubevirt: one process serves one network, and this one has %s", d.config)
		}
		return d, nil
	}
	client, err := watch.RESTConfig(c.source())
	if err != nil {
		return nil, fmt.Errorf("kubevirt: %w", err)
	}
	log := slog.Default().With("plugin", "kubevirt")
	d := newDirectory(c, log)
	if d.follow, err = newFollowing(d, client, log); err != nil {
		return nil, err
	}
	d.load()
	vm.Provide(d)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.run(ctx)
	}()
	process.directory, process.cancel, process.ended = d, cancel, ended
	return d, nil
}

// run follows the API server until the context ends.
func (d *directory) run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { d.follow.run(ctx) })
	if d.config.snapshot != "" {
		group.Go(func() { d.keep(ctx) })
	}
	group.Wait()
}

// Shutdown ends what the plugin has started, and returns when it has ended or the context
// has. The snapshot file is written once more. What was known stays for packets that are
// still on their way.
func Shutdown(ctx context.Context) error {
	process.mu.Lock()
	cancel, ended := process.cancel, process.ended
	process.directory, process.cancel, process.ended = nil, nil, nil
	process.mu.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kubevirt: ending: %w", ctx.Err())
	}
}

// handle4 lets the packets of known machines pass, with the host name that their node must
// have. RFC 2131, section 4.3.1: what is specific to a client is answered unasked.
func (d *directory) handle4(req, resp *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) {
	client, ok := d.Lookup(req.ClientHWAddr)
	if !ok {
		d.unknown.Add(1)
		return nil, true
	}
	if t := resp.MessageType(); t == dhcpv4.MessageTypeOffer || t == dhcpv4.MessageTypeAck {
		resp.UpdateOption(dhcpv4.OptHostName(client.Hostname))
	}
	return resp, false
}
