package guest_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

// Neither OLM nor MetalLB's operator run in these tests. Their APIs are real, and the tests write the statuses that
// they would write.

const (
	reasonMissing = v1alpha1.AppsIngressMetalLBMissing
	reasonFailed  = v1alpha1.AppsIngressInstallFailed
)

// hosted is a hosted cluster with an admin client.
type hosted struct {
	*testing.T

	cp      *lab.ControlPlane
	client  client.Client
	cluster *guest.Cluster
	wanted  *guest.Wanted
}

func newHosted(t *testing.T, sets ...lab.CRDSet) *hosted {
	t.Helper()
	t.Parallel() // each test has its own control plane, and mostly waits
	h := &hosted{T: t, cp: lab.New(t, lab.Config{Name: "hosted", CRDs: sets})}
	h.client = h.cp.Client(t)
	h.cluster = connect(t, h.cp.Kubeconfig())
	h.wanted = newWanted("demo")
	return h
}

func connect(t *testing.T, kubeconfig string) *guest.Cluster {
	t.Helper()
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := guest.Connect(data, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// ranges returns the ranges with a JSON text.
func ranges(text string) *v1alpha1.AddressRanges { return &v1alpha1.AddressRanges{Raw: []byte(text)} }

// newWanted returns the requirements of an Infra that installs MetalLB.
func newWanted(infra string) *guest.Wanted {
	install := true
	return &guest.Wanted{
		Infra: types.NamespacedName{Namespace: "clusters", Name: infra},
		Apps: &v1alpha1.AppsIngress{Enabled: true, MetalLB: &v1alpha1.AppsIngressMetalLB{
			Install: &install, LoadBalancerClass: "metallb.io/vlan",
			IPAddressPoolRange: ranges(`["192.0.2.200", "192.0.2.210-192.0.2.219", "2001:db8::40/124"]`),
		}},
	}
}

func (h *hosted) installCRDs(sets ...lab.CRDSet) {
	h.Helper()
	h.must(h.cp.InstallCRDs(h.Context(), sets...))
}

func (h *hosted) apply(yaml string) { h.Helper(); h.must(h.cp.ApplyYAML(h.Context(), []byte(yaml))) }

func (h *hosted) delete(yaml string) { h.Helper(); h.must(h.cp.DeleteYAML(h.Context(), []byte(yaml))) }

// setStatus applies the status of an existing object.
func (h *hosted) setStatus(yaml string) {
	h.Helper()
	h.must(h.cp.ApplyStatusYAML(h.Context(), []byte(yaml)))
}

// must fails the test if there is an error.
func (h *hosted) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// wantFault calls EnsureMetalLB and expects a Fault with the reason and all words; without a reason it expects
// none.
func (h *hosted) wantFault(reason v1alpha1.AppsIngressReason, words ...string) {
	h.Helper()
	fault := h.cluster.EnsureMetalLB(h.Context(), h.wanted)
	if fault == nil {
		if reason != "" {
			h.Errorf("got no Fault, want reason %s and %q", reason, words)
		}
		return
	}
	if fault.Reason != reason {
		h.Errorf("got %v, want reason %q", fault, reason)
	}
	for _, word := range words {
		if !strings.Contains(fault.Message, word) {
			h.Errorf("got %v, want a message with %q", fault, word)
		}
	}
}

// kindOf returns the apiVersion of a kind.
func kindOf(what string) (version, kind string) {
	switch what {
	case "Namespace":
		return "v1", what
	case "OperatorGroup":
		return "operators.coreos.com/v1", what
	case "Subscription", "ClusterServiceVersion":
		return "operators.coreos.com/v1alpha1", what
	default:
		return "metallb.io/v1beta1", what
	}
}

// get returns an object, or nil if it does not exist or is being deleted.
func (h *hosted) get(what, namespace, name string) *unstructured.Unstructured {
	h.Helper()
	o := &unstructured.Unstructured{}
	version, kind := kindOf(what)
	o.SetAPIVersion(version)
	o.SetKind(kind)
	err := h.client.Get(h.Context(), types.NamespacedName{Namespace: namespace, Name: name}, o)
	if apierrors.IsNotFound(err) || err == nil && o.GetDeletionTimestamp() != nil {
		return nil
	}
	if err != nil {
		h.Fatal(err)
	}
	return o
}

// wantSpec expects an object of ours with this spec.
func (h *hosted) wantSpec(what, namespace, name, want string) {
	h.Helper()
	o := h.get(what, namespace, name)
	if o == nil {
		h.Errorf("%s %s does not exist", what, name)
		return
	}
	if o.GetLabels()["app.kubernetes.io/managed-by"] != "oooi" || o.GetAnnotations()["hostedcluster.densityops.com/infra"] != "clusters/demo" {
		h.Errorf("%s %s has labels %v and annotations %v", what, name, o.GetLabels(), o.GetAnnotations())
	}
	got, err := yaml.Marshal(o.Object["spec"])
	if err != nil {
		h.Fatal(err)
	}
	var spec any
	if err := yaml.Unmarshal([]byte(want), &spec); err != nil {
		h.Fatal(err)
	}
	wanted, err := yaml.Marshal(spec)
	if err != nil {
		h.Fatal(err)
	}
	if string(got) != string(wanted) {
		h.Errorf("%s %s is\n%swant\n%s", what, name, got, wanted)
	}
}

// wantAbsent expects that an object does not exist.
func (h *hosted) wantAbsent(what, namespace, name string) {
	h.Helper()
	if o := h.get(what, namespace, name); o != nil {
		h.Errorf("%s %s/%s exists: %v", what, namespace, name, o.Object)
	}
}

// setSubscriptionStatus sets the status of our Subscription.
func (h *hosted) setSubscriptionStatus(status string) {
	h.Helper()
	h.setStatus("apiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\nmetadata: {name: metallb-operator-sub, namespace: metallb-system}\n" +
		"status: {lastUpdated: 2026-01-01T00:00:00Z" + status + "}\n")
}

const csv = `
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: metallb-operator.v4.20.0, namespace: %[1]s}
spec: {displayName: MetalLB Operator, install: {strategy: deployment}}
`

// applyCSV applies the ClusterServiceVersion with a status.
func (h *hosted) applyCSV(namespace, status string) {
	h.Helper()
	h.apply(fmt.Sprintf(csv, namespace))
	h.setStatus(fmt.Sprintf("apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {name: metallb-operator.v4.20.0, namespace: %s}\nstatus: {%s}\n", namespace, status))
}

const (
	statusFound     = ", currentCSV: metallb-operator.v4.20.0, installPlanRef: {name: install-abcde, namespace: metallb-system}"
	statusInstalled = statusFound + ", installedCSV: metallb-operator.v4.20.0"
)

// installOperator installs the operator as OLM does, with the API of MetalLB.
func (h *hosted) installOperator() {
	h.Helper()
	h.wantFault(reasonMissing)
	h.setSubscriptionStatus(statusInstalled)
	h.applyCSV("metallb-system", "phase: Succeeded")
	h.installCRDs(lab.MetalLBOperator, lab.MetalLB)
}

func TestMetalLBIsInstalledStepByStep(t *testing.T) {
	h := newHosted(t)
	no := false
	h.wanted.Apps.MetalLB.Install, h.wanted.Apps.MetalLB.AutoInstall = nil, &no
	h.wantFault("")
	h.wanted.Apps.MetalLB = nil
	h.wantFault("")
	h.wanted = newWanted("demo")

	h.wantFault(reasonFailed, "no Operator Lifecycle Manager", "install MetalLB and unset metallb.install")
	h.wantAbsent("Namespace", "", "metallb-system")

	h.installCRDs(lab.OLM)
	h.wantFault(reasonMissing, "Subscription metallb-system/metallb-operator-sub: the Operator Lifecycle Manager looks for metallb-operator", "kubectl -n metallb-system describe subscription.operators.coreos.com/metallb-operator-sub")
	h.wantSpec("Namespace", "", "metallb-system", "{finalizers: [kubernetes]}")
	h.wantSpec("OperatorGroup", "metallb-system", "metallb-operator", "{upgradeStrategy: Default}") // OLM's default
	h.wantSpec("Subscription", "metallb-system", "metallb-operator-sub", "{name: metallb-operator, channel: stable, source: redhat-operators, sourceNamespace: openshift-marketplace}")

	h.setSubscriptionStatus(", conditions: [{type: BundleUnpacking, status: 'True'}, {type: CatalogSourcesUnhealthy, status: 'False'}]")
	h.wantFault(reasonMissing, "looks for")
	h.setSubscriptionStatus(statusFound)
	h.wantFault(reasonMissing, "looks for")
	h.setSubscriptionStatus(statusFound + ", conditions: [{type: InstallPlanPending, status: 'True', reason: RequiresApproval}]")
	h.wantFault(reasonMissing, "InstallPlanPending: RequiresApproval")
	h.setSubscriptionStatus(statusInstalled)
	h.applyCSV("metallb-system", "phase: Installing, reason: InstallWaiting, message: 'deployment not ready'")
	h.wantFault(reasonMissing, "ClusterServiceVersion metallb-system/metallb-operator.v4.20.0 is Installing", "deployment not ready")
	h.applyCSV("metallb-system", "phase: Succeeded")
	h.wantFault(reasonMissing, "MetalLB metallb-system/metallb: the server could not find the requested resource")
	h.installCRDs(lab.MetalLBOperator)
	h.wantFault(reasonMissing, "listing IPAddressPools: the server could not find the requested resource")
	h.wantSpec("MetalLB", "metallb-system", "metallb", "{loadBalancerClass: metallb.io/vlan}")
	h.installCRDs(lab.MetalLB)
	h.wantFault("")
	h.wantSpec("IPAddressPool", "metallb-system", "oooi", "{addresses: [192.0.2.200-192.0.2.200, 192.0.2.210-192.0.2.219, '2001:db8::40-2001:db8::4f'], autoAssign: true, avoidBuggyIPs: false}") // the last two are defaults
	h.wantSpec("L2Advertisement", "metallb-system", "oooi", "{ipAddressPools: [oooi]}")

	// Objects that are up to date are not written again.
	versions := func() (list []string) {
		for _, o := range [][3]string{
			{"Namespace", "", "metallb-system"}, {"OperatorGroup", "metallb-system", "metallb-operator"}, {"Subscription", "metallb-system", "metallb-operator-sub"},
			{"MetalLB", "metallb-system", "metallb"}, {"IPAddressPool", "metallb-system", "oooi"}, {"L2Advertisement", "metallb-system", "oooi"},
		} {
			list = append(list, h.get(o[0], o[1], o[2]).GetResourceVersion())
		}
		return list
	}
	before := versions()
	h.wantFault("")
	if after := versions(); !slices.Equal(before, after) {
		t.Errorf("a second call changed resource versions to %q from %q", after, before)
	}

	// The operator reports the state of MetalLB; later, a fault of OLM does not matter.
	const metallb = "apiVersion: metallb.io/v1beta1\nkind: MetalLB\nmetadata: {name: metallb, namespace: metallb-system}\n"
	condition := func(kind, status, message string) string {
		return fmt.Sprintf("{type: %s, status: %q, reason: R, message: %q, lastTransitionTime: 2026-01-01T00:00:00Z}", kind, status, message)
	}
	h.setStatus(metallb + "status: {conditions: [" + condition("Available", "False", "") + "," + condition("Degraded", "True", "no such image") + "]}\n")
	h.wantFault(reasonFailed, "MetalLB metallb-system/metallb: Degraded: R: no such image")
	h.setStatus(metallb + "status: {conditions: [" + condition("Available", "True", "") + "]}\n")
	h.wantFault("")
	h.setSubscriptionStatus(statusInstalled + ", conditions: [{type: CatalogSourcesUnhealthy, status: 'True'}, {type: ResolutionFailed, status: 'True'}]")
	h.wantFault("")

	// Changes of other clients to our objects are reverted to what the Infra requires.
	h.apply("apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: oooi, namespace: metallb-system}\nspec: {addresses: [198.51.100.0/24], avoidBuggyIPs: true}\n")
	h.apply(metallb + "spec: {loadBalancerClass: other, logLevel: debug}\n")
	h.wanted.Apps.MetalLB.OLM = &v1alpha1.MetalLBOLM{Source: "mirror", SourceNamespace: "catalogs", Channel: "4.20", StartingCSV: "metallb-operator.v4.20.0"}
	h.wantFault("")
	h.wantSpec("IPAddressPool", "metallb-system", "oooi", "{addresses: [192.0.2.200-192.0.2.200, 192.0.2.210-192.0.2.219, '2001:db8::40-2001:db8::4f'], autoAssign: true, avoidBuggyIPs: true}")
	h.wantSpec("MetalLB", "metallb-system", "metallb", "{loadBalancerClass: metallb.io/vlan, logLevel: debug}")
	h.wantSpec("Subscription", "metallb-system", "metallb-operator-sub", "{name: metallb-operator, channel: '4.20', source: mirror, sourceNamespace: catalogs, startingCSV: metallb-operator.v4.20.0}")

	// Another Infra of the same cluster uses these objects, and changes none.
	before = versions()
	h.wanted = newWanted("other")
	h.wanted.Apps.MetalLB.IPAddressPoolRange = ranges(`"192.0.2.128/25"`)
	h.wantFault("")
	if after := versions(); !slices.Equal(before, after) {
		t.Errorf("another Infra changed resource versions to %q from %q", after, before)
	}
	h.wanted = newWanted("demo")

	// An administrator removes MetalLB. The namespace stays terminating, because no namespace controller runs here.
	for _, o := range []string{
		"{apiVersion: metallb.io/v1beta1, kind: L2Advertisement, metadata: {name: oooi", "{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: oooi",
		"{apiVersion: metallb.io/v1beta1, kind: MetalLB, metadata: {name: metallb", "{apiVersion: operators.coreos.com/v1alpha1, kind: ClusterServiceVersion, metadata: {name: metallb-operator.v4.20.0",
		"{apiVersion: operators.coreos.com/v1alpha1, kind: Subscription, metadata: {name: metallb-operator-sub", "{apiVersion: operators.coreos.com/v1, kind: OperatorGroup, metadata: {name: metallb-operator",
	} {
		h.delete(o + ", namespace: metallb-system}}")
	}
	h.delete("apiVersion: v1\nkind: Namespace\nmetadata: {name: metallb-system}\n")
	h.wantFault(reasonMissing, "namespace metallb-system because it is being terminated")
}

func TestInstallationFaultsAreReported(t *testing.T) {
	h := newHosted(t, lab.OLM)
	h.wantFault(reasonMissing)
	for _, tc := range []struct {
		conditions string
		reason     v1alpha1.AppsIngressReason
		words      []string
	}{
		{", conditions: [{type: ResolutionFailed, status: 'True', reason: ConstraintsNotSatisfiable, message: no operators found in channel stable}]", reasonFailed, []string{"ResolutionFailed: ConstraintsNotSatisfiable: no operators found in channel stable"}},
		{", conditions: [{type: BundleUnpackFailed, status: 'True', message: DeadlineExceeded}]", reasonFailed, []string{"Subscription metallb-system/metallb-operator-sub: BundleUnpackFailed: DeadlineExceeded"}},
		{", conditions: [{type: CatalogSourcesUnhealthy, status: 'True', reason: UnhealthyCatalogSourceFound, message: redhat-operators missing}]", reasonMissing, []string{"redhat-operators missing"}},
		{statusFound + ", conditions: [{type: InstallPlanFailed, status: 'True', reason: InstallComponentFailed, message: forbidden}]", reasonFailed, []string{"InstallPlanFailed: InstallComponentFailed: forbidden"}},
		{", conditions: [{type: ResolutionFailed, status: 'False'}]", reasonMissing, []string{"looks for"}}, // the failure is over
	} {
		h.setSubscriptionStatus(tc.conditions)
		h.wantFault(tc.reason, tc.words...)
	}
	h.setSubscriptionStatus(statusFound)
	h.applyCSV("metallb-system", "phase: Failed, reason: UnsupportedOperatorGroup, message: OwnNamespace is not supported")
	h.wantFault(reasonFailed, "ClusterServiceVersion metallb-system/metallb-operator.v4.20.0 failed: UnsupportedOperatorGroup: OwnNamespace is not supported")

	h.applyCSV("metallb-system", "phase: Succeeded")
	h.installCRDs(lab.MetalLBOperator, lab.MetalLB)
	m := h.wanted.Apps.MetalLB
	for _, tc := range []struct {
		ranges *v1alpha1.AddressRanges
		words  string
	}{
		{nil, "IPAddressPool metallb-system/oooi does not exist, and its addresses are unknown; set metallb.ipAddressPoolRange"},
		{ranges(`"192.0.2.9-192.0.2.1"`), "ends before it starts"},
		{ranges("7"), "must be a string or an array of strings"},
	} {
		m.IPAddressPoolRange = tc.ranges
		h.wantFault(reasonFailed, tc.words)
	}
	h.wantAbsent("IPAddressPool", "metallb-system", "oooi")
	m.IPAddressPoolRange = ranges(`"192.0.2.7/29"`)
	m.AddressPoolName = "Not a name"
	h.wantFault(reasonFailed, "applying IPAddressPool metallb-system/Not a name", "Invalid value")
	m.AddressPoolName = ""

	// A webhook of a MetalLB whose pods do not run yet: no process listens on port 1.
	const webhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: metallb}
webhooks:
- name: pools.metallb.io
  clientConfig: {url: "https://127.0.0.1:1/validate"}
  rules: [{apiGroups: [metallb.io], apiVersions: ["*"], operations: [CREATE], resources: [ipaddresspools]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`
	h.apply(webhook)
	const probe = "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: probe, namespace: metallb-system}\nspec: {addresses: [203.0.113.0/32]}\n"
	lab.Poll(h, "the webhook to be called", func() bool { // the API server loads the webhook asynchronously
		err := h.cp.ApplyYAML(t.Context(), []byte(probe))
		h.delete(probe)
		return err != nil
	})
	h.wantFault(reasonMissing, "failed calling webhook")
	h.delete(webhook)
	lab.Poll(h, "the webhook not to be called", func() bool { return h.cluster.EnsureMetalLB(t.Context(), h.wanted) == nil })
	h.wantSpec("IPAddressPool", "metallb-system", "oooi", "{addresses: [192.0.2.0-192.0.2.7], autoAssign: true, avoidBuggyIPs: false}")

	// Without a range in the Infra the pool does not change.
	m.IPAddressPoolRange = nil
	h.wantFault("")
	h.wantSpec("IPAddressPool", "metallb-system", "oooi", "{addresses: [192.0.2.0-192.0.2.7], autoAssign: true, avoidBuggyIPs: false}")

	// Nothing is created without rights, or in a namespace that is being deleted.
	kubeconfig, err := h.cp.UserKubeconfig("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if fault := connect(t, kubeconfig).EnsureMetalLB(t.Context(), h.wanted); fault == nil || fault.Reason != v1alpha1.AppsIngressHostedClusterForbidden {
		t.Errorf("without rights: %v", fault)
	}
	h.delete("apiVersion: v1\nkind: Namespace\nmetadata: {name: metallb-system}\n")
	h.wantFault(reasonMissing, "Namespace metallb-system is being deleted, and will be created again")
}

func TestForeignMetalLBIsNotChanged(t *testing.T) {
	h := newHosted(t, lab.MetalLB)
	m := h.wanted.Apps.MetalLB
	ranges := m.IPAddressPoolRange

	// MetalLB installed by its manifests, in a cluster without OLM.
	h.wantFault(reasonMissing, `namespaces "metallb-system" not found`)
	h.wantAbsent("Namespace", "", "metallb-system")
	const pool = "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: theirs, namespace: metallb, labels: {net: vlan}}\nspec: {addresses: [192.0.2.100/32]}\n"
	h.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: metallb}\n---\n" + pool)
	m.IPAddressPoolRange = nil
	h.wantFault("") // MetalLB assigns an address of the existing pool
	h.wantAbsent("L2Advertisement", "metallb", "oooi")

	// A foreign pool, selected by name, keeps its spec and its advertisements.
	m.AddressPoolName, m.IPAddressPoolRange = "theirs", ranges
	before := h.get("IPAddressPool", "metallb", "theirs").GetResourceVersion()
	for _, advertisement := range []string{
		"{kind: L2Advertisement, spec: {}}", "{kind: L2Advertisement, spec: {ipAddressPools: [theirs]}}",
		"{kind: BGPAdvertisement, spec: {ipAddressPoolSelectors: [{matchLabels: {net: vlan}}]}}",
	} {
		advertisement = strings.Replace(advertisement, "{", "{apiVersion: metallb.io/v1beta1, metadata: {name: theirs-too, namespace: metallb}, ", 1)
		h.apply(advertisement)
		h.wantFault("")
		h.wantAbsent("L2Advertisement", "metallb", "theirs")
		h.delete(advertisement)
	}
	h.apply("apiVersion: metallb.io/v1beta1\nkind: L2Advertisement\nmetadata: {name: another, namespace: metallb}\nspec: {ipAddressPools: [another], ipAddressPoolSelectors: [{matchLabels: {net: lan}}]}\n")
	h.wantFault("")
	h.wantSpec("L2Advertisement", "metallb", "theirs", "{ipAddressPools: [theirs]}")
	if after := h.get("IPAddressPool", "metallb", "theirs").GetResourceVersion(); before != after {
		t.Errorf("resourceVersion of the foreign pool changed from %[2]s to %[1]s", after, before)
	}

	// Our own pool beside a foreign one.
	m.AddressPoolName, m.L2AdvertisementName = "apps", "arp"
	h.wantFault("")
	h.wantSpec("IPAddressPool", "metallb", "apps", "{addresses: [192.0.2.200-192.0.2.200, 192.0.2.210-192.0.2.219, '2001:db8::40-2001:db8::4f'], autoAssign: true, avoidBuggyIPs: false}")
	h.wantSpec("L2Advertisement", "metallb", "arp", "{ipAddressPools: [apps]}")

	// OLM is installed, but did not install MetalLB.
	h.installCRDs(lab.OLM)
	h.wantFault("")
	h.wantAbsent("Namespace", "", "metallb-system")

}

func TestForeignSubscriptionIsNotChanged(t *testing.T) {
	h := newHosted(t, lab.OLM)
	const theirs = "apiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\nmetadata: {name: my-metallb, namespace: operators}\n"
	h.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: operators}\n---\n" + theirs + "spec: {name: metallb-operator, channel: beta, source: community-operators, sourceNamespace: olm}\n")
	h.wantFault(reasonMissing, "Subscription operators/my-metallb: the Operator Lifecycle Manager looks for", "kubectl -n operators describe")
	h.setStatus(theirs + "status: {lastUpdated: 2026-01-01T00:00:00Z, conditions: [{type: ResolutionFailed, status: 'True', message: no such channel}]}\n")
	h.wantFault(reasonFailed, "Subscription operators/my-metallb: ResolutionFailed: no such channel")
	h.setStatus(theirs + "status: {lastUpdated: 2026-01-01T00:00:00Z, installedCSV: metallb-operator.v4.20.0}\n")
	h.applyCSV("operators", "phase: Succeeded")
	h.wantFault(reasonMissing, "listing IPAddressPools: the server could not find the requested resource")
	h.installCRDs(lab.MetalLBOperator, lab.MetalLB)
	h.wantFault("")
	h.wantSpec("IPAddressPool", "operators", "oooi", "{addresses: [192.0.2.200-192.0.2.200, 192.0.2.210-192.0.2.219, '2001:db8::40-2001:db8::4f'], autoAssign: true, avoidBuggyIPs: false}")
	h.apply("apiVersion: metallb.io/v1beta1\nkind: MetalLB\nmetadata: {name: metallb, namespace: operators}\nspec: {}\n")
	before := h.get("MetalLB", "operators", "metallb").GetResourceVersion()
	h.wantFault("")
	if after := h.get("MetalLB", "operators", "metallb").GetResourceVersion(); before != after {
		t.Errorf("resourceVersion of the foreign MetalLB changed from %[2]s to %[1]s", after, before)
	}
	h.wantAbsent("Namespace", "", "metallb-system")
	if err := h.cp.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	h.wantFault(v1alpha1.AppsIngressHostedClusterUnreachable, "listing Subscriptions")
}

func TestForeignObjectsInTheNamespaceAreUsedAndKept(t *testing.T) {
	h := newHosted(t, lab.OLM)
	const subscription = "apiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\nmetadata: {name: metallb-operator-sub, namespace: metallb-system}\nspec: {name: something-else, source: catalog, sourceNamespace: olm}\n"
	h.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: metallb-system}\n---\n" +
		"apiVersion: operators.coreos.com/v1\nkind: OperatorGroup\nmetadata: {name: theirs, namespace: metallb-system}\nspec: {}\n---\n" + subscription)
	h.wantFault(reasonFailed, "Subscription metallb-system/metallb-operator-sub exists and does not select metallb-operator; delete it")
	h.delete(subscription)
	h.installOperator()
	h.wantAbsent("OperatorGroup", "metallb-system", "metallb-operator")

	h.wantFault("")
	metallb := h.get("MetalLB", "metallb-system", "metallb")
	metallb.SetFinalizers([]string{"metallb.io/cleanup"})
	if err := h.client.Update(t.Context(), metallb); err != nil {
		t.Fatal(err)
	}
	if err := h.client.Delete(t.Context(), metallb); err != nil {
		t.Fatal(err)
	}
	h.wantFault(reasonMissing, "MetalLB metallb-system/metallb is being deleted, and will be created again")
	if err := h.client.Patch(t.Context(), metallb, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	h.wantFault("")
	if h.get("OperatorGroup", "metallb-system", "theirs") == nil {
		t.Error("a foreign OperatorGroup was deleted")
	}
}

// TestControlHasNoRightOnMetalLBInTheManagementCluster checks control's rights: it installs objects in hosted
// clusters with their admin kubeconfigs, and may not change the same kinds in the management cluster.
func TestControlHasNoRightOnMetalLBInTheManagementCluster(t *testing.T) {
	data := lab.ReadFile(t, "manifests", "base", "control", "rbac.yaml")
	objects, err := lab.ParseYAML(data)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, o := range objects {
		if kind := o.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		role := &rbacv1.ClusterRole{} // a Role has the same rules
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		if role.AggregationRule != nil {
			t.Errorf("%s %s aggregates other rules", o.GetKind(), o.GetName())
		}
		for _, rule := range role.Rules {
			seen++
			for _, group := range []string{"metallb.io", "operators.coreos.com", "*"} {
				if slices.Contains(rule.APIGroups, group) {
					t.Errorf("%s %s grants %v on %v of %s", o.GetKind(), o.GetName(), rule.Verbs, rule.Resources, group)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("found no rules")
	}
}
