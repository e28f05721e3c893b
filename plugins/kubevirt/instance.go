package kubevirt

import (
	"net"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/internal/objects"
)

var (
	instances = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}
	machines  = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines"}
)

// instance is what we read of a VirtualMachineInstance: a running machine.
type instance struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Created is in seconds, as in the API.
	Created metav1.Time `json:"created"`
	// Machine is the VirtualMachine that it runs; empty for one that stands alone.
	Machine string `json:"machine,omitempty"`
	// Deleted: its deletion was asked for.
	Deleted bool `json:"deleted,omitempty"`
	// Final: it has ended and runs no more.
	Final    bool   `json:"final,omitempty"`
	Hostname string `json:"hostname"`
	// Interfaces are those on the network, in the order of the specification.
	Interfaces []nic `json:"interfaces,omitempty"`
	// Addresses and Options are the annotations as written.
	Addresses string `json:"addresses,omitempty"`
	Options   string `json:"options,omitempty"`
}

// nic is an interface on the network.
type nic struct {
	Name string `json:"name"`
	// MAC is empty while nobody has given it one.
	MAC string `json:"mac,omitempty"`
}

// GetNamespace is objects.Object's, as are the next.
func (i *instance) GetNamespace() string              { return i.Namespace }
func (i *instance) GetName() string                   { return i.Name }
func (i *instance) GetUID() types.UID                 { return i.UID }
func (i *instance) GetCreationTimestamp() metav1.Time { return i.Created }

// owner is the name of the machine that the instance stands for.
func (i *instance) owner() string {
	if i.Machine != "" {
		return i.Machine
	}
	return i.Name
}

// rawInstance is the part of the API's object that is read.
type rawInstance struct {
	Metadata struct {
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Hostname string `json:"hostname"`
		Networks []struct {
			Name   string `json:"name"`
			Multus *struct {
				NetworkName string `json:"networkName"`
			} `json:"multus"`
		} `json:"networks"`
		Domain struct {
			Devices struct {
				Interfaces []struct {
					Name       string `json:"name"`
					MACAddress string `json:"macAddress"`
				} `json:"interfaces"`
			} `json:"devices"`
		} `json:"domain"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		Interfaces []struct {
			Name       string `json:"name"`
			MAC        string `json:"mac"`
			InfoSource string `json:"infoSource"`
		} `json:"interfaces"`
	} `json:"status"`
}

// decoder cuts VirtualMachineInstances down to what matters on a network.
func decoder(network string) func(*unstructured.Unstructured) objects.Object {
	return func(u *unstructured.Unstructured) objects.Object {
		var raw rawInstance
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &raw); err != nil {
			return &objects.Broken{
				ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()},
				Kind:       u.GetKind(), Error: err.Error(),
			}
		}
		annotations := u.GetAnnotations()
		return &instance{
			Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), Created: u.GetCreationTimestamp(),
			Machine:    machineOf(raw.Metadata.OwnerReferences),
			Deleted:    u.GetDeletionTimestamp() != nil,
			Final:      raw.Status.Phase == "Succeeded" || raw.Status.Phase == "Failed",
			Hostname:   hostname(raw.Spec.Hostname, u.GetName()),
			Interfaces: raw.on(network, u.GetNamespace()),
			Addresses:  annotations[AddressesAnnotation],
			Options:    annotations[OptionsAnnotation],
		}
	}
}

func machineOf(owners []metav1.OwnerReference) string {
	for _, o := range owners {
		if o.Kind == "VirtualMachine" && o.Controller != nil && *o.Controller {
			return o.Name
		}
	}
	return ""
}

// hostname is what KubeVirt's cloud provider looks for a node under: the host name of the
// specification, else the instance's, up to the first dot and as long as a label may be.
func hostname(specified, name string) string {
	if specified == "" {
		specified = name
	}
	label, _, _ := strings.Cut(specified, ".")
	return label[:min(len(label), 63)]
}

// on returns the interfaces on a network.
func (r *rawInstance) on(network, namespace string) []nic {
	var list []nic
	for _, n := range r.Spec.Networks {
		if n.Multus == nil {
			continue
		}
		name := n.Multus.NetworkName
		if !strings.Contains(name, "/") { // one beside the machine
			name = namespace + "/" + name
		}
		if name == network {
			list = append(list, nic{Name: n.Name, MAC: r.mac(n.Name)})
		}
	}
	return list
}

// mac returns the MAC address of an interface: the one that was asked for, else the one that
// the hypervisor gave it. What only the guest reports is the guest's to choose.
func (r *rawInstance) mac(name string) string {
	for _, i := range r.Spec.Domain.Devices.Interfaces {
		if mac := normal(i.MACAddress); i.Name == name && mac != "" {
			return mac
		}
	}
	for _, i := range r.Status.Interfaces {
		sources := strings.FieldsFunc(i.InfoSource, func(r rune) bool { return r == ',' || r == ' ' })
		if i.Name == name && slices.Contains(sources, "domain") {
			return normal(i.MAC)
		}
	}
	return ""
}

// normal writes an Ethernet address as Go does; what is none becomes empty.
func normal(text string) string {
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 {
		return ""
	}
	return mac.String()
}
