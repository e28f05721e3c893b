package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/test/lab"
)

func TestOnlyChangedObjectsAreApplied(t *testing.T) {
	s := newSite(t)
	s.Setup()
	in := func(format string) string { return strings.ReplaceAll(format, "NS", s.Namespace) }
	for _, tc := range []struct{ what, old, new, want string }{
		{"the range", "192.0.2.99", "192.0.2.89", in("Infra NS/demo configured\nConfigMap NS/NEWCONFIG created\nStatefulSet NS/demo-dhcp configured\nConfigMap NS/OLDCONFIG deleted\n")},
		{"the proxy's address", "192.0.2.4", "192.0.2.5", in("Infra NS/demo configured\nProxyServer NS/demo configured\nNetworkAttachmentDefinition NS/NEWNETWORK created\nStatefulSet NS/demo-proxy configured\n" +
			"ConfigMap NS/NEWCONFIG created\nStatefulSet NS/demo-dhcp configured\n" + // a protected address of DHCP
			"ConfigMap NS/OLDCONFIG deleted\nNetworkAttachmentDefinition NS/OLDNETWORK deleted\n")},
		{"an image", "serverIP: 192.0.2.3", "serverIP: 192.0.2.3, image: example.com/dns:1", in("Infra NS/demo configured\nStatefulSet NS/demo-dns configured\n")},
	} {
		s.Infra = strings.ReplaceAll(s.Infra, tc.old, tc.new)
		network, config := s.NetworkOf("demo-proxy"), s.ConfigOf("demo-dhcp")
		stderr := s.Setup()
		if want := strings.NewReplacer("OLDNETWORK", network, "NEWNETWORK", s.NetworkOf("demo-proxy"), "OLDCONFIG", config, "NEWCONFIG", s.ConfigOf("demo-dhcp")).Replace(tc.want); stderr != want {
			t.Errorf("changing %s printed\n%s\nwant\n%s", tc.what, stderr, want)
		}
	}
	s.Infra = strings.ReplaceAll(s.Infra, "dhcp: {", "dhcp: {enabled: false, ")
	stderr := s.Setup()
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "demo-dhcp") && !strings.Contains(line, "-dhcp deleted") && line != in("Infra NS/demo configured\n") {
			t.Errorf("disabling DHCP printed %s", line)
		}
	}
	for _, o := range s.Everything() {
		if strings.Contains(o, "demo-dhcp") || strings.Contains(o, "-demo-dhcp") {
			t.Errorf("not deleted after disabling DHCP: %s", o)
		}
	}
}

// TestImagesOfDHCPGetKnownArguments renders DHCP for the release's image, and then for one that may be of an earlier
// version.
func TestImagesOfDHCPGetKnownArguments(t *testing.T) {
	s := newSite(t)
	rendered := func() bool {
		t.Helper()
		s.Setup()
		config := &corev1.ConfigMap{}
		s.Get(s.ConfigOf("demo-dhcp"), config)
		return strings.Contains(fmt.Sprint(config.Data), "test-clients="+s.Namespace+"/demo")
	}
	if !rendered() {
		t.Error("setup rendered no test clients")
	}
	s.Infra = strings.ReplaceAll(s.Infra, "dhcp: {", "dhcp: {image: example.com/dhcp:1, ")
	if rendered() {
		t.Error("setup rendered test clients for another image")
	}
}

func TestSetupRefuses(t *testing.T) {
	s := newSite(t)
	good := s.Infra
	for _, tc := range []struct{ name, old, new, message string }{
		{"a duplicate address", "serverIP: 192.0.2.4", "serverIP: 192.0.2.3", "AddressConflict"},
		{"no network", "networkAttachmentDefinition: vlan100", "networkAttachmentDefinition: vlan101", "NetworkAttachmentDefinition " + s.Namespace + "/vlan101 does not exist"},
		{"an unknown field", "rangeEnd", "rangeend", `unknown field "spec.infraComponents.dhcp.rangeend"`},
		{"no address", "proxy: {serverIP: 192.0.2.4}", "proxy: {}", "spec.infraComponents.proxy.serverIP: an address on the VLAN is required"},
		{"a value that the API server refuses", "gateway: 192.0.2.1", "gateway: somewhere", "must be an IPv4 or IPv6 address"},
		{"an invalid image reference", "proxy: {serverIP: 192.0.2.4}", "proxy: {serverIP: 192.0.2.4, image: 'quay.io/Some Image:1'}", `spec.infraComponents.proxy.image: invalid image reference "quay.io/Some Image:1"`},
	} {
		s.Infra = strings.ReplaceAll(good, tc.old, tc.new)
		if s.Infra == good {
			t.Fatalf("%s: nothing was changed", tc.name)
		}
		t.Log(tc.name)
		s.Refused(tc.message)
	}
	s.Infra = good
	s.Refused("error: not done within --timeout 1ns: ", "--timeout", "1ns")
	s.Refused(`error: --output "json": only yaml is supported, and only with --dry-run=client`, "--dry-run=client", "-o", "json")
	s.Refused(`error: --output "yaml": only yaml is supported, and only with --dry-run=client`, "-o", "yaml")
}

