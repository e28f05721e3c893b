// Package testclient defines the Lease object with which 'kubectl oooi test' registers a DHCP client: its MAC address
// is served like a VM's until the Lease is deleted or expires.
package testclient

import (
	"fmt"
	"net"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Component is the value of v1alpha1.LabelComponent on the objects of 'kubectl oooi test'.
const Component = "test"

// MaxAge is the longest time that a client is registered, even if its Lease expires later.
const MaxAge = 10 * time.Minute

// A Client is a registered DHCP client.
type Client struct {
	Namespace, Name string
	MAC             net.HardwareAddr
	Created         metav1.Time
	// Expires is computed from the creation time that the API server has set.
	Expires time.Time
}

// VM returns the name under which DHCP serves a client. No VM can have it.
func VM(name string) string { return Component + ":" + name }

// IsVM reports whether VM returns this name for a client.
func IsVM(name string) bool { return strings.HasPrefix(name, VM("")) }

// Selector returns the label selector of the clients of an Infra.
func Selector(infra string) string {
	return v1alpha1.LabelInfra + "=" + infra + "," + v1alpha1.LabelComponent + "=" + Component
}

// Object returns the Lease of a client of an Infra, without the creation time. Its age is limited to MaxAge.
func Object(namespace, infra, name string, mac net.HardwareAddr, age time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			v1alpha1.LabelInfra: infra, v1alpha1.LabelComponent: Component, v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
		}},
		//nolint:gosec // at most MaxAge
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new(mac.String()), LeaseDurationSeconds: new(int32(min(age, MaxAge) / time.Second))},
	}
}

// Decode returns the client of a Lease, or an error if the Lease does not describe one.
func Decode(o *coordinationv1.Lease) (*Client, error) {
	if o.Spec.HolderIdentity == nil || o.Spec.LeaseDurationSeconds == nil || *o.Spec.LeaseDurationSeconds <= 0 {
		return nil, fmt.Errorf("lease %s/%s of a test client: spec.holderIdentity or spec.leaseDurationSeconds is missing", o.Namespace, o.Name)
	}
	mac, err := net.ParseMAC(*o.Spec.HolderIdentity)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("lease %s/%s of a test client: spec.holderIdentity %q is not an Ethernet address", o.Namespace, o.Name, *o.Spec.HolderIdentity)
	}
	age := min(time.Duration(*o.Spec.LeaseDurationSeconds)*time.Second, MaxAge)
	return &Client{Namespace: o.Namespace, Name: o.Name, MAC: mac, Created: o.CreationTimestamp, Expires: o.CreationTimestamp.Add(age)}, nil
}
