package doctor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

func init() {
	register(
		Check{
			Code: "OOOI-API-003", Title: "ResourceQuotas permit the Leases of our daemons", Reads: slices.Concat(in(AtInfra, resourceQuotas), in(AtSystem, resourceQuotas, leaseObjects)),
			Run: checkLeaseQuotas,
		},
		Check{
			Code: "OOOI-API-004", Title: "admission webhooks for what our daemons write can be reached", Reads: slices.Concat(in(Everywhere, webhookKinds...), in(AtInfra, namespaces), in(AtSystem, namespaces), in(AtWebhooks, services, endpointSlices)),
			Run: checkWebhooks,
		},
		Check{
			Code: "OOOI-API-005", Title: "the API server accepts writes", After: []string{"OOOI-NODE-003"}, Reads: slices.Concat(pagesIn(AtSystem, controlState), optional(pagesIn(AtInfra, dhcpState, xdsdState))), NotApplicable: noPods(controlState, AtSystem),
			Run: checkWrites,
		},
	)
}

// webhookKinds are the kinds of webhook configurations.
var webhookKinds = []Kind{validatingWebhooks, mutatingWebhooks}

// leaseQuota is the resource of quotas that limits the number of Leases.
const leaseQuota corev1.ResourceName = "count/leases.coordination.k8s.io"

// checkLeaseQuotas finds ResourceQuotas that permit no more Leases, where a daemon creates some.
func checkLeaseQuotas(s *Site) []Finding {
	var findings []Finding
	add := func(where Where, component, consequence string) {
		for _, q := range all[corev1.ResourceQuota](s, resourceQuotas, where) {
			hard, limited := q.Status.Hard[leaseQuota]
			used := q.Status.Used[leaseQuota]
			if !limited || used.Cmp(hard) < 0 {
				continue
			}
			ref := model.Ref{Kind: resourceQuotas.Kind, Namespace: q.Namespace, Name: q.Name}
			findings = append(findings, failed(ref, fmt.Sprintf("raise %s in the ResourceQuota, or delete it: kubectl -n %s edit resourcequota %s", leaseQuota, q.Namespace, q.Name),
				"the namespace has %s of at most %s Leases: %s", used.String(), hard.String(), consequence).of(component))
		}
	}
	if disabled(v1alpha1.ComponentDHCP)(s) == "" {
		add(AtInfra, v1alpha1.ComponentDHCP, "coredhcp cannot create another one, and clients without an address get none")
	}
	if !slices.ContainsFunc(all[coordinationv1.Lease](s, leaseObjects, AtSystem), func(l *coordinationv1.Lease) bool { return l.Name == render.ControlName }) {
		add(AtSystem, componentControl, "control cannot create its Lease, and no replica leads")
	}
	return findings
}

// A write is a request that a daemon sends to the API server.
type write struct {
	group, version, resource string
	operations               []admissionv1.OperationType
	where                    Where
	component                string
	consequence              string // of a rejection
}

// writes are the requests without which a component does not work, or its status is outdated.
var writes = []write{
	{"coordination.k8s.io", "v1", "leases", []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}, AtInfra, v1alpha1.ComponentDHCP, "coredhcp cannot write leases, and clients without an address get none"},
	{"coordination.k8s.io", "v1", "leases", []admissionv1.OperationType{admissionv1.Update}, AtSystem, componentControl, "no replica of control can lead"},
	{v1alpha1.GroupName, v1alpha1.SchemeGroupVersion.Version, "infras/status", []admissionv1.OperationType{admissionv1.Update}, AtInfra, componentControl, "control cannot write the status of the Infra, which is outdated"},
	{v1alpha1.GroupName, v1alpha1.SchemeGroupVersion.Version, "proxyservers/status", []admissionv1.OperationType{admissionv1.Update}, AtInfra, v1alpha1.ComponentProxy, "xdsd cannot write the status of the ProxyServer, which is outdated"},
}

// A webhook is an entry of a webhook configuration.
type webhook struct {
	*admissionv1.ValidatingWebhook // those of mutating ones have the same fields

	configuration model.Ref
}

// String returns the name of the webhook and of its configuration.
func (w webhook) String() string {
	return fmt.Sprintf("webhook %q of %s %s", w.Name, w.configuration.Kind, w.configuration.Name)
}

// edit returns the command that edits the configuration.
func (w webhook) edit() string {
	return "kubectl edit " + strings.ToLower(w.configuration.Kind) + " " + w.configuration.Name
}

// webhooks returns all webhooks; none if they cannot be read. Configurations that cannot be decoded are omitted: the API
// server validates them.
func (f *Facts) webhooks() []webhook {
	var list []webhook
	for _, kind := range webhookKinds {
		for _, u := range f.list(kind, "") {
			c, err := decodeOnce[admissionv1.ValidatingWebhookConfiguration](f, u)
			if err != nil {
				continue
			}
			for i := range c.Webhooks {
				list = append(list, webhook{&c.Webhooks[i], refTo(u)})
			}
		}
	}
	return list
}