// TestSetupRefusesNetworksWithDHCPIPAM sets up networks whose CNI plugin requests leases, as a ClusterUserDefinedNetwork with
// ipam.mode DHCP.
func TestSetupRefusesNetworksWithDHCPIPAM(t *testing.T) {
	s := newSite(t)
	const ovn = `{"cniVersion":"1.0.0","name":"udn","type":"ovn-k8s-cni-overlay","topology":"localnet","role":"secondary","physicalNetworkName":"physnet",` +
		`"netAttachDefName":"NS/udn","ipam":{"type":"dhcp"}}`
	for name, config := range map[string]string{"udn": strings.Replace(ovn, "NS", s.Namespace, 1), "bridge": `{"cniVersion":"0.3.1","type":"bridge","bridge":"br1","ipam":{"type":"dhcp"}}`} {
		s.Apply(fmt.Sprintf("apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: %s, namespace: %s}\nspec: {config: '%s'}\n",
			name, s.Namespace, config))
	}
	good := s.Infra
	s.Infra = strings.Replace(good, "networkAttachmentDefinition: vlan100", "networkAttachmentDefinition: bridge", 1)
	s.Refused("ipam of type dhcp in spec.config requests a lease for each VM's pod before KubeVirt knows the VM's MAC address")
	s.Infra = strings.Replace(s.Infra, "dhcp: {", "dhcp: {enabled: false, ", 1)
	s.Refused("assigns addresses by ipam of type dhcp in spec.config, and KubeVirt would offer them to VMs")
	s.Infra = strings.Replace(good, "networkAttachmentDefinition: vlan100", "networkAttachmentDefinition: udn", 1)
	s.Refused("in a ClusterUserDefinedNetwork: ipam: {mode: Disabled}): VMs request their leases themselves")
	s.Infra = strings.Replace(s.Infra, "dhcp: {", "dhcp: {enabled: false, ", 1)
	if out, stderr, code := s.Run("diff", "-f", "FILE"); code != 1 || strings.Contains(out, `"ipam"`) || !strings.Contains(out, "physnet") {
		t.Errorf("without DHCP diff exited with %d and printed %s%s", code, out, stderr)
	}
}

func TestReplicaWithFloatingAddressIsReplacedLast(t *testing.T) {
	s := newSite(t)
	s.Infra = strings.Replace(s.Infra, "proxy: {serverIP: 192.0.2.4}", "proxy: {serverIP: 192.0.2.4, instances: [{ip: 192.0.2.5}, {ip: 192.0.2.6}, {ip: 192.0.2.7}]}", 1)
	s.Setup()
	s.Apply(fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: demo-proxy-address, namespace: %s}
spec: {holderIdentity: demo-proxy-192-0-2-5-0, leaseDurationSeconds: 10}
`, s.Namespace))
	stderr := s.Setup("--image", "registry.example.com/oooi:next")
	var order []string
	for line := range strings.Lines(stderr) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "StatefulSet "+s.Namespace+"/demo-proxy-192-0-2-"); ok {
			order = append(order, name)
		}
	}
	if want := []string{"6 configured", "7 configured", "5 configured"}; !slices.Equal(order, want) {
		t.Errorf("setup with another image replaces %q, want %q:\n%s", order, want, stderr)
	}
}

// TestObjectsAreCreatedAgain replaces a RoleBinding, whose reference cannot be changed, as kubectl replace --force does. Applying
// the rendered object would fail.
func TestObjectsAreCreatedAgain(t *testing.T) {
	s := newSite(t)
	s.Setup()
	name, binding := "oooi-"+s.Namespace+"-demo-dns", &rbacv1.RoleBinding{}
	s.Get(name, binding)
	s.Must(s.Client.Delete(t.Context(), binding))
	binding.UID, binding.ResourceVersion, binding.ManagedFields, binding.RoleRef.Name = "", "", nil, "other"
	s.Must(s.Client.Create(t.Context(), binding, client.FieldOwner("kubectl-replace")))
	uid, object, before := binding.UID, "RoleBinding "+s.Namespace+"/"+name, s.Everything()
	if out, stderr, code := s.Run("diff", "-f", "FILE", "--force-conflicts"); code != 1 || !strings.Contains(out, name) {
		t.Errorf("diff exited with %d, stderr %s, stdout %s", code, stderr, out)
	}
	if out, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=server", "--force-conflicts"); code != 0 || !strings.Contains(out, object+" configured (server dry run)\n") {
		t.Errorf("the dry run exited with %d, stderr %s, stdout %s", code, stderr, out)
	}
	s.Unchanged(before)
	s.Expect(0, "setup -f FILE --wait=false --force-conflicts", object+" created\n")
	if s.Get(name, binding); binding.UID == uid || binding.RoleRef.Name != name {
		t.Errorf("setup created %v", binding)
	}
	s.SetupAgain()
}

var management = lab.Shared{Config: cmdtest.Management(), Prepare: cmdtest.Install}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	lab.Main(m, &management)
}

// A site is a management cluster with a hosted cluster and its control plane's namespace, in which setup has not run.
type site struct {
	*cmdtest.Site
}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{cmdtest.New(t, management.Get(t), cmd.Main)}
}
