// Package kubevirt implements a CoreDHCP plugin that identifies the KubeVirt VM of a MAC address, and drops packets
// from unknown MAC addresses. It watches the API server, so that no packet waits for it.
package kubevirt

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/coredhcp/coredhcp/handler"
	"github.com/coredhcp/coredhcp/plugins"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/plugins/internal/vm"
)

// Plugin is the plugin's entry for CoreDHCP's registry. It must precede all plugins that assign addresses.
var Plugin = plugins.Plugin{Name: "kubevirt", Setup4: setup4}

// process is the global state of the plugin: CoreDHCP passes plugins no context and does not stop them.
var process struct {
	mu        sync.Mutex
	directory *directory
	cancel    context.CancelFunc
	ended     chan struct{}
}

// Check returns an error if the plugin's arguments, or the kubeconfig that they name, are invalid. It contacts no
// server.
func Check(args ...string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if c.kubeconfig == "" {
		return nil // the service account of the pod
	}
	_, err = kubeconfig.RESTConfig(c.kubeconfig, c.context)
	return err
}

func setup4(args ...string) (handler.Handler4, error) {
	d, err := start(args)
	if err != nil {
		return nil, err
	}
	return d.handle4, nil
}

// start returns the directory of the process. The first call starts it.
func start(args []string) (*directory, error) {
	c, err := parse(args)
	if err != nil {
		return nil, err
	}
	process.mu.Lock()
	defer process.mu.Unlock()
	if d := process.directory; d != nil {
		if d.config != c {
			return nil, fmt.Errorf("kubevirt: this process already serves %s; use the same arguments in each entry, or run one process per network", d.config)
		}
		return d, nil
	}
	client, err := kubeconfig.RESTConfig(c.kubeconfig, c.context)
	if err != nil {
		return nil, fmt.Errorf("kubevirt: %w", err)
	}
	log := slog.Default().With("plugin", "kubevirt")
	d := newDirectory(c, log)
	if d.follower, err = newFollower(d, client, log); err != nil {
		return nil, err
	}
	d.load()
	d.addHosts()
	if c.withoutVMs {
		d.markSynced()
	}
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

// run watches the API server and maintains the snapshot file until ctx is done.
func (d *directory) run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { d.follower.run(ctx) })
	group.Go(func() { d.file.Run(ctx) })
	group.Wait()
}

// Shutdown stops the plugin and waits until it has written the snapshot file. It returns an error if ctx is done first,
// and nil if the plugin does not run. The known VMs remain available to packets that are still being handled.
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
		return fmt.Errorf("kubevirt: shutting down: %w", ctx.Err())
	}
}

// handle4 passes packets of known VMs to the next plugin, with the hostname of the VM's node, and drops all others.
// RFC 2131, section 4.3.1: parameters specific to a client are sent without a request.
func (d *directory) handle4(req, resp *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) {
	client, ok := d.Lookup(req.ClientHWAddr)
	if !ok {
		d.unknown.Add(1)
		d.unknownClients.observe(req, time.Now())
		return nil, true
	}
	if t := resp.MessageType(); client.Hostname != "" && (t == dhcpv4.MessageTypeOffer || t == dhcpv4.MessageTypeAck) {
		resp.UpdateOption(dhcpv4.OptHostName(client.Hostname))
	}
	return resp, false
}
