package guest_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// No Operator Lifecycle Manager runs in these tests, nor MetalLB's operator: their APIs are
// real, and what they would write there is written by the tests, step by step.

const (
	missing = v1alpha1.AppsIngressMetalLBMissing
	failed  = v1alpha1.AppsIngressInstallFailed
)

// hosted is a hosted cluster of its own, as an administrator reaches it.
type hosted struct {
	*testing.T

	cp      *lab.ControlPlane
	client  client.Client
	cluster *guest.Cluster
	wanted  *guest.Wanted
}

func newHosted(t *testing.T, sets ...lab.CRDSet) *hosted {
	t.Helper()
	t.Parallel() // each has a control plane of its own, and mostly waits
	h := &hosted{T: t, cp: lab.New(t, lab.Config{Name: "hosted", CRDs: sets})}
	var err error
	if h.client, err = client.New(h.cp.RESTConfig(), client.Options{}); err != nil {
		t.Fatal(err)
	}
	h.cluster = connect(t, h.cp.Kubeconfig())
	h.wanted = wanted("demo")
	return h
}

func connect(t *testing.T, kubeconfig string) *guest.Cluster {
	t.Helper()
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	connector, err := guest.NewConnector()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := connector.Connect(data, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// wanted is an Infra that has MetalLB installed.
func wanted(infra string) *guest.Wanted {
	install := true
	return &guest.Wanted{
		Infra: types.NamespacedName{Namespace: "clusters", Name: infra},
		Apps: &v1alpha1.AppsIngress{Enabled: true, MetalLB: &v1alpha1.AppsIngressMetalLB{
			Install: &install, LoadBalancerClass: "metallb.io/vlan",
			IPAddressPoolRange: v1alpha1.NewAddressRanges("192.0.2.200", "192.0.2.210-192.0.2.219", "2001:db8::40/124"),
		}},
	}
}

func (h *hosted) install(sets ...lab.CRDSet) {
	h.Helper()
	if err := h.cp.InstallCRDs(h.Context(), sets...); err != nil {
		h.Fatal(err)
	}
}

func (h *hosted) apply(yaml string) {
	h.Helper()
	if err := h.cp.ApplyYAML(h.Context(), []byte(yaml)); err != nil {
		h.Fatal(err)
	}
}

func (h *hosted) delete(yaml string) {
	h.Helper()
	if err := h.cp.DeleteYAML(h.Context(), []byte(yaml)); err != nil {
		h.Fatal(err)
	}
}

// says makes a status that of an object which is there.
func (h *hosted) says(yaml string) {
	h.Helper()
	if err := h.cp.ApplyStatusYAML(h.Context(), []byte(yaml)); err != nil {
		h.Fatal(err)
	}
}

// ensure ensures MetalLB and wants a fault, with all of these words; none for no reason.
func (h *hosted) ensure(reason v1alpha1.AppsIngressReason, words ...string) {
	h.Helper()
	fault := h.cluster.EnsureMetalLB(h.Context(), h.wanted)
	if fault == nil {
		if reason != "" {
			h.Errorf("no fault, want %s %q", reason, words)
		}
		return
	}
	if fault.Reason != reason {
		h.Errorf("got %v, want reason %q", fault, reason)
	}
	for _, word := range words {
		if !strings.Contains(fault.Message, word) {
			h.Errorf("got %v, want %q in it", fault, word)
		}
	}
}

// The kinds that an installation is made of, by what they are called in tests.
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

// get returns an object; nil where it is not there, or is being deleted.
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

// spec wants an object to be ours, and its spec to be this.
func (h *hosted) spec(what, namespace, name, want string) {
	h.Helper()
	o := h.get(what, namespace, name)
	if o == nil {
		h.Errorf("%s %s is not there", what, name)
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

// absent wants an object not to be there.
func (h *hosted) absent(what, namespace, name string) {
	h.Helper()
	if o := h.get(what, namespace, name); o != nil {
		h.Errorf("%s %s/%s is there: %v", what, namespace, name, o.Object)
	}
}

// subscription says something in the status of a Subscription.
func (h *hosted) subscription(status string) {
	h.Helper()
	h.says("apiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\nmetadata: {name: metallb-operator-sub, namespace: metallb-system}\n" +
		"status: {lastUpdated: 2026-01-01T00:00:00Z" + status + "}\n")
}

// plan makes an InstallPlan in a phase.
func (h *hosted) plan(spec, status string) {
	h.Helper()
	head := "apiVersion: operators.coreos.com/v1alpha1\nkind: InstallPlan\nmetadata: {name: install-abcde, namespace: metallb-system}\n"
	h.apply(head + "spec: {clusterServiceVersionNames: [metallb-operator.v4.20.0], " + spec + "}\n")
	h.says(head + "status: {catalogSources: [], " + status + "}\n")
}

const csv = `
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: metallb-operator.v4.20.0, namespace: %[1]s}
spec: {displayName: MetalLB Operator, install: {strategy: deployment}}
`

// version makes the ClusterServiceVersion in a phase.
func (h *hosted) version(namespace, status string) {
	h.Helper()
	h.apply(fmt.Sprintf(csv, namespace))
	h.says(fmt.Sprintf("apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {name: metallb-operator.v4.20.0, namespace: %s}\nstatus: {%s}\n", namespace, status))
}

const (
	found     = ", currentCSV: metallb-operator.v4.20.0, installPlanRef: {name: install-abcde, namespace: metallb-system}"
	installed = found + ", installedCSV: metallb-operator.v4.20.0"
)

// installed has OLM install the operator, and MetalLB's API served.
func (h *hosted) installed() {
	h.Helper()
	h.ensure(missing)
	h.subscription(installed)
	h.version("metallb-system", "phase: Succeeded")
	h.install(lab.MetalLBOperator, lab.MetalLB)
}

func (h *hosted) remove(want ...string) {
	h.Helper()
	removed, err := h.cluster.RemoveMetalLB(h.Context())
	if err != nil || !slices.Equal(removed, want) {
		h.Errorf("removed %q, %v; want %q", removed, err, want)
	}
}

func TestMetalLBIsInstalledStepByStep(t *testing.T) {
	h := newHosted(t)
	no := false
	h.wanted.Apps.MetalLB.Install, h.wanted.Apps.MetalLB.AutoInstall = nil, &no
	h.ensure("")
	h.wanted.Apps.MetalLB = nil
	h.ensure("")
	h.wanted = wanted("demo")

	h.ensure(failed, "no Operator Lifecycle Manager", "operators.coreos.com is not served", "install MetalLB manually")
	h.absent("Namespace", "", "metallb-system")
	h.remove()

	h.install(lab.OLM)
	h.ensure(missing, "looks for metallb-operator", "channel stable of catalog openshift-marketplace/redhat-operators", "kubectl -n metallb-system describe subscription.operators.coreos.com/metallb-operator-sub")
	h.spec("Namespace", "", "metallb-system", "{finalizers: [kubernetes]}")
	h.spec("OperatorGroup", "metallb-system", "metallb-operator", "{upgradeStrategy: Default}") // by default
	h.spec("Subscription", "metallb-system", "metallb-operator-sub", "{name: metallb-operator, channel: stable, source: redhat-operators, sourceNamespace: openshift-marketplace}")

	h.subscription(", conditions: [{type: BundleUnpacking, status: 'True'}, {type: CatalogSourcesUnhealthy, status: 'False'}]")
	h.ensure(missing, "looks for")
	h.subscription(found)
	h.ensure(missing, "found metallb-operator.v4.20.0, which does not exist yet")
	h.plan("approval: Manual, approved: false", "phase: RequiresApproval")
	h.ensure(missing, "waits for approval", `kubectl -n metallb-system patch installplan.operators.coreos.com/install-abcde --type merge -p '{"spec":{"approved":true}}'`)
	h.plan("approval: Manual, approved: true", "phase: Installing")
	h.ensure(missing, "InstallPlan metallb-system/install-abcde is Installing and not Complete yet")
	h.subscription(installed)
	h.version("metallb-system", "phase: Installing, reason: InstallWaiting, message: 'deployment not ready'")
	h.ensure(missing, "ClusterServiceVersion metallb-system/metallb-operator.v4.20.0 is Installing and not Succeeded yet", "deployment not ready")
	h.version("metallb-system", "phase: Succeeded")
	h.ensure(missing, "MetalLB metallb-system/metallb: its API is not served yet")
	h.install(lab.MetalLBOperator)
	h.ensure(missing, "listing IPAddressPools: its API is not served yet")
	h.spec("MetalLB", "metallb-system", "metallb", "{loadBalancerClass: metallb.io/vlan}")
	h.install(lab.MetalLB)
	h.ensure("")
	h.spec("IPAddressPool", "metallb-system", "oooi", "{addresses: [192.0.2.200/32, 192.0.2.210-192.0.2.219, '2001:db8::40/124'], autoAssign: true, avoidBuggyIPs: false}") // the last by default
	h.spec("L2Advertisement", "metallb-system", "oooi", "{ipAddressPools: [oooi]}")

	// What is as wanted is not written again.
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
	h.ensure("")
	if after := versions(); !slices.Equal(before, after) {
		t.Errorf("once more, and the versions are %q, were %q", after, before)
	}

	// What the operator says of MetalLB, and OLM of the operator afterwards.
	const metallb = "apiVersion: metallb.io/v1beta1\nkind: MetalLB\nmetadata: {name: metallb, namespace: metallb-system}\n"
	condition := func(kind, status, message string) string {
		return fmt.Sprintf("{type: %s, status: %q, reason: R, message: %q, lastTransitionTime: 2026-01-01T00:00:00Z}", kind, status, message)
	}
	h.says(metallb + "status: {conditions: [" + condition("Available", "False", "") + "," + condition("Progressing", "True", "1 of 2 speakers") + "]}\n")
	h.ensure(missing, "MetalLB metallb-system/metallb is not available yet: R: 1 of 2 speakers")
	h.says(metallb + "status: {conditions: [" + condition("Available", "False", "") + "," + condition("Degraded", "True", "no such image") + "]}\n")
	h.ensure(failed, "MetalLB metallb-system/metallb is degraded: R: no such image")
	h.says(metallb + "status: {conditions: [" + condition("Available", "True", "") + "]}\n")
	h.ensure("")
	h.subscription(installed + ", conditions: [{type: CatalogSourcesUnhealthy, status: 'True'}, {type: ResolutionFailed, status: 'True'}]")
	h.ensure("")

	// What is ours follows the Infra, whoever has changed it.
	h.apply("apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: oooi, namespace: metallb-system}\nspec: {addresses: [198.51.100.0/24], avoidBuggyIPs: true}\n")
	h.apply(metallb + "spec: {loadBalancerClass: other, logLevel: debug}\n")
	h.wanted.Apps.MetalLB.OLM = &v1alpha1.MetalLBOLM{Source: "mirror", SourceNamespace: "catalogs", Channel: "4.20", StartingCSV: "metallb-operator.v4.20.0"}
	h.ensure("")
	h.spec("IPAddressPool", "metallb-system", "oooi", "{addresses: [192.0.2.200/32, 192.0.2.210-192.0.2.219, '2001:db8::40/124'], autoAssign: true, avoidBuggyIPs: true}")
	h.spec("MetalLB", "metallb-system", "metallb", "{loadBalancerClass: metallb.io/vlan, logLevel: debug}")
	h.spec("Subscription", "metallb-system", "metallb-operator-sub", "{name: metallb-operator, channel: '4.20', source: mirror, sourceNamespace: catalogs, startingCSV: metallb-operator.v4.20.0}")

	// Another Infra of the same cluster finds all of it there, and changes nothing.
	before = versions()
	h.wanted = wanted("other")
	h.wanted.Apps.MetalLB.IPAddressPoolRange = v1alpha1.NewAddressRanges("192.0.2.128/25")
	h.ensure("")
	if after := versions(); !slices.Equal(before, after) {
		t.Errorf("for another Infra, and the versions are %q, were %q", after, before)
	}
	h.wanted = wanted("demo")

	h.remove("L2Advertisement metallb-system/oooi", "IPAddressPool metallb-system/oooi", "MetalLB metallb-system/metallb",
		"ClusterServiceVersion metallb-system/metallb-operator.v4.20.0", "Subscription metallb-system/metallb-operator-sub",
		"OperatorGroup metallb-system/metallb-operator", "Namespace metallb-system")
	h.remove()
	for _, o := range [][2]string{{"OperatorGroup", "metallb-operator"}, {"Subscription", "metallb-operator-sub"}, {"ClusterServiceVersion", "metallb-operator.v4.20.0"}, {"MetalLB", "metallb"}, {"IPAddressPool", "oooi"}, {"L2Advertisement", "oooi"}} {
		h.absent(o[0], "metallb-system", o[1])
	}

	// The namespace stays terminating here, where nobody collects what was in it.
	h.ensure(missing, "the namespace is being deleted, and will be created again")
}

func TestWhatKeepsMetalLBFromBeingInstalled(t *testing.T) {
	h := newHosted(t, lab.OLM)
	h.ensure(missing)
	for _, said := range []struct {
		conditions string
		reason     v1alpha1.AppsIngressReason
		words      []string
	}{
		{", conditions: [{type: ResolutionFailed, status: 'True', reason: ConstraintsNotSatisfiable, message: no operators found in channel stable}]", failed, []string{"ResolutionFailed: ConstraintsNotSatisfiable: no operators found in channel stable"}},
		{", conditions: [{type: BundleUnpackFailed, status: 'True', message: DeadlineExceeded}]", failed, []string{"Subscription metallb-system/metallb-operator-sub: BundleUnpackFailed: DeadlineExceeded"}},
		{", conditions: [{type: CatalogSourcesUnhealthy, status: 'True', reason: UnhealthyCatalogSourceFound, message: redhat-operators missing}]", failed, []string{"redhat-operators missing"}},
		{found + ", conditions: [{type: CatalogSourcesUnhealthy, status: 'True', message: another is missing}]", missing, []string{" found "}},
		{found + ", conditions: [{type: InstallPlanFailed, status: 'True', reason: InstallComponentFailed, message: forbidden}]", failed, []string{"InstallPlanFailed: InstallComponentFailed: forbidden"}},
		{", conditions: [{type: ResolutionFailed, status: 'False'}]", missing, []string{"looks for"}}, // and it gets better
	} {
		h.subscription(said.conditions)
		h.ensure(said.reason, said.words...)
	}
	h.subscription(found)
	h.plan("approval: Automatic, approved: true", "phase: Failed, message: in short, conditions: [{type: Resolved, status: 'True'}, {type: Installed, status: 'False', reason: InstallComponentFailed, message: no such kind}]")
	h.ensure(failed, "InstallPlan metallb-system/install-abcde failed: InstallComponentFailed: no such kind")
	h.plan("approval: Automatic, approved: true", "phase: Failed, message: in short")
	h.ensure(failed, "InstallPlan metallb-system/install-abcde failed: in short")
	h.version("metallb-system", "phase: Failed, reason: UnsupportedOperatorGroup, message: OwnNamespace is not supported")
	h.ensure(failed, "ClusterServiceVersion metallb-system/metallb-operator.v4.20.0 failed: UnsupportedOperatorGroup: OwnNamespace is not supported")

	h.version("metallb-system", "phase: Succeeded")
	h.install(lab.MetalLBOperator, lab.MetalLB)
	m := h.wanted.Apps.MetalLB
	for _, bad := range []struct {
		ranges *v1alpha1.AddressRanges
		words  string
	}{
		{nil, "IPAddressPool metallb-system/oooi does not exist, and its addresses are unknown; set metallb.ipAddressPoolRange"},
		{v1alpha1.NewAddressRanges("192.0.2.9-192.0.2.1"), "ends before it starts"},
		{&v1alpha1.AddressRanges{Raw: []byte("7")}, "must be a string or an array of strings"},
	} {
		m.IPAddressPoolRange = bad.ranges
		h.ensure(failed, bad.words)
	}
	h.absent("IPAddressPool", "metallb-system", "oooi")
	m.IPAddressPoolRange = v1alpha1.NewAddressRanges("192.0.2.7/29")
	m.AddressPoolName = "Not a name"
	h.ensure(failed, "applying IPAddressPool metallb-system/Not a name", "Invalid value")
	m.AddressPoolName = ""

	// The webhook of a MetalLB whose pods do not run yet: nobody listens at port 1.
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
	h.await("the webhook to be asked", func() bool { // which takes the API server a moment
		err := h.cp.ApplyYAML(t.Context(), []byte(probe))
		h.delete(probe)
		return err != nil
	})
	h.ensure(missing, "MetalLB's webhook does not answer yet")
	h.delete(webhook)
	h.await("the webhook not to be asked", func() bool { return h.cluster.EnsureMetalLB(t.Context(), h.wanted) == nil })
	h.spec("IPAddressPool", "metallb-system", "oooi", "{addresses: [192.0.2.0/29], autoAssign: true, avoidBuggyIPs: false}")

	// Without its range the pool stays as it is.
	m.IPAddressPoolRange = nil
	h.ensure("")
	h.spec("IPAddressPool", "metallb-system", "oooi", "{addresses: [192.0.2.0/29], autoAssign: true, avoidBuggyIPs: false}")

	// Nothing of it without rights, nor in a namespace that goes.
	kubeconfig, err := h.cp.UserKubeconfig("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if fault := connect(t, kubeconfig).EnsureMetalLB(t.Context(), h.wanted); fault == nil || fault.Reason != failed || !strings.Contains(fault.Message, "forbidden") {
		t.Errorf("without rights: %v", fault)
	}
	h.delete("apiVersion: v1\nkind: Namespace\nmetadata: {name: metallb-system}\n")
	h.ensure(missing, "Namespace metallb-system is being deleted, and will be created again")
}

// await waits until something is so.
func (h *hosted) await(what string, is func() bool) {
	h.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			h.Fatal("waiting for ", what)
		}
	}
}

func TestTheMetalLBOfSomebodyElseIsLeftAlone(t *testing.T) {
	h := newHosted(t, lab.MetalLB)
	m := h.wanted.Apps.MetalLB
	ranges := m.IPAddressPoolRange

	// Installed by its manifests, in a cluster without OLM.
	h.ensure(failed, `namespaces "metallb-system" not found: create the namespace`)
	h.absent("Namespace", "", "metallb-system")
	const pool = "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: theirs, namespace: metallb, labels: {net: vlan}}\nspec: {addresses: [192.0.2.100/32]}\n"
	h.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: metallb}\n---\n" + pool)
	m.IPAddressPoolRange = nil
	h.ensure("") // MetalLB takes an address of that pool
	h.absent("L2Advertisement", "metallb", "oooi")

	// A pool of theirs by name: it is as they want it, and announced as they want it.
	m.AddressPoolName, m.IPAddressPoolRange = "theirs", ranges
	before := h.get("IPAddressPool", "metallb", "theirs").GetResourceVersion()
	for _, advertisement := range []string{
		"{kind: L2Advertisement, spec: {}}", "{kind: L2Advertisement, spec: {ipAddressPools: [theirs]}}",
		"{kind: BGPAdvertisement, spec: {ipAddressPoolSelectors: [{matchLabels: {net: vlan}}]}}",
	} {
		advertisement = strings.Replace(advertisement, "{", "{apiVersion: metallb.io/v1beta1, metadata: {name: theirs-too, namespace: metallb}, ", 1)
		h.apply(advertisement)
		h.ensure("")
		h.absent("L2Advertisement", "metallb", "theirs")
		h.delete(advertisement)
	}
	h.apply("apiVersion: metallb.io/v1beta1\nkind: L2Advertisement\nmetadata: {name: another, namespace: metallb}\nspec: {ipAddressPools: [another], ipAddressPoolSelectors: [{matchLabels: {net: lan}}]}\n")
	h.ensure("")
	h.spec("L2Advertisement", "metallb", "theirs", "{ipAddressPools: [theirs]}")
	if after := h.get("IPAddressPool", "metallb", "theirs").GetResourceVersion(); before != after {
		t.Errorf("their pool has version %s, had %s", after, before)
	}

	// A pool of ours beside theirs.
	m.AddressPoolName, m.L2AdvertisementName = "apps", "arp"
	h.ensure("")
	h.spec("IPAddressPool", "metallb", "apps", "{addresses: [192.0.2.200/32, 192.0.2.210-192.0.2.219, '2001:db8::40/124'], autoAssign: true, avoidBuggyIPs: false}")
	h.spec("L2Advertisement", "metallb", "arp", "{ipAddressPools: [apps]}")

	// OLM is there, and has nothing to do with it.
	h.install(lab.OLM)
	h.ensure("")
	h.absent("Namespace", "", "metallb-system")

	h.remove("L2Advertisement metallb/arp", "L2Advertisement metallb/theirs", "IPAddressPool metallb/apps")
	if h.get("IPAddressPool", "metallb", "theirs") == nil || h.get("L2Advertisement", "metallb", "another") == nil {
		t.Error("what is theirs was removed")
	}

	// OLM's CRDs without the operator are what is left of it; with it, somebody's.
	h.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: operators}\n")
	labelled := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ipaddresspools.metallb.io, labels: {operators.coreos.com/metallb-operator.operators: ''}}\n"
	if err := h.client.Patch(t.Context(), parse(t, labelled), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"operators.coreos.com/metallb-operator.operators":""}}}`))); err != nil {
		t.Fatal(err)
	}
	h.version("operators", "phase: Succeeded")
	h.ensure("")
	h.absent("Subscription", "metallb-system", "metallb-operator-sub")
	h.delete(fmt.Sprintf(csv, "operators"))
	h.ensure(missing, "looks for metallb-operator")
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestTheSubscriptionOfSomebodyElseIsLeftAlone(t *testing.T) {
	h := newHosted(t, lab.OLM)
	const theirs = "apiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\nmetadata: {name: my-metallb, namespace: operators}\n"
	h.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: operators}\n---\n" + theirs + "spec: {name: metallb-operator, channel: beta, source: community-operators, sourceNamespace: olm}\n")
	h.ensure(missing, "operators/my-metallb in channel beta of catalog olm/community-operators", "kubectl -n operators describe")
	h.says(theirs + "status: {lastUpdated: 2026-01-01T00:00:00Z, conditions: [{type: ResolutionFailed, status: 'True', message: no such channel}]}\n")
	h.ensure(failed, "Subscription operators/my-metallb: ResolutionFailed: no such channel")
	h.says(theirs + "status: {lastUpdated: 2026-01-01T00:00:00Z, installedCSV: metallb-operator.v4.20.0}\n")
	h.version("operators", "phase: Succeeded")
	h.ensure(missing, "Subscription operators/my-metallb, which oooi does not manage, installs the operator, but the API of MetalLB is not served yet")
	h.install(lab.MetalLBOperator, lab.MetalLB)
	h.ensure(missing, "but no MetalLB object exists; create one named metallb in namespace operators of the hosted cluster, with spec.loadBalancerClass metallb.io/vlan")
	h.spec("IPAddressPool", "operators", "oooi", "{addresses: [192.0.2.200/32, 192.0.2.210-192.0.2.219, '2001:db8::40/124'], autoAssign: true, avoidBuggyIPs: false}")
	h.apply("apiVersion: metallb.io/v1beta1\nkind: MetalLB\nmetadata: {name: metallb, namespace: operators}\nspec: {}\n")
	before := h.get("MetalLB", "operators", "metallb").GetResourceVersion()
	h.ensure("")
	if after := h.get("MetalLB", "operators", "metallb").GetResourceVersion(); before != after {
		t.Errorf("their MetalLB has version %s, had %s", after, before)
	}
	h.absent("Namespace", "", "metallb-system")
	h.remove("L2Advertisement operators/oooi", "IPAddressPool operators/oooi")
	if h.get("Subscription", "operators", "my-metallb") == nil || h.get("ClusterServiceVersion", "operators", "metallb-operator.v4.20.0") == nil || h.get("MetalLB", "operators", "metallb") == nil {
		t.Error("what is theirs was removed")
	}
	if err := h.cp.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	h.ensure(v1alpha1.AppsIngressHostedClusterUnreachable, "looking for MetalLB")
}

func TestWhatOthersHaveInTheNamespaceIsUsedAndKept(t *testing.T) {
	h := newHosted(t, lab.OLM)
	const subscription = "apiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\nmetadata: {name: metallb-operator-sub, namespace: metallb-system}\nspec: {name: something-else, source: catalog, sourceNamespace: olm}\n"
	h.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: metallb-system}\n---\n" +
		"apiVersion: operators.coreos.com/v1\nkind: OperatorGroup\nmetadata: {name: theirs, namespace: metallb-system}\nspec: {}\n---\n" + subscription)
	h.ensure(failed, "Subscription metallb-system/metallb-operator-sub exists and does not select metallb-operator; delete it")
	h.delete(subscription)
	h.installed()
	h.absent("OperatorGroup", "metallb-system", "metallb-operator")

	// MetalLB has to be gone before its operator is.
	h.ensure("")
	metallb := h.get("MetalLB", "metallb-system", "metallb")
	metallb.SetFinalizers([]string{"metallb.io/cleanup"})
	if err := h.client.Update(t.Context(), metallb); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	removed, err := h.cluster.RemoveMetalLB(ctx)
	cancel()
	// The deadline may end the wait, or the client's limit of requests that sees it come.
	if err == nil || !strings.Contains(err.Error(), "waiting for MetalLB metallb-system/metallb to be gone") || len(removed) != 3 {
		t.Errorf("removed %q, %v", removed, err)
	}
	if h.get("Subscription", "metallb-system", "metallb-operator-sub") == nil {
		t.Error("the operator is gone, and nobody cleans up after MetalLB")
	}
	h.ensure(missing, "MetalLB metallb-system/metallb is being deleted, and will be created again")
	if err := h.client.Patch(t.Context(), metallb, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	h.remove("ClusterServiceVersion metallb-system/metallb-operator.v4.20.0", "Subscription metallb-system/metallb-operator-sub")
	if h.get("OperatorGroup", "metallb-system", "theirs") == nil || h.get("Namespace", "", "metallb-system") == nil {
		t.Error("what is theirs was removed")
	}
}

func TestOurNamespaceStaysWhileOthersHaveSomethingInIt(t *testing.T) {
	h := newHosted(t, lab.OLM)
	h.installed()
	h.ensure("")
	const community = "apiVersion: metallb.io/v1beta1\nkind: Community\nmetadata: {name: theirs, namespace: metallb-system}\nspec: {}\n"
	h.apply(community)
	h.remove("L2Advertisement metallb-system/oooi", "IPAddressPool metallb-system/oooi", "MetalLB metallb-system/metallb",
		"ClusterServiceVersion metallb-system/metallb-operator.v4.20.0", "Subscription metallb-system/metallb-operator-sub",
		"OperatorGroup metallb-system/metallb-operator")
	h.delete(community)
	// A pod that nothing owns is others'; those of the operator are owned, and take a while
	// to go.
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "metallb-system", "theirs"
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if err := h.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	h.remove()
	if err := h.client.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(
		`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"operator","uid":"00000000-0000-0000-0000-000000000000"}]}}`))); err != nil {
		t.Fatal(err)
	}
	h.remove("Namespace metallb-system")
}

// What is installed in hosted clusters is installed by their administrators' credentials;
// of the same in the management cluster control is given nothing.
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
		role := &rbacv1.ClusterRole{} // whose rules are like a Role's
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		if role.AggregationRule != nil {
			t.Errorf("%s %s has the rules of others", o.GetKind(), o.GetName())
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
		t.Error("there are no rules to look at")
	}
}
