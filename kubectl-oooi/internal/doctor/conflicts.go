package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// broadcastAnswer is a host that has answered the broadcast requests of 'xdsd hold' for an address within 30 seconds.
type broadcastAnswer struct {
	Address netip.Addr `json:"address"`
	MAC     string     `json:"mac"`
	First   time.Time  `json:"first"`
	Last    time.Time  `json:"last"`
}

// minAnswering is how long a host must have answered for an address. A single announcement is no answer.
const minAnswering = 2 * time.Second

// conflict is an address of a pod, or of the replicas of the proxy, for which another host answers as well.
type conflict struct {
	broadcastAnswer

	// pod has the address; nil if it is a floating address.
	pod       *corev1.Pod
	component string
	evidence  []string
}

// conflicts returns the addresses of our pods, and the floating ones, for which hosts answer that are not our pods, by the
// broadcast requests of 'xdsd hold', sorted by address and MAC address. Replicas that both have the floating address are no
// conflict here. It omits pods that have just replaced another one, whose MAC address is still reported.
func (s *Site) conflicts() []conflict {
	pages := states[holderReport](s, holderState, AtInfra)
	replicas, replaced := map[string]string{}, false // pods of the proxy by MAC address
	for _, x := range pages {
		replicas[strings.ToLower(x.value.MAC)] = x.pod.Name
		for mac, name := range x.value.Peers {
			replicas[strings.ToLower(mac)] = name
		}
	}
	for _, pod := range s.pods(v1alpha1.ComponentProxy) {
		replaced = replaced || s.age(pod) < neighborGracePeriod
	}
	var list []conflict
	for _, x := range pages {
		for _, a := range x.value.Answers {
			component, pod, i := s.owner(a.Address)
			c := conflict{broadcastAnswer: a, pod: pod, component: component}
			floating := slices.Contains(x.value.Addresses, a.Address)
			switch {
			case a.Last.Sub(a.First) < minAnswering:
				continue
			case floating && (replaced || replicas[strings.ToLower(a.MAC)] != ""):
				continue
			case floating:
				c.component = v1alpha1.ComponentProxy
			case pod == nil || i.MAC == "" || strings.EqualFold(i.MAC, a.MAC) || s.age(pod) < neighborGracePeriod:
				continue
			default:
				c.evidence = append(c.evidence, "the pod has MAC address "+i.MAC)
			}
			c.evidence = append(c.evidence, fmt.Sprintf("broadcast requests of Pod %s were answered by %s from %s to %s", x.pod.Name, a.MAC, formatTime(a.First), formatTime(a.Last)))
			for _, o := range x.value.Answers {
				if name := replicas[strings.ToLower(o.MAC)]; o.Address == a.Address && o.MAC != a.MAC && name != "" {
					c.evidence = append(c.evidence, fmt.Sprintf("Pod %s, with MAC address %s, also answered at %s", name, o.MAC, formatTime(o.Last)))
				}
			}
			if floating && x.value.Holding {
				c.evidence = append(c.evidence, fmt.Sprintf("Pod %s, with MAC address %s, has the address", x.pod.Name, x.value.MAC))
			}
			list = append(list, c)
		}
	}
	return list
}

// age returns how long ago a pod was created.
func (s *Site) age(pod *corev1.Pod) time.Duration {
	return s.facts.Taken.Sub(pod.CreationTimestamp.Time)
}
