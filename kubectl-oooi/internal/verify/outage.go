package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
)

const (
	// noticeTime is how long the pods take at most to report that they are cut off: they give up a connection without a response
	// after 15 s, report the problem 30 s later, and network plugins apply a policy some time after it is created.
	noticeTime = 75 * time.Second
	// outageDeadline is how long the pod of the client may run.
	outageDeadline = 150 * time.Second
	// outageTime is how long the outage continues when they have noticed.
	outageTime = 10 * time.Second
	// followTime is how long they take at most to follow the API server again: some of their requests wait for a timeout.
	followTime = time.Minute
)

// outage cuts our pods off from the API server by a NetworkPolicy, while a client on the VLAN uses all services as VMs that
// have an address do.
func (t *test) outage(ctx context.Context, result *Result) error {
	u := t.site.newUse()
	if len(u.services) == 0 {
		result.skip("no component has an address on the VLAN")
		return nil
	}
	servers, err := t.apiServers(ctx)
	if err != nil {
		return err
	}
	var pods []corev1.Pod
	for _, s := range u.services {
		list, err := t.podsOf(ctx, s.component)
		if err != nil {
			return err
		}
		pods = append(pods, list...)
	}
	if following, err := t.following(ctx, pods); len(following) < len(pods) {
		return errors.Join(errors.New("not all pods follow the API server even before the disruption: see 'kubectl oooi doctor'"), err)
	}
	t.Progress("cutting off the pods from the API server")
	var ended time.Time
	err = t.disrupt(ctx, u, outageDeadline, func(ctx context.Context) (err error) {
		ended, err = t.cutOff(ctx, outagePolicy(t.site.Infra, servers), pods, result)
		return err
	})
	if err != nil || result.Status == output.Skipped {
		return err
	}
	u.addGaps(result, " while the API server is unreachable", func(*service) gap { return others })
	return t.recover(ctx, pods, ended, result)
}

// cutOff creates a policy, waits until all pods notice, and deletes the policy after outageTime. It returns when it did so, some time
// later.
func (t *test) cutOff(ctx context.Context, policy *networkingv1.NetworkPolicy, pods []corev1.Pod, result *Result) (ended time.Time, err error) {
	policy.OwnerReferences = []metav1.OwnerReference{jobReference(t.job)}
	if err := t.create(ctx, policy); err != nil {
		return ended, err
	}
	following, _, err := t.awaitFollowing(ctx, pods, 0, noticeTime) // a pod whose problems cannot be read has ended, or is about to
	switch {
	case err != nil:
		return ended, err
	case len(following) > 0:
		result.skip(fmt.Sprintf("%s still followed the API server %s after a NetworkPolicy denied it: the network plugin does not enforce it, or not for "+
			"connections that exist, or another policy admits them", strings.Join(following, ", "), noticeTime))
		return ended, nil
	}
	if err := sleep(ctx, outageTime); err != nil {
		return ended, err
	}
	if err := t.checkOutage(ctx, pods, result); err != nil {
		return ended, err
	}
	ended = time.Now()
	return ended, errors.Join(t.discard(context.WithoutCancel(ctx), policy), sleep(ctx, settle))
}

// sleep waits for a time, or returns the cause if ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// apiServerSlice is the EndpointSlice of Service default/kubernetes, which API servers write.
const apiServerSlice = "kubernetes"

// apiServers returns the addresses behind Service default/kubernetes: network plugins apply policies after they have replaced
// the address of the Service.
func (t *test) apiServers(ctx context.Context) ([]netip.AddrPort, error) {
	slice := &discoveryv1.EndpointSlice{}
	if err := t.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: apiServerSlice}, slice); err != nil {
		return nil, fmt.Errorf("reading the addresses of the API server: %w", err)
	}
	var list []netip.AddrPort
	for i := range slice.Endpoints {
		for _, text := range slice.Endpoints[i].Addresses {
			for _, port := range slice.Ports {
				if a, err := netip.ParseAddr(text); err == nil && port.Port != nil {
					list = append(list, netip.AddrPortFrom(a, uint16(*port.Port))) //nolint:gosec // a port
				}
			}
		}
	}
	if len(list) == 0 {
		return nil, errors.New("EndpointSlice default/kubernetes has no address of the API server")
	}
	return list, nil
}

