package model

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/selector"
)

// AppsSource says where the address of a hosted cluster's applications is read.
type AppsSource string

// The sources, as the Corefile names them.
const (
	// AppsHosted is the applications' Service inside the hosted cluster.
	AppsHosted AppsSource = "hosted"
	// AppsMirrored is the Service that KubeVirt's cloud controller mirrors into the
	// management cluster, or one of that cluster that is named.
	AppsMirrored AppsSource = "mirrored"
	// AppsStatus is the status of the Infra.
	AppsStatus AppsSource = "status"
	// AppsStatic are the addresses in the spec of the Infra.
	AppsStatic AppsSource = "static"
	// AppsLastGood are the addresses of before, kept while no source has any.
	AppsLastGood AppsSource = "last known good"
)

// AppsOptions say where applications are found. What is left out is as each Infra
// says, and a hosted cluster without an Infra that enables appsIngress has none.
type AppsOptions struct {
	// Sources are asked in this order, for every hosted cluster in scope; the first with an
	// address is believed.
	Sources []AppsSource
	// Service names the Service as "namespace/name".
	Service string
	// Selector finds the Service by labels in place of a name.
	Selector map[string]string
	// Allow are the networks whose addresses are believed.
	Allow []netip.Prefix
	// Credentials is the Secret "namespace/name" with a kubeconfig for the hosted cluster.
	Credentials string
	// Admin uses the kubeconfig that the Infra names, or that the HostedCluster publishes, in
	// place of the reader's, and tells of every change of the Service.
	Admin bool
}

// String names the options on one line: "apps", with whatever is not as the Infras say.
func (o *AppsOptions) String() string {
	words := []string{"apps"}
	for _, source := range o.Sources {
		words = append(words, "source", string(source))
	}
	if o.Service != "" {
		words = append(words, "service", o.Service)
	}
	for _, key := range slices.Sorted(maps.Keys(o.Selector)) {
		words = append(words, "selector", key+"="+o.Selector[key])
	}
	for _, prefix := range o.Allow {
		words = append(words, "allow", prefix.String())
	}
	if o.Credentials != "" {
		words = append(words, "credentials", o.Credentials)
	}
	if o.Admin {
		words = append(words, "as admin")
	}
	return strings.Join(words, " ")
}

// Apps is where the applications of a hosted cluster are reached.
type Apps struct {
	// Addresses are sorted; empty while none is known.
	Addresses []netip.Addr `json:"addresses"`
	// Source is where they were found.
	Source AppsSource `json:"source,omitempty"`
	// Withdrawn: the source says that there are none any more; these are the last ones.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// Hosted says how the Service inside the hosted cluster is followed; nil when it is not.
	Hosted *HostedAccess `json:"hosted,omitempty"`
	// Followed: the Service inside the hosted cluster is, or is known not to exist, and
	// nothing is in the way of it.
	Followed bool `json:"followed,omitempty"`
	// Infra is the one that says how they are reached; nil where a Corefile does.
	Infra *Ref `json:"infra,omitempty"`
	// Revision is the resourceVersion of that Service, for who asked as admin.
	Revision string `json:"revision,omitempty"`
}

func (a *Apps) equal(o *Apps) bool {
	if a == nil || o == nil {
		return a == o
	}
	return a.Source == o.Source && a.Withdrawn == o.Withdrawn && a.Followed == o.Followed && equalPointers(a.Infra, o.Infra) && a.Revision == o.Revision && slices.Equal(a.Addresses, o.Addresses) && a.Hosted.equal(o.Hosted)
}

// HostedAccess says how to follow the applications' Service in a hosted cluster.
type HostedAccess struct {
	// Secret holds the kubeconfig, as "namespace/name".
	Secret string `json:"secret"`
	// Key is that of the kubeconfig in the Secret's data.
	Key string `json:"key"`
	// Dial is the "host:port" to connect to in place of the kubeconfig's; empty for
	// the kubeconfig's own.
	Dial string `json:"dial,omitempty"`
	// Service is the Service as "namespace/name"; empty with a Selector.
	Service string `json:"service,omitempty"`
	// Selector finds the Service by labels.
	Selector map[string]string `json:"selector,omitempty"`
	// Revisions: every change of the Service is of interest, not those alone that we read.
	Revisions bool `json:"revisions,omitempty"`
}

func (a *HostedAccess) equal(o *HostedAccess) bool {
	if a == nil || o == nil {
		return a == o
	}
	return a.Secret == o.Secret && a.Key == o.Key && a.Dial == o.Dial && a.Service == o.Service && a.Revisions == o.Revisions && maps.Equal(a.Selector, o.Selector)
}

