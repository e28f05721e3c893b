package doctor

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// knownLabels are the labels that are known of an object. It may have others, unless complete is set.
type knownLabels struct {
	labels.Set
	complete bool
}

// match reports whether a selector certainly selects the object, and whether it may select it. An invalid selector
// selects nothing.
func (k knownLabels) match(selector *metav1.LabelSelector) (certainly, possibly bool) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, false
	}
	requirements, selectable := s.Requirements()
	certainly, possibly = selectable, selectable
	for i := range requirements {
		known, holds := k.complete || k.Has(requirements[i].Key()), requirements[i].Matches(k.Set)
		certainly = certainly && known && holds
		possibly = possibly && (holds || !known)
	}
	return certainly, possibly
}

// A policyPeer is one side of a connection in the pod network.
type policyPeer struct {
	// namespace is that of a pod; empty for a host outside of the pod network, which no selector selects.
	namespace string
	pod       knownLabels // labels of the pod
	space     knownLabels // labels of its namespace
	// address is invalid if it is unknown.
	address netip.Addr
	// unknown means that the peer may be any pod or host.
	unknown bool
}

// A policyRule is an ingress or egress rule of a NetworkPolicy.
type policyRule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

// policyRules returns the rules of a policy for a direction; applies is false if it does not restrict the direction.
func policyRules(p *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) (rules []policyRule, applies bool) {
	if direction == networkingv1.PolicyTypeEgress {
		for _, r := range p.Spec.Egress {
			rules = append(rules, policyRule{r.To, r.Ports})
		}
		return rules, slices.Contains(p.Spec.PolicyTypes, direction) || len(p.Spec.PolicyTypes) == 0 && len(rules) > 0
	}
	for _, r := range p.Spec.Ingress {
		rules = append(rules, policyRule{r.From, r.Ports})
	}
	return rules, slices.Contains(p.Spec.PolicyTypes, direction) || len(p.Spec.PolicyTypes) == 0
}

// admits reports whether a rule of a policy in a namespace may admit connections with a peer at a port.
func (r policyRule) admits(namespace string, other policyPeer, protocol corev1.Protocol, port int32) bool {
	return r.admitsPort(protocol, port) && r.admitsPeer(namespace, other)
}

func (r policyRule) admitsPort(protocol corev1.Protocol, port int32) bool {
	return len(r.ports) == 0 || slices.ContainsFunc(r.ports, func(p networkingv1.NetworkPolicyPort) bool {
		switch {
		case p.Protocol != nil && *p.Protocol != protocol, p.Protocol == nil && protocol != corev1.ProtocolTCP:
			return false
		case p.Port == nil || p.Port.Type == intstr.String: // a named port may be this one
			return true
		case p.EndPort != nil:
			return p.Port.IntVal <= port && port <= *p.EndPort
		default:
			return p.Port.IntVal == port
		}
	})
}

func (r policyRule) admitsPeer(namespace string, other policyPeer) bool {
	return len(r.peers) == 0 || other.unknown || slices.ContainsFunc(r.peers, func(p networkingv1.NetworkPolicyPeer) bool {
		switch {
		case p.IPBlock != nil:
			return !other.address.IsValid() || blockContains(p.IPBlock, other.address)
		case other.namespace == "", p.NamespaceSelector == nil && other.namespace != namespace:
			return false
		case p.NamespaceSelector != nil:
			if _, possibly := other.space.match(p.NamespaceSelector); !possibly {
				return false
			}
		}
		if p.PodSelector == nil {
			return true
		}
		_, possibly := other.pod.match(p.PodSelector)
		return possibly
	})
}

// blockContains reports whether an ipBlock contains an address. A block that cannot be parsed contains none.
func blockContains(block *networkingv1.IPBlock, a netip.Addr) bool {
	contains := func(cidr string) bool {
		p, err := netip.ParsePrefix(cidr)
		return err == nil && p.Contains(a)
	}
	return contains(block.CIDR) && !slices.ContainsFunc(block.Except, contains)
}

// policySet are the NetworkPolicies of some namespaces.
type policySet []*networkingv1.NetworkPolicy

// deny returns the policies that deny a connection between a pod and another peer: those that select the pod, if no rule
// admits the connection. It returns nil if the connection is admitted, or if that depends on unknown labels.
// It evaluates the rules; whether the network plugin enforces them is unknown.
func (all policySet) deny(pod policyPeer, direction networkingv1.PolicyType, other policyPeer, protocol corev1.Protocol, port int32) policySet {
	var selecting policySet
	for _, p := range all {
		if p.Namespace != pod.namespace {
			continue
		}
		rules, applies := policyRules(p, direction)
		certainly, possibly := pod.pod.match(&p.Spec.PodSelector)
		if !applies || !possibly {
			continue
		}
		if slices.ContainsFunc(rules, func(r policyRule) bool { return r.admits(p.Namespace, other, protocol, port) }) {
			return nil
		}
		if certainly {
			selecting = append(selecting, p)
		}
	}
	slices.SortFunc(selecting, func(a, b *networkingv1.NetworkPolicy) int { return cmp.Compare(a.Name, b.Name) })
	return selecting
}