// required returns the webhooks without which the API server rejects a write: those with failurePolicy Fail that certainly
// match it. It does not evaluate match conditions and selectors of objects.
func (s *Site) required(w *write) []webhook {
	var list []webhook
	for _, namespace := range s.namespaces[w.where] {
		spaces := s.facts.list(namespaces, namespace)
		for _, hook := range s.facts.webhooks() {
			if hook.FailurePolicy != nil && *hook.FailurePolicy != admissionv1.Fail || len(hook.MatchConditions) > 0 || !hook.matches(w) {
				continue
			}
			every, _ := knownLabels{}.match(hook.ObjectSelector)
			if hook.ObjectSelector != nil && !every || !slices.ContainsFunc(spaces, hook.selects) {
				continue
			}
			list = append(list, hook)
		}
	}
	return list
}

// selects reports whether the webhook is called for objects of a namespace.
func (w webhook) selects(namespace *unstructured.Unstructured) bool {
	certainly, _ := knownLabels{labels.Set(namespace.GetLabels()), true}.match(w.NamespaceSelector)
	return w.NamespaceSelector == nil || certainly
}

// matches reports whether a rule of the webhook is about a write.
func (w webhook) matches(of *write) bool {
	return slices.ContainsFunc(w.Rules, func(r admissionv1.RuleWithOperations) bool {
		has := func(list []string, texts ...string) bool {
			return slices.ContainsFunc(list, func(t string) bool { return slices.Contains(texts, t) })
		}
		resources := []string{of.resource, "*/*"}
		if resource, subresource, ok := strings.Cut(of.resource, "/"); ok {
			resources = append(resources, resource+"/*", "*/"+subresource)
		} else {
			resources = append(resources, "*")
		}
		scoped := r.Scope == nil || *r.Scope != admissionv1.ClusterScope
		return scoped && has(r.APIGroups, of.group, "*") && has(r.APIVersions, of.version, "*") && has(r.Resources, resources...) &&
			slices.ContainsFunc(r.Operations, func(o admissionv1.OperationType) bool {
				return o == admissionv1.OperationAll || slices.Contains(of.operations, o)
			})
	})
}