// AppsAnswer is what the names of the cluster's applications resolve to where
// their addresses can be reached.
func (c *Cluster) AppsAnswer() Answer {
	if c.Apps == nil {
		return Answer{}
	}
	return Answer{Served: true, Addresses: c.Apps.Addresses}
}

// identity is the cluster's key with what tells it from its namesakes: one that is made
// anew has nothing of the one before.
func (c *Cluster) identity() string {
	if c.UID == "" { // out of a file that somebody wrote
		return c.Key()
	}
	return c.Key() + " " + c.UID
}

// LastGood returns the addresses of each hosted cluster's applications, for the
// Objects of the next snapshot. They stay until they are replaced, or until nobody
// asks for the cluster's applications any more.
func (s *Snapshot) LastGood() map[string][]netip.Addr {
	kept := map[string][]netip.Addr{}
	for _, c := range s.Clusters {
		if c.Apps != nil && len(c.Apps.Addresses) > 0 && !c.standsIn() {
			kept[c.identity()] = c.Apps.Addresses
		}
	}
	return kept
}

// ReaderSecret is the Secret, beside the Infra, with the credentials that may read
// the applications' Service in the hosted cluster and nothing else.
func ReaderSecret(infra Ref) string { return infra.Namespace + "/" + infra.Name + "-apps-reader" }

// addApps finds where the applications of each cluster are reached.
func (b *builder) addApps(in *Objects, options *AppsOptions) {
	f := appsFinder{
		builder: b, options: options, spoken: spokenByVLAN(b.infras),
		hosted: map[string]*objects.AppsService{}, lastGood: in.LastGood,
	}
	for _, s := range in.AppsServices {
		f.hosted[s.Namespace+"/"+s.Name] = s
	}
	for _, c := range b.clusters {
		if len(c.AppsDomains) > 0 {
			c.Apps = f.find(c)
		}
	}
}

type appsFinder struct {
	*builder
	options  *AppsOptions
	hosted   map[string]*objects.AppsService // by hosted cluster
	lastGood map[string][]netip.Addr         // by the identity of the hosted cluster
	spoken   map[string]map[netip.Addr]bool  // by VLAN
}

// find returns where the applications of a cluster are reached, nil when nobody
// wants them to be.
func (f *appsFinder) find(c *draft) *Apps {
	infra := appsInfra(c)
	if f.options.Admin {
		c.APIServer = f.apiServer(c, infra)
	}
	sources := f.options.Sources
	if len(sources) == 0 {
		if infra == nil {
			return nil
		}
		sources = sourcesOf(infra.apps)
	}
	apps := &Apps{}
	a := asked{draft: c, apps: apps, infra: infra, about: c.Ref, allowed: f.allowed(c, infra)}
	if infra != nil {
		a.about, apps.Infra = infra.Ref, &infra.Ref
	}
	if !c.standsIn() {
		a.last = a.allowed.filter(f.lastGood[c.identity()])
		if slices.Contains(sources, AppsHosted) {
			apps.Hosted = f.access(c, infra)
		}
	}
	for _, source := range sources {
		found := f.ask(source, a)
		if len(found) == 0 {
			continue
		}
		apps.Addresses, apps.Source = found, source
		if source == AppsStatus { // what was good before, if the Service says otherwise
			apps.Withdrawn = apps.Withdrawn || infra != nil && infra.status.Reason == v1alpha1.AppsIngressAddressWithdrawn
		} else {
			apps.Withdrawn = false
		}
		return apps
	}
	if len(a.last) > 0 {
		apps.Addresses, apps.Source = a.last, AppsLastGood
	}
	return apps
}

// asked is a cluster whose applications are looked for.
type asked struct {
	*draft
	apps    *Apps  // what is found
	infra   *Infra // nil for none
	about   Ref    // what problems are about
	allowed *allowed
	last    []netip.Addr // the addresses of before, as far as they are allowed
}

// standsIn reports whether the cluster stands in for a HostedCluster that does not
// exist: nothing can be followed in it, and its key may be that of another one.
func (c *Cluster) standsIn() bool { return c.Kind != "HostedCluster" }

// appsInfra is the Infra that says how a cluster's applications are reached: the
// first that enables appsIngress.
func appsInfra(c *draft) *Infra {
	for _, i := range c.infras {
		if i.apps.IsEnabled() {
			return i
		}
	}
	return nil
}

