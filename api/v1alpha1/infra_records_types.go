package v1alpha1

// DNSView is a set of DNS clients that get the same responses.
//
// +kubebuilder:validation:Enum=vlan;pod
type DNSView string

const (
	// DNSViewVLAN are the clients on the VLAN.
	DNSViewVLAN DNSView = "vlan"

	// DNSViewPod are the pods of the management cluster.
	DNSViewPod DNSView = "pod"
)

// DNSRecordType is the type of DNS records.
//
// +kubebuilder:validation:Enum=A;AAAA;CNAME;SRV;TXT;PTR
type DNSRecordType string

// Types of DNS records.
const (
	DNSRecordA     DNSRecordType = "A"
	DNSRecordAAAA  DNSRecordType = "AAAA"
	DNSRecordCNAME DNSRecordType = "CNAME"
	DNSRecordSRV   DNSRecordType = "SRV"
	DNSRecordTXT   DNSRecordType = "TXT"
	DNSRecordPTR   DNSRecordType = "PTR"
)

// DNSRecord is a set of DNS records with one name and type.
//
// +kubebuilder:validation:XValidation:rule=`self.type != 'A' || self.values.all(v, v.matches(r'^([0-9]{1,3}\.){3}[0-9]{1,3}$'))`,message="must be IPv4 addresses",fieldPath=".values"
// +kubebuilder:validation:XValidation:rule=`self.type != 'AAAA' || self.values.all(v, v.matches(r'^[0-9a-fA-F:.]*:[0-9a-fA-F:.]*$'))`,message="must be IPv6 addresses",fieldPath=".values"
// +kubebuilder:validation:XValidation:rule="self.type != 'CNAME' || size(self.values) == 1",message="must be one name: CNAME has a single target",fieldPath=".values"
// +kubebuilder:validation:XValidation:rule=`!(self.type in ['CNAME', 'PTR']) || self.values.all(v, v.matches(r'^[-_0-9a-zA-Z.]*$'))`,message="must be domain names",fieldPath=".values"
// +kubebuilder:validation:XValidation:rule=`self.type != 'SRV' || self.values.all(v, v.matches(r'^([0-9]{1,5} ){3}[-_0-9a-zA-Z.]+$'))`,message="must have the form 'priority weight port target'",fieldPath=".values"
type DNSRecord struct {
	// Name is the domain name, in lower case and without a trailing dot. Its first label may be a wildcard
	// ("*.dev.example.com").
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(\*\.)?([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)+[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?$`
	Name string `json:"name"`

	// Type is the type of the records. A name with a CNAME cannot have other records.
	// +required
	Type DNSRecordType `json:"type"`

	// Values are the addresses (A, AAAA), the name (CNAME), names (PTR), services as "priority weight port target" (SRV),
	// or texts (TXT).
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Values []string `json:"values"`

	// TTL is how long clients may cache the records, in seconds. Defaults to 30.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	TTL *int32 `json:"ttl,omitempty"`

	// Views are the views with the records: vlan for the VMs, pod for the management cluster. Default: vlan.
	// +optional
	// +kubebuilder:default={vlan}
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Views []DNSView `json:"views,omitempty"`
}

// VMNames publishes the names of the VMs on the VLAN.
type VMNames struct {
	// Enabled publishes the name of every VM with a DHCP lease, and the names of the VLAN's addresses (PTR). DNS then answers
	// all queries for names of addresses in the VLAN's subnets. Rolls DNS.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// Domain is the domain of the names. Defaults to the hosted cluster's domain, so that the names of its nodes resolve.
	// Applied live.
	// +optional
	// +kubebuilder:validation:MaxLength=189
	// +kubebuilder:validation:Pattern=`^(([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)+[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?)?$`
	Domain string `json:"domain,omitempty"`

	// Views are the views with the names: vlan for the VMs, pod for the management cluster. Default: vlan. Applied live.
	// +optional
	// +kubebuilder:default={vlan}
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Views []DNSView `json:"views,omitempty"`
}

// IsEnabled reports whether names of VMs are published.
func (n *VMNames) IsEnabled() bool { return n != nil && n.Enabled }
