package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
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
func (r *Runner) outage(ctx context.Context, s *subject, result *Result) error {
	watches := s.watches()
	if len(watches) == 0 {
		result.Status, result.Reason = output.Skipped, "no component has an address on the VLAN"
		return nil
	}
	for i := range watches {
		if request := watches[i].Steps[0].DHCP; request != nil {
			request.Boots = true
		}
	}
	o := &outage{use: newUse(r, s, watches), result: result}
	o.use.deadline = outageDeadline
	servers, err := r.apiServers(ctx)
	if err != nil {
		return err
	}
	o.policy = outagePolicy(s.Infra, servers)
	for _, w := range watches {
		pods, err := r.podsOf(ctx, s, w.component)
		if err != nil {
			return err
		}
		o.pods = append(o.pods, pods...)
	}
	if following, err := o.following(ctx); len(following) < len(o.pods) {
		return errors.Join(errors.New("not all pods follow the API server even before the disruption: see 'kubectl oooi doctor'"), err)
	}
	r.Progress("cutting off the pods from the API server")
	err = o.use.run(ctx, o.follow)
	switch err = errors.Join(err, o.end(ctx)); {
	case err != nil || result.Status == output.Skipped:
		return err
	case o.ended.IsZero():
		return errEnded
	}
	o.use.addGaps(result, " while the API server is unreachable", func(*watch) gap { return others })
	return o.recover(ctx)
}

// apiServerSlice is the EndpointSlice of Service default/kubernetes, which API servers write.
const apiServerSlice = "kubernetes"

// apiServers returns the addresses behind Service default/kubernetes: network plugins apply policies after they have replaced
// the address of the Service.
func (r *Runner) apiServers(ctx context.Context) ([]netip.AddrPort, error) {
	slice := &discoveryv1.EndpointSlice{}
	if err := r.Prober.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: apiServerSlice}, slice); err != nil {
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

// An outage is the time during which our pods cannot reach the API server.
type outage struct {
	use    *use
	result *Result
	policy *networkingv1.NetworkPolicy
	pods   []corev1.Pod

	began, noticed, ended time.Time // zero until then
}

// follow creates the policy when all services answer, waits until all pods notice, deletes it after outageTime, and returns
// true some time later.
func (o *outage) follow(ctx context.Context, job *batchv1.Job) (done bool, err error) {
	now := time.Now()
	switch {
	case o.began.IsZero():
		if steady, err := o.use.steady(); !steady || err != nil {
			return false, err
		}
		o.policy.OwnerReferences = []metav1.OwnerReference{jobReference(job)}
		if err := o.use.runner.Prober.Client.Create(ctx, o.policy); err != nil {
			return false, fmt.Errorf("creating NetworkPolicy %s: %w", o.policy.Name, err)
		}
		o.began = now
	case o.noticed.IsZero():
		if following, _ := o.following(ctx); len(following) == 0 { // a pod whose problems cannot be read has ended, or is about to
			o.noticed = now
		} else if now.Sub(o.began) > noticeTime {
			o.result.Status = output.Skipped
			o.result.Reason = fmt.Sprintf("%s still followed the API server %s after a NetworkPolicy denied it: the network plugin does not enforce it, or not for "+
				"connections that exist, or another policy admits them", strings.Join(following, ", "), noticeTime)
			return true, nil
		}
	case o.ended.IsZero():
		if now.Sub(o.noticed) < outageTime {
			return false, nil
		}
		if err := o.check(ctx); err != nil {
			return false, err
		}
		o.ended = now
		return false, o.end(ctx)
	default:
		return now.Sub(o.ended) >= settle, nil
	}
	return false, nil
}

// check checks the pods at the end of the outage.
func (o *outage) check(ctx context.Context) error {
	following, unknown := o.following(ctx)
	if len(following) > 0 {
		return fmt.Errorf("%s followed the API server again before the NetworkPolicy was deleted", strings.Join(following, ", "))
	}
	for i := range o.pods {
		pod := &corev1.Pod{}
		if err := o.use.runner.Prober.Client.Get(ctx, client.ObjectKeyFromObject(&o.pods[i]), pod); err != nil {
			return fmt.Errorf("reading Pod %s: %w", o.pods[i].Name, err)
		}
		if !status.PodReady(pod) {
			o.result.fail("Pod "+pod.Name+" while the API server is unreachable", status.UnreadyReason(pod))
		}
	}
	if o.result.Status == output.Passed {
		return unknown
	}
	return nil
}

// end deletes the policy, even if ctx has ended.
func (o *outage) end(ctx context.Context) error {
	if o.policy.UID == "" {
		return nil
	}
	if err := o.use.runner.Prober.remove(ctx, o.policy.DeepCopy()); err != nil {
		return err
	}
	o.policy.UID = ""
	return nil
}

// recovered is the label of the time until all pods follow the API server again.
const recovered = "all pods follow the API server again"

// recover waits until all pods follow the API server again.
func (o *outage) recover(ctx context.Context) error {
	for {
		following, err := o.following(ctx)
		switch took := time.Since(o.ended); {
		case len(following) == len(o.pods):
			o.result.Requests = append(o.result.Requests, Request{Client: VLAN, Label: recovered, Took: metav1.Duration{Duration: took.Round(100 * time.Millisecond)}})
			return nil
		case took > followTime:
			problem := fmt.Sprintf("only %s after %s", cmp.Or(strings.Join(following, ", "), "none"), followTime)
			if err != nil {
				problem += ": " + err.Error()
			}
			o.result.fail(recovered, problem)
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// following returns the names of the pods that follow the API server. The error is about pods that do not report it.
func (o *outage) following(ctx context.Context) (list []string, unknown error) {
	for i := range o.pods {
		follows, err := o.use.runner.Prober.follows(ctx, &o.pods[i])
		unknown = errors.Join(unknown, err)
		if follows {
			list = append(list, o.pods[i].Name)
		}
	}
	return list, unknown
}
