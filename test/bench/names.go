package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/test/bench/measure"
)

const (
	// maxVMs is the number of VMs for which there are addresses.
	maxVMs = 200 * 250
	// records is the maximum number of records of an Infra.
	records = 256
	// vmCluster is the hosted cluster whose VMs have names.
	vmCluster cluster = maxClusters - 1
	// vmClient is the address of a VM that queries. The VLAN is 127.32.0.0/16, which is no other cluster's.
	vmClient = "127.32.0.10"
)

// vm is the number of a VM with a name, from 0.
type vm int

func (v vm) address() netip.Addr {
	return netip.AddrFrom4([4]byte{127, 32, byte(1 + v/250), byte(1 + v%250)})
}

// named returns the question for a VM's name, or for the name that a change gives to the VM.
func (v vm) named(prefix string) question {
	return question{fmt.Sprintf("%s-%05d.%s", prefix, int(v), vmCluster.domain()), v.address()}
}

// lease returns the Lease that the DHCP server writes for a VM.
func (v vm) lease() ([]byte, error) {
	name := fmt.Sprintf("worker-%05d", int(v))
	o := dhcplease.Object(namespace+"."+vmCluster.name(), time.Hour, dhcplease.Binding{
		Addr: v.address(), Holder: dhcplease.Interface{Namespace: namespace, VM: name, Name: "vlan"}.String(),
		MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", byte(v>>8), byte(v)), Hostname: name, Used: time.Now(),
	})
	o.APIVersion, o.Kind, o.Namespace = "coordination.k8s.io/v1", "Lease", namespace
	return json.Marshal(o)
}

// recordPatch returns the Infra's records as a patch. The first record has the given address.
func recordPatch(first netip.Addr) []byte {
	list := make([]string, records)
	for i := range list {
		q := record(i)
		if i == 0 {
			q.want = first
		}
		list[i] = fmt.Sprintf(`{"name":%q,"type":"A","values":[%q]}`, q.name, q.want)
	}
	return []byte(`{"spec":{"infraComponents":{"dns":{"records":[` + strings.Join(list, ",") + `]}}}}`)
}

// record returns the question for a static record of the Infra.
func record(i int) question {
	return question{fmt.Sprintf("record-%03d.%s", i, vmCluster.domain()), netip.AddrFrom4([4]byte{127, 32, 250, byte(i)})}
}

// createNames creates a hosted cluster whose Infra publishes the names of VMs and records, and the Leases of the VMs.
func (b *bench) createNames(ctx context.Context) error {
	objects := vmCluster.objects()
	objects[1] = fmt.Sprintf(`{"apiVersion":"hostedcluster.densityops.com/v1alpha1","kind":"Infra",
"metadata":{"name":%[1]q,"namespace":%[2]q},
"spec":{"hostedClusterRef":{"name":%[1]q},
"networkConfig":{"cidr":"127.32.0.0/16","gateway":"127.32.0.1","networkAttachmentDefinition":"vlan-%[1]s"},
"infraComponents":{"proxy":{"serverIP":"127.32.0.3"},"dhcp":{"serverIP":"127.32.0.4"},"dns":{"serverIP":"127.32.0.2","vmNames":{"enabled":true}}}}}`,
		vmCluster.name(), namespace)
	for _, object := range objects {
		if err := b.Management.ApplyYAML(ctx, []byte(object)); err != nil {
			return err
		}
	}
	w, err := b.newChanger(nil, infraResource)
	if err != nil {
		return err
	}
	if _, err := w.patch(ctx, vmCluster.name(), recordPatch(record(0).want)); err != nil {
		return fmt.Errorf("creating records: %w", err)
	}
	return measure.Fill(ctx, 0, b.vms, func(ctx context.Context, number int) error {
		lease, err := vm(number).lease()
		if err != nil {
			return err
		}
		return b.Management.ApplyYAML(ctx, lease)
	})
}