// sourcesOf are the sources of an Infra. The status is what xdsd control read from
// the same Service, for who may not or cannot read that directly.
func sourcesOf(apps *v1alpha1.AppsIngress) []AppsSource {
	switch apps.Source {
	case v1alpha1.AppsIngressSourceStatic:
		return []AppsSource{AppsStatic}
	case v1alpha1.AppsIngressSourceMirroredService:
		return []AppsSource{AppsMirrored, AppsStatus}
	default:
		return []AppsSource{AppsHosted, AppsStatus}
	}
}

// ask returns the allowed addresses that one source has.
func (f *appsFinder) ask(source AppsSource, a asked) []netip.Addr {
	switch source {
	case AppsHosted:
		return f.askHosted(a)
	case AppsMirrored:
		return f.askMirrored(a)
	case AppsStatic:
		if a.infra != nil {
			return f.static(a)
		}
	case AppsStatus:
		if a.infra != nil && a.infra.status != nil {
			texts := a.infra.status.ExternalIPs
			if len(texts) == 0 && a.infra.status.ExternalIP != "" {
				texts = []string{a.infra.status.ExternalIP}
			}
			return f.believe(a, texts, "status of "+a.infra.String())
		}
	}
	return nil
}

// static returns the addresses that the Infra declares: as declared, save what no host can have.
func (f *appsFinder) static(a asked) []netip.Addr {
	return slices.DeleteFunc(a.infra.addresses("appsIngress.addresses", a.infra.apps.Addresses, &f.found), func(address netip.Addr) bool {
		what := reservedAddress(address, a.allowed.networks)
		if what != "" {
			f.found.add(a.infra.Ref, ReasonInvalidAddress, "spec.appsIngress.addresses: %s is the %s, which no host can have: not used", address, what)
		}
		return what != ""
	})
}

// askHosted returns what the Service inside the hosted cluster says, and reports
// why it says nothing.
func (f *appsFinder) askHosted(a asked) []netip.Addr {
	s := f.hosted[a.Key()]
	if s == nil || a.standsIn() {
		return nil // not asked yet
	}
	if s.Fault.Reason != "" {
		f.found.add(a.about, Reason(s.Fault.Reason), "%s", s.Fault.Message)
	}
	a.apps.Followed = s.Read && s.Fault.Reason == ""
	if s.Service != nil {
		a.apps.Revision = s.Service.ResourceVersion // which is kept for who asks for it
	}
	switch {
	case s.Service != nil:
		return f.askService(a, s.Service, "in "+a.String())
	case s.Read:
		f.lacking(a, a.String()+" has no Service "+f.wanted(a))
	}
	return nil
}

// askMirrored returns what the Service in the management cluster says.
func (f *appsFinder) askMirrored(a asked) []netip.Addr {
	if s := f.mirrored(a); s != nil {
		return f.askService(a, s, "for "+a.String())
	}
	f.lacking(a, "the management cluster has no Service "+f.wanted(a)+" of "+a.String())
	return nil
}

func (f *appsFinder) askService(a asked, s *objects.Service, whose string) []netip.Addr {
	what := "Service " + s.Namespace + "/" + s.Name + " " + whose
	texts := s.LoadBalancerIPs()
	if len(texts) == 0 {
		f.lacking(a, what+" has no load balancer address")
	}
	return f.believe(a, texts, what)
}

// lacking reports that a source has no address, or none any more.
func (f *appsFinder) lacking(a asked, state string) {
	if len(a.last) > 0 {
		a.apps.Withdrawn = true
		f.found.add(a.about, ReasonAddressWithdrawn, "%s any more; the last address stays in use", state)
		return
	}
	f.found.add(a.about, ReasonAddressNotAssigned, "%s", state)
}

// maxAddresses is how many addresses one source may have; a load balancer gives one
// of each family. Whoever writes the status could otherwise make every answer, and
// the list of problems, as long as he likes.
const maxAddresses = 16

// believe keeps the addresses that are allowed, and reports the others.
func (f *appsFinder) believe(a asked, texts []string, where string) []netip.Addr {
	if len(texts) > maxAddresses {
		f.found.add(a.about, ReasonAddressNotAllowed, "%s has more than %d addresses: the rest is not used", where, maxAddresses)
		texts = texts[:maxAddresses]
	}
	var list []netip.Addr
	for _, text := range texts {
		address, _ := netip.ParseAddr(text) // else not valid, and refused
		if why := a.allowed.refusal(address); why != "" {
			f.found.add(a.about, ReasonAddressNotAllowed, "%s has the address %q, which %s: not used", where, text, why)
			continue
		}
		list = append(list, address.Unmap())
	}
	return sortedAddrs(list)
}