// outagePolicy returns a policy that admits all connections of the Infra's pods but those to the API server. Policies are
// additive, and those of setup admit no egress; another one that admits the connections prevents the outage.
func outagePolicy(infra *v1alpha1.Infra, servers []netip.AddrPort) *networkingv1.NetworkPolicy {
	all := map[bool]*networkingv1.IPBlock{true: {CIDR: "0.0.0.0/0"}, false: {CIDR: "::/0"}}
	rules := []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{
		{NamespaceSelector: &metav1.LabelSelector{}}, {IPBlock: all[true]}, {IPBlock: all[false]},
	}}}
	port := func(protocol corev1.Protocol, first, last int32) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(first)), EndPort: &last}
	}
	const highest = 1<<16 - 1
	for _, a := range servers {
		one := netip.PrefixFrom(a.Addr(), a.Addr().BitLen()).String()
		block := all[a.Addr().Is4()]
		block.Except = append(block.Except, one)
		ports := []networkingv1.NetworkPolicyPort{port(corev1.ProtocolUDP, 1, highest)}
		if p := int32(a.Port()); p > 1 {
			ports = append(ports, port(corev1.ProtocolTCP, 1, p-1))
		}
		if p := int32(a.Port()); p < highest {
			ports = append(ports, port(corev1.ProtocolTCP, p+1, highest))
		}
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: one}}}, Ports: ports})
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: infra.Namespace, Name: infra.Name + "-" + testclient.Component + "-" + utilrand.String(5), Labels: map[string]string{
			v1alpha1.LabelInfra: infra.Name, v1alpha1.LabelComponent: testclient.Component, v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
		}},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelInfra: infra.Name}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, Egress: rules,
		},
	}
}

// checkOutage checks the pods at the end of the outage.
func (t *test) checkOutage(ctx context.Context, pods []corev1.Pod, result *Result) error {
	following, unknown := t.following(ctx, pods)
	if len(following) > 0 {
		return fmt.Errorf("%s followed the API server again before the NetworkPolicy was deleted", strings.Join(following, ", "))
	}
	for i := range pods {
		pod := &corev1.Pod{}
		if err := t.Client.Get(ctx, client.ObjectKeyFromObject(&pods[i]), pod); err != nil {
			return fmt.Errorf("reading Pod %s: %w", pods[i].Name, err)
		}
		if !status.PodReady(pod) {
			result.fail("Pod "+pod.Name+" while the API server is unreachable", status.UnreadyReason(pod))
		}
	}
	if result.Status == output.Passed {
		return unknown
	}
	return nil
}

// recover waits until all pods follow the API server again, and adds how long that took.
func (t *test) recover(ctx context.Context, pods []corev1.Pod, ended time.Time, result *Result) error {
	const label = "all pods follow the API server again"
	following, unknown, err := t.awaitFollowing(ctx, pods, len(pods), followTime)
	switch {
	case err != nil:
		return err
	case len(following) == len(pods):
		took := metav1.Duration{Duration: time.Since(ended).Round(100 * time.Millisecond)}
		result.Requests = append(result.Requests, Request{Client: VLAN, Label: label, Took: took})
	case unknown != nil:
		result.fail(label, unknown.Error())
	default:
		result.fail(label, fmt.Sprintf("only %s after %s", cmp.Or(strings.Join(following, ", "), "none"), followTime))
	}
	return nil
}

// awaitFollowing waits until a number of pods follow the API server, for at most limit, and returns following.
func (t *test) awaitFollowing(ctx context.Context, pods []corev1.Pod, number int, limit time.Duration) (list []string, unknown, err error) {
	began := time.Now()
	err = poll(ctx, func(ctx context.Context) (bool, error) {
		list, unknown = t.following(ctx, pods)
		return len(list) == number || time.Since(began) > limit, nil
	})
	return list, unknown, err
}

// following returns the names of the pods whose daemons follow the API server, according to the daemons. The error is about pods that
// do not report it.
func (t *test) following(ctx context.Context, pods []corev1.Pod) (list []string, unknown error) {
	for i := range pods {
		pod, follows := &pods[i], false
		for _, a := range site.Ask(ctx, t.clients, pod) {
			switch {
			case !slices.Contains(daemons, a.Container): // the holder of a floating address follows no objects
			case a.Report == nil:
				unknown = errors.Join(unknown, fmt.Errorf("reading the problems of Pod %s: %s", pod.Name, a.Refused+a.Silent))
			default:
				follows = !slices.ContainsFunc(a.Report.Problems, func(p problem.Problem) bool { return p.Code == problem.DataStale })
			}
		}
		if follows {
			list = append(list, pod.Name)
		}
	}
	return list, unknown
}
