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

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/objects"
)

var (
	instances       = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}
	virtualMachines = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines"}
)

// An instance contains the relevant fields of a VirtualMachineInstance, which is a running VM.
type instance struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Created has a resolution of one second, as in the API.
	Created metav1.Time `json:"created"`
	// Machine is the name of the VirtualMachine that controls the instance; empty if none does.
	Machine string `json:"machine,omitempty"`
	// Deleted is set if the object has a deletion timestamp.
	Deleted bool `json:"deleted,omitempty"`
	// Final is set if the VM has ended, and Running if it runs and is not paused. MayRun is set if it runs or its phase is not
	// known.
	Final    bool   `json:"final,omitempty"`
	Running  bool   `json:"running,omitempty"`
	MayRun   bool   `json:"mayRun,omitempty"`
	Hostname string `json:"hostname"`
	// Interfaces are the interfaces on the network, in the order of the spec. The directory sets them from attachments.
	Interfaces []nic `json:"interfaces,omitempty"`
	// Addresses and Options are the unparsed annotations.
	Addresses string `json:"addresses,omitempty"`
	Options   string `json:"options,omitempty"`

	// attachments are the interfaces on all networks of Multus; nil for an instance from the snapshot file.
	attachments []attachment
	// test marks a test client, and host a host of the configuration. Neither is a VM, nor ever in the snapshot file.
	test, host bool
}

// isVM reports whether the instance is one of the API server.
func (i *instance) isVM() bool { return !i.test && !i.host }

// A nic is an interface on the network.
type nic struct {
	Name string `json:"name"`
	// MAC is empty until the interface has a MAC address.
	MAC string `json:"mac,omitempty"`
}

// An attachment is an interface with its NetworkAttachmentDefinition, "namespace/name".
type attachment struct {
	nic

	network string
}

// GetNamespace and the following methods implement objects.Object.
func (i *instance) GetNamespace() string              { return i.Namespace }
func (i *instance) GetName() string                   { return i.Name }
func (i *instance) GetUID() types.UID                 { return i.UID }
func (i *instance) GetCreationTimestamp() metav1.Time { return i.Created }

// GetDeletionTimestamp returns a non-nil time, but not the object's, if the object has a deletion timestamp. Package
// watch uses it to distinguish a deletion from a disappearance.
func (i *instance) GetDeletionTimestamp() *metav1.Time {
	if !i.Deleted {
		return nil
	}
	return &i.Created
}

// owner returns the name of the VirtualMachine that controls the instance, or the instance's name if none does.
func (i *instance) owner() string {
	if i.Machine != "" {
		return i.Machine
	}
	return i.Name
}

// rawInstance contains the fields of the API's object that are read.
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
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
		Interfaces []struct {
			Name        string   `json:"name"`
			MAC         string   `json:"mac"`
			InfoSource  string   `json:"infoSource"`
			IPAddress   string   `json:"ipAddress"`
			IPAddresses []string `json:"ipAddresses"`
		} `json:"interfaces"`
	} `json:"status"`
}

// decodeInstance reduces a VirtualMachineInstance to an instance.
func decodeInstance(u *unstructured.Unstructured) objects.Object {
	i, _, err := decode(u)
	if err != nil {
		return &objects.Broken{
			ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()},
			Kind:       u.GetKind(), Error: err.Error(),
		}
	}
	return i
}

// decode returns a VirtualMachineInstance and the fields of the API's object.
func decode(u *unstructured.Unstructured) (*instance, *rawInstance, error) {
	raw := &rawInstance{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, raw); err != nil {
		return nil, nil, err
	}
	annotations := u.GetAnnotations()
	active := u.GetDeletionTimestamp() == nil && !raw.paused()
	return &instance{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), Created: u.GetCreationTimestamp(),
		Machine:     controllingVM(raw.Metadata.OwnerReferences),
		Deleted:     u.GetDeletionTimestamp() != nil,
		Final:       raw.Status.Phase == "Succeeded" || raw.Status.Phase == "Failed",
		Running:     active && raw.Status.Phase == "Running",
		MayRun:      active && (raw.Status.Phase == "Running" || raw.Status.Phase == ""),
		Hostname:    hostname(raw.Spec.Hostname, u.GetName()),
		attachments: raw.attachments(u.GetNamespace()),
		Addresses:   annotations[v1alpha1.AnnotationDHCPAddresses],
		Options:     annotations[optionsAnnotation],
	}, raw, nil
}

// paused reports whether the VM is paused: its phase remains Running.
func (r *rawInstance) paused() bool {
	for _, c := range r.Status.Conditions {
		if c.Type == "Paused" && c.Status == "True" {
			return true
		}
	}
	return false
}

func controllingVM(owners []metav1.OwnerReference) string {
	for _, o := range owners {
		if o.Kind == "VirtualMachine" && o.Controller != nil && *o.Controller {
			return o.Name
		}
	}
	return ""
}

// hostname returns the name by which KubeVirt's cloud provider finds the node: the hostname in the spec, or else
// the name of the instance, up to the first dot and 63 characters.
func hostname(specified, name string) string {
	if specified == "" {
		specified = name
	}
	label, _, _ := strings.Cut(specified, ".")
	return label[:min(len(label), 63)]
}

// attachments returns the interfaces on networks of Multus. The result is never nil.
func (r *rawInstance) attachments(namespace string) []attachment {
	list := []attachment{}
	for _, n := range r.Spec.Networks {
		if n.Multus == nil {
			continue
		}
		list = append(list, attachment{nic{Name: n.Name, MAC: r.mac(n.Name)}, cni.Reference(namespace, n.Multus.NetworkName)})
	}
	return list
}

// mac returns the MAC address of an interface from the spec, or else from the hypervisor. Addresses that only the
// guest reports are ignored, because the guest chooses them.
func (r *rawInstance) mac(name string) string {
	for _, i := range r.Spec.Domain.Devices.Interfaces {
		if mac := normalizeMAC(i.MACAddress); i.Name == name && mac != "" {
			return mac
		}
	}
	for _, i := range r.Status.Interfaces {
		sources := strings.FieldsFunc(i.InfoSource, func(r rune) bool { return r == ',' || r == ' ' })
		if i.Name == name && slices.Contains(sources, "domain") {
			return normalizeMAC(i.MAC)
		}
	}
	return ""
}

// normalizeMAC returns an Ethernet address in Go's spelling, or "" if text is not one.
func normalizeMAC(text string) string {
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 {
		return ""
	}
	return mac.String()
}