// wanted describes the Service that is looked for.
func (f *appsFinder) wanted(a asked) string {
	if len(f.options.Selector) > 0 {
		return fmt.Sprintf("with labels %v", f.options.Selector)
	}
	return f.serviceName(a.Cluster, a.infra)
}

// serviceName is the applications' Service inside the hosted cluster.
func (f *appsFinder) serviceName(c *Cluster, infra *Infra) string {
	if f.options.Service != "" {
		return f.options.Service
	}
	var apps *v1alpha1.AppsIngress
	if infra != nil {
		apps = infra.apps
	}
	return apps.ServiceKey(c.Name).String()
}

// access says how to follow the Service inside the hosted cluster.
func (f *appsFinder) access(c *draft, infra *Infra) *HostedAccess {
	a := &HostedAccess{Secret: f.options.Credentials, Key: v1alpha1.DefaultKubeconfigKey, Selector: f.options.Selector}
	if len(a.Selector) == 0 {
		a.Service = f.serviceName(c.Cluster, infra)
	}
	switch {
	case f.options.Admin:
		a.Secret, a.Key = adminSecret(c.Cluster, infra)
		a.Revisions = true
	case a.Secret == "" && infra != nil:
		a.Secret = ReaderSecret(infra.Ref)
	}
	if infra == nil || infra.apps.Dial != v1alpha1.AppsIngressDialURL {
		a.Dial = f.apiServer(c, infra)
	}
	return a
}

// adminSecret is the Secret with the administrator's kubeconfig, "" while there is none,
// and the key in it.
func adminSecret(c *Cluster, infra *Infra) (secret, key string) {
	if infra != nil && infra.apps.KubeconfigSecretRef != nil {
		ref := infra.apps.KubeconfigSecretRef
		return infra.Namespace + "/" + ref.Name, cmp.Or(ref.Key, v1alpha1.DefaultKubeconfigKey)
	}
	return c.Kubeconfig, v1alpha1.DefaultKubeconfigKey
}

// apiServer is where the hosted cluster's API server is reached in the management
// cluster, without any name of ours; empty while its Service does not exist.
func (f *appsFinder) apiServer(c *draft, infra *Infra) string {
	name := backends[RoleAPI].Service
	if infra != nil && infra.apiService != "" {
		name = infra.apiService
	}
	s := f.index.find(c.ControlPlaneNamespace, name)
	if s == nil || len(s.Addresses()) == 0 {
		return ""
	}
	address, err := netip.ParseAddr(s.Addresses()[0])
	if err != nil {
		return ""
	}
	port := int32(portAPI)
	if len(s.Spec.Ports) > 0 {
		port = s.Spec.Ports[0].Port
	}
	return netip.AddrPortFrom(address, uint16(port)).String()
}

// Labels that KubeVirt's cloud controller puts on a mirrored Service.
const (
	labelCluster         = "cluster.x-k8s.io/cluster-name"
	labelTenantName      = "cluster.x-k8s.io/tenant-service-name"
	labelTenantNamespace = "cluster.x-k8s.io/tenant-service-namespace"
)

// MirroredLabels are the keys of the labels by which a mirrored Service is known, whatever its name.
func MirroredLabels() []string { return []string{labelCluster, labelTenantName, labelTenantNamespace} }

// mirrored finds the applications' Service in the management cluster; the newest
// where there are several, for those of destroyed guests stay behind. Labels count
// only where the cloud controller makes its Services: others could put them on a
// Service of their own.
func (f *appsFinder) mirrored(a asked) *objects.Service {
	if namespace, name, named := strings.Cut(f.options.Service, "/"); named {
		return f.index.find(namespace, name)
	}
	want := f.options.Selector
	if len(want) == 0 {
		namespace, name, _ := strings.Cut(f.serviceName(a.Cluster, a.infra), "/")
		want = map[string]string{labelCluster: a.InfraID, labelTenantName: name, labelTenantNamespace: namespace}
	}
	for _, value := range want {
		if value == "" { // not known yet
			return nil
		}
	}
	found := f.index.matching(a.ControlPlaneNamespace, want)
	if a.guests != "" && a.guests != a.ControlPlaneNamespace {
		found = append(found, f.index.matching(a.guests, want)...)
	}
	if len(found) == 0 {
		return nil
	}
	return slices.MaxFunc(found, selector.Compare)
}