// webhookNamespaces returns the namespaces of the Services of webhooks without which writes of our daemons are rejected.
func (s *Site) webhookNamespaces() []string {
	named := map[string]bool{}
	for i := range writes {
		for _, hook := range s.required(&writes[i]) {
			if service := hook.ClientConfig.Service; service != nil {
				named[service.Namespace] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(named))
}

// checkWebhooks finds webhooks without which writes of our daemons are rejected, and whose Service leads nowhere.
func checkWebhooks(s *Site) []Finding {
	ready := map[string]bool{}
	for _, slice := range s.endpointSlicesIn(AtWebhooks) {
		for _, e := range slice.Endpoints {
			if e.Conditions.IsReady() {
				ready[slice.Service()] = true
			}
		}
	}
	existing := map[string]bool{}
	for _, u := range s.list(services, AtWebhooks) {
		existing[refTo(u).Key()] = true
		if kind, _, _ := unstructured.NestedString(u.Object, "spec", "type"); kind == string(corev1.ServiceTypeExternalName) {
			ready[refTo(u).Key()] = true // unknown
		}
	}
	var findings []Finding
	for i := range writes {
		w := &writes[i]
		if w.component != componentControl && disabled(w.component)(s) != "" {
			continue
		}
		for _, hook := range s.required(w) {
			service := hook.ClientConfig.Service
			if service == nil || s.facts.partial && (len(s.facts.list(services, service.Namespace)) == 0 || len(s.facts.list(endpointSlices, service.Namespace)) == 0) {
				continue // unknown
			}
			key := service.Namespace + "/" + service.Name
			why := "its Service " + key + " has no ready endpoint"
			if !existing[key] {
				why = "its Service " + key + " does not exist"
			} else if ready[key] {
				continue
			}
			findings = append(findings, failed(hook.configuration, unreachableRemedy(hook, s.namespaces[w.where][0]), "webhook %q cannot be reached: %s; %s", hook.Name, why, w.consequence).of(w.component))
		}
	}
	return findings
}

// unreachableRemedy returns the remedy for a webhook that cannot be called for objects of a namespace.
func unreachableRemedy(w webhook, namespace string) string {
	remedy := fmt.Sprintf("exclude namespace %s in its namespaceSelector, set its failurePolicy to Ignore, or delete the configuration if its server was removed: %s", namespace, w.edit())
	if service := w.ClientConfig.Service; service != nil {
		remedy = fmt.Sprintf("start the webhook's server (kubectl -n %s get services,endpointslices,pods); or ", service.Namespace) + remedy
	}
	return remedy
}

// Errors of the API server about admission.
var (
	quotaError   = regexp.MustCompile(`exceeded quota: ([^,\s]+), requested: ([^,=\s]+)`)
	webhookError = regexp.MustCompile(`(failed calling|admission) webhook "([^"]+)"`)
	policyError  = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)'`)
)

// rejection returns what in a namespace rejects a request, by the error of the API server, and the remedy; empty if the
// error does not say so. The configuration of a webhook is named if it can be read.
func (s *Site) rejection(namespace, err string) (by, remedy string) {
	if m := quotaError.FindStringSubmatch(err); m != nil {
		return fmt.Sprintf("ResourceQuota %s/%s permits no more %s", namespace, m[1], m[2]),
			fmt.Sprintf("raise %s in the ResourceQuota, or delete it: kubectl -n %s edit resourcequota %s", m[2], namespace, m[1])
	}
	if m := webhookError.FindStringSubmatch(err); m != nil {
		calls := m[1] == "failed calling"
		all := s.facts.webhooks()
		at := slices.IndexFunc(all, func(w webhook) bool { return w.Name == m[2] })
		switch {
		case at < 0:
			return fmt.Sprintf("admission webhook %q rejects them", m[2]),
				"find the configuration with this webhook, and correct it: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml"
		case calls:
			return all[at].String() + " cannot be reached", unreachableRemedy(all[at], namespace)
		default:
			return all[at].String() + " denies them", fmt.Sprintf("correct what the webhook denies, or exclude %s in its namespaceSelector: %s", s.ourNamespaces(), all[at].edit())
		}
	}
	if m := policyError.FindStringSubmatch(err); m != nil {
		return "ValidatingAdmissionPolicy " + m[1] + " denies them", fmt.Sprintf("correct the policy, or exclude %s in its binding: kubectl edit validatingadmissionpolicy %s", s.ourNamespaces(), m[1])
	}
	return "", ""
}

// ourNamespaces names the namespaces in which our daemons write: what denies the requests of one daemon often denies those
// of the others, which may not have sent one yet.
func (s *Site) ourNamespaces() string {
	return "namespaces " + s.Infra.Namespace + " and " + render.SystemNamespace
}

// Errors of the API server because of which it accepts no writes at all: etcd has no space, or too few members.
var (
	fullError   = regexp.MustCompile(`etcdserver: (mvcc: )?(database space exceeded|no space)`)
	quorumError = regexp.MustCompile(`etcdserver: (no leader|request timed out)`)
)

// checkWrites finds an API server that accepts no writes, by the last requests of our daemons.
func checkWrites(s *Site) []Finding {
	var full, readOnly []string
	add := func(pod *corev1.Pod, what, err string) {
		text := fmt.Sprintf("Pod %s: %s: %s", pod.Name, what, err)
		switch {
		case fullError.MatchString(err):
			full = append(full, text)
		case quorumError.MatchString(err):
			readOnly = append(readOnly, text)
		}
	}
	for _, r := range states[controlReport](s, controlState, AtSystem) {
		add(r.pod, "Lease "+render.SystemNamespace+"/"+render.ControlName, r.value.Election)
		for _, f := range r.value.StatusFailures {
			add(r.pod, fmt.Sprintf("status of %s %s/%s", f.Kind, f.Namespace, f.Name), formatTime(f.At)+": "+f.Error)
		}
	}
	for _, d := range states[dhcpReport](s, dhcpState, AtInfra) {
		for _, l := range d.value.Leasedb {
			for _, operation := range slices.Sorted(maps.Keys(l.Operations)) {
				if o := l.Operations[operation]; o.Failed.After(o.Succeeded) {
					add(d.pod, "lease store operation "+operation, formatTime(o.Failed)+": "+o.Error)
				}
			}
		}
	}
	for _, x := range states[xdsdReport](s, xdsdState, AtInfra) {
		add(x.pod, "status of the ProxyServer", x.value.StatusFailure)
	}
	const consequence = "new VMs get no address, no pod is replaced, and statuses of Infras are outdated; VMs keep their addresses, and DNS and the proxy serve what they know"
	switch {
	case len(full) > 0:
		return []Finding{failed(s.ref(), "on a member of the management cluster's etcd: compact it (etcdctl compact REVISION, with the revision of 'etcdctl endpoint status -w json'), defragment all members (etcdctl defrag --cluster), and disarm the alarm (etcdctl alarm disarm); then find what fills it, or raise its quota",
			"the API server of the management cluster accepts no writes, because the database of etcd is full: %s", consequence).because(full...)}
	case len(readOnly) > 0:
		return []Finding{failed(s.ref(), "check the members of the management cluster's etcd, of which a majority must run and reach each other: etcdctl endpoint status --cluster",
			"the API server of the management cluster accepts no writes, because etcd has no leader or does not answer: %s", consequence).because(readOnly...)}
	}
	return nil
}