// measureNames measures the DNS pod of one Infra that publishes the names of VMs and records: queries, memory and changes.
func (b *bench) measureNames(ctx context.Context, floor *server) error {
	progress("names of %d VMs and %d records of one Infra", b.vms, records)
	if err := b.createNames(ctx); err != nil {
		return err
	}
	var vms, static []question
	for v := range vm(b.vms) {
		vms = append(vms, v.named("worker"))
	}
	for i := range records {
		static = append(static, record(i))
	}
	block := strings.Replace(b.infraPod(vmCluster), "view pod", "view vlan\n\t\tleases "+namespace+"/"+vmCluster.name(), 1)
	block = strings.Replace(block, "snapshot.json", "names.json", 1)
	names, err := b.startContender(ctx, "names", block, client{source: vmClient}, vms)
	if err != nil {
		return err
	}
	defer names.stop()
	names.view = fmt.Sprintf("vlan, names of %d VMs", b.vms)
	m := memory{clusters: 1, source: fmt.Sprintf("API server, names of %d VMs", b.vms)}
	if m.rest, err = b.memoryAtRest(ctx, names.server); err != nil {
		return err
	}
	if err := b.compare(ctx, 1, names, names.floor(floor), targetFloor); err != nil {
		return err
	}
	if m.used, err = b.memoryAfterLoad(ctx, names.server, names.load); err != nil {
		return err
	}
	fixed := contender{name: "hcpviews", view: fmt.Sprintf("vlan, %d records", records), server: names.server, client: names.client}
	if fixed.load, err = b.newLoad("records", vmClient, static); err != nil {
		return err
	}
	if err := names.client.checkAll(ctx, names.server, static); err != nil {
		return err
	}
	if err := b.compare(ctx, 1, fixed, fixed.floor(floor), targetFloor); err != nil {
		return err
	}
	if m.changed, err = b.measureNameChanges(ctx, block); err != nil {
		return err
	}
	b.report.memory = append(b.report.memory, m)
	return nil
}

// measureNameChanges measures the time from changes of Leases, of a record and of the proxy's address to the answers. The
// server may use every CPU. It returns the server's resident memory in bytes afterwards.
func (b *bench) measureNameChanges(ctx context.Context, block string) (int, error) {
	s, err := b.start(ctx, "names-changes", nil, block, client{source: vmClient}, vm(0).named("worker"))
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	for _, kind := range []struct {
		what     string
		resource schema.GroupVersionResource
		change   func(i int) change
	}{
		{"a VM's Lease", leaseResource, func(i int) change {
			v, prefix := vm(i%b.vms), []string{"renamed", "worker"}[i/b.vms%2]
			lease := dhcplease.Name(namespace+"."+vmCluster.name(), v.address())
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"leasedb.densityops.com/hostname":"%s-%05d"}}}`, prefix, int(v))
			return change{lease, patch, vmClient, v.named(prefix)}
		}},
		{"a record", infraResource, func(i int) change {
			address := netip.AddrFrom4([4]byte{127, 32, 251, byte(i)})
			return change{vmCluster.name(), recordPatch(address), vmClient, question{record(0).name, address}}
		}},
		{"the proxy's address", infraResource, func(i int) change {
			address := netip.AddrFrom4([4]byte{127, 32, 252, byte(i)})
			return change{vmCluster.name(), proxyPatch(address), vmClient, vmCluster.api(address)}
		}},
	} {
		progress("%d changes of %s", b.changes, kind.what)
		if err := b.followAll(ctx, s, kind.resource, delays{clusters: 1, what: fmt.Sprintf("names of %d VMs, %s: ", b.vms, kind.what)}, kind.change); err != nil {
			return 0, fmt.Errorf("changing %s: %w", kind.what, err)
		}
	}
	return s.memory()
}

// followAll makes changes one at a time, and adds the delays of the answers to the report.
func (b *bench) followAll(ctx context.Context, s *server, resource schema.GroupVersionResource, d delays, next func(i int) change) error {
	w, err := b.newChanger(s, resource)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := w.watch(ctx); err != nil {
		return err
	}
	for i := range b.changes {
		c := next(i)
		if err := w.move(ctx, c, &d); err != nil {
			return fmt.Errorf("%s: %w", c.object, err)
		}
		time.Sleep(randomPause())
	}
	b.report.delays = append(b.report.delays, d)
	return nil
}
