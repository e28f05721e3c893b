package doctor

// A fault is a finding of a check's own Run, as the documentation shows it. Findings of problems are documented by their kinds.
type fault struct {
	severity, finding, remedy string
}

// Severities of a fault.
const (
	fails        = string(Fail)
	warns        = string(Warn)
	failsOrWarns = fails + " or " + warns
)

const (
	setupAgain     = "run `kubectl oooi setup -f FILE` with the Infra's file; `kubectl oooi diff -f FILE` shows the changes before"
	forceAgain     = "run `kubectl oooi setup -f FILE --force-conflicts` with the Infra's file, which takes the fields from other clients"
	seeCondition   = "correct the fault that the message names; see the logs of the component's pods"
	falseCondition = "the condition is false"
)

// faults are the findings of checks by code.
var faults = map[string][]fault{
	"OOOI-API-001": {
		{fails, "a CustomResourceDefinition does not exist", setupAgain},
		{fails, "it is not established", "see its conditions: `kubectl describe crd infras.hostedcluster.densityops.com`"},
		{fails, "it does not serve the version that this release requires",
			"install the newest release of kubectl-oooi that was ever deployed here, and run setup and doctor with it"},
	},
	"OOOI-API-002": {
		{warns, "a permission is missing", "let an administrator bind ClusterRole `oooi-doctor` to you: docs/reference/doctor.md"},
		{warns, "the API server did not respond", "run doctor again when it responds; if an API is unavailable, see `kubectl get apiservices`"},
	},
	"OOOI-NODE-001": {
		{failsOrWarns, "a node is not ready (fails), or has memory, disk or PID pressure (warns)",
			"correct the fault that its conditions name: `kubectl describe node NODE`"},
		{failsOrWarns, "a node is cordoned, and pods wait for a node; fails if all nodes are", "`kubectl uncordon NODE`"},
	},
	"OOOI-CTL-001": {
		{fails, "the Deployment does not exist", setupAgain},
		{fails, "it is scaled to 0 replicas", "`kubectl -n oooi-system scale deployment oooi-control --replicas=2`"},
		{fails, "no replica is available", "see its pods: `kubectl -n oooi-system describe pods`"},
	},
	"OOOI-CTL-004": {
		{fails, "another client holds the Lease", "find the client with `kubectl -n oooi-system get lease oooi-control -o yaml --show-managed-fields`, " +
			"and delete the Lease"},
		{fails, "no replica has renewed the Lease for a minute", "see the logs: `kubectl -n oooi-system logs deployment/oooi-control`"},
	},
	"OOOI-CTL-002": {{fails, "the status is for an earlier generation", "see control's log: `kubectl -n oooi-system logs deployment/oooi-control`"}},
	"OOOI-INF-001": {{failsOrWarns, "the message names the field and the reason; warns if all parts of the Infra are served",
		"correct the field in the file; " + forceAgain}},
	"OOOI-HC-001": {
		{fails, "the cluster does not serve HostedClusters", "run doctor against the management cluster, or install HyperShift there"},
		{fails, "the hosted cluster does not exist", "set `spec.hostedClusterRef` of the Infra to an existing HostedCluster: `kubectl get hostedclusters -A`"},
		{warns, "the HostedCluster is being deleted", "run `kubectl oooi teardown NAME` when it is deleted"},
	},
	"OOOI-HC-002": {{failsOrWarns, "a condition of the HostedCluster has another status than in a healthy cluster; fails if nodes cannot work without it",
		"see the conditions of the HostedCluster: `kubectl -n NAMESPACE describe hostedcluster NAME`"}},
	"OOOI-HC-003": {{fails, "the message names the service", "publish the service under a name: docs/how-to/publish-services.md"}},
	"OOOI-HC-004": {
		{fails, "the VMs of a NodePool are not on the network",
			"add the network to `spec.platform.kubevirt.additionalNetworks`, and let the NodePool roll out"},
		{fails, "no NodePool is on the network", "add the network to a NodePool, or delete the Infra with teardown"},
		{warns, "a VM is not on the network", "compare the configurations of the NetworkAttachmentDefinitions, or restart the VM if its NodePool was changed"},
	},
	"OOOI-NET-001": {
		{fails, "the cluster does not serve NetworkAttachmentDefinitions", "install Multus"},
		{fails, "the NetworkAttachmentDefinition does not exist", "create it, or set another network (`NAMESPACE/NAME`) in the Infra"},
	},
	"OOOI-NET-002": {
		{fails, "`spec.config` is invalid", "correct it"},
		{fails, "`ipam` of type `dhcp`", "remove `ipam` (in a ClusterUserDefinedNetwork: `ipam: {mode: Disabled}`), and restart the VMs"},
		{fails, "another field that assigns addresses", "remove the field, and restart the VMs"},
	},
	"OOOI-NET-009": {{fails, "the configuration was changed after setup",
		"undo the change to `spec.config`; only if the VMs use the changed network, run setup, which moves the pods"}},
	"OOOI-NET-008": {{fails, "Multus rejects the pods of VMs", "use a NetworkAttachmentDefinition in the VMs' namespace: docs/how-to/openshift.md"}},
	"OOOI-NET-005": {
		{fails, "the network is a macvlan or ipvlan", "use a bridge (type `cnv-bridge` or `bridge`) or a localnet of OVN-Kubernetes"},
		{warns, "the network has `macspoofchk`, and a VM has no `macAddress`", "remove `macspoofchk`, or set `macAddress` in the VMs' specs"},
		{fails, "a VM and its pod have different MAC addresses, as after a migration", "restart the VM, set `macAddress` in its spec, or remove `macspoofchk`"},
	},
	"OOOI-NET-004": {{fails, "a VM has an address that another VM, the gateway or a component has",
		"find the source of the address: a setting in the VM, or another DHCP server"}},
	codeDrift: {
		{failsOrWarns, "an object does not exist (warns for a PodDisruptionBudget)", setupAgain},
		{warns, "an object is left from an earlier setup, or an older version deployed it", setupAgain},
		{failsOrWarns, "fields were changed; fails if a component's pods are not ready, or for a Service", forceAgain},
		{fails, "the Infra was changed after the last setup", "undo the change, or " + forceAgain},
		{warns, "setup would reject the object", "correct the fault that the message names; " + forceAgain},
	},
	"OOOI-OLD-002": {{warns, "objects of an Infra or standalone ProxyServer that does not exist remain", "`kubectl oooi teardown NAME -n NAMESPACE`"}},
	"OOOI-POD-001": {{fails, "a StatefulSet does not exist, or is scaled to 0 replicas", setupAgain}},
	"OOOI-POD-005": {{fails, "the API server rejects the pod", "correct the fault that the message names; the StatefulSet then creates the pod"}},
	"OOOI-POD-002": {
		{fails, "a pod is not ready", "correct the fault that the message and the pod's events name: `kubectl -n NAMESPACE describe pod POD`; if other clients " +
			"changed objects, " + forceAgain},
		{fails, "the pod has an earlier template", "delete the pod: its StatefulSet does not replace pods that are not ready"},
		{fails, "a StatefulSet has no pod", "see its events: `kubectl -n NAMESPACE describe statefulset NAME`"},
	},
	"OOOI-POD-003": {
		{warns, "a container exceeded its memory limit", "raise the memory limit in the component's resources in the Infra"},
		{warns, "a container restarted twice or more, the last time within an hour",
			"see the log of its previous run: `kubectl -n NAMESPACE logs POD -c CONTAINER --previous`"},
	},
	"OOOI-NET-003": {
		{fails, "a pod lacks Multus' annotation", "find the webhook or policy that changes pods, exempt oooi's pods, and delete the pod"},
		{fails, "a pod lacks its address", "see Multus' log on the node, and check that the nodes have the CNI plugins `static` and `sbr`"},
	},
	"OOOI-POD-014": {{warns, "a daemon does not respond", "see its log, and delete the pod; if the new pod does not respond either, check for a " +
		"NetworkPolicy that denies connections from the API server's nodes"}},
	"OOOI-DHCP-006": {
		{fails, "option 6 sets other DNS servers", "remove the option; add upstream resolvers to `networkConfig.dnsServers`"},
		{fails, "option 26 sets another MTU than the network's", "remove the option, or set it to the MTU of the network"},
	},
	"OOOI-DHCP-001": {{fails, falseCondition, seeCondition}},
	"OOOI-DHCP-011": {{fails, "a VM lacks the label", "if the VM is a node of the hosted cluster, restore the label " +
		"`hypershift.openshift.io/infra-id`, and restore it in `spec.template.metadata.labels` of its VirtualMachine"}},
	"OOOI-DHCP-015": {
		{fails, "a VM requests an address with an interface on another network", "set `networkName` of the network in the VM's NodePool or VirtualMachine, and " +
			"restart it"},
		{fails, "a guest uses another MAC address than its VM's specification", "set the address in the guest, or `macAddress` in the VM"},
	},
	"OOOI-DHCP-005": {{fails, "a VM has no lease", "check whether the VM's DHCP requests arrive; see the logs of DHCP"}},
	"OOOI-DHCP-013": {{warns, "the ranges are too small", "extend `infraComponents.dhcp.ranges` before the NodePools grow"}},
	"OOOI-DNS-003":  {{fails, "`dnsServers` contains the cluster's DNS", "replace the address with the upstream resolvers of your network"}},
	"OOOI-DNS-001":  {{fails, falseCondition, seeCondition}},
	"OOOI-DNS-002":  {{fails, falseCondition, seeCondition}},
	"OOOI-DNS-004": {
		{warns, "the cluster's DNS does not forward the domain", "run setup with `--cluster-dns=patch`, or add the forwarder: docs/how-to/cluster-dns.md"},
		{warns, "the DNS operator has not written the forwarder", "see `kubectl get clusteroperator dns`, and `spec.managementState` of `dns.operator/default`"},
	},
	"OOOI-DNS-009": {{failsOrWarns, "VMs have no path to a registry of the release image; fails if DNS denies all its names",
		"add the registry to `spec.egress.hosts` of the Infra, or what else the message names: docs/how-to/egress.md"}},
	"OOOI-PRX-001": {{fails, "no ProxyServer refers to the Infra", setupAgain}},
	"OOOI-PRX-003": {{fails, falseCondition, seeCondition}},
	"OOOI-PRX-013": {{failsOrWarns, "condition WithinLimits is false; fails if the ProxyServer is not Ready",
		"raise the field that the message names, or limit the clients"}},
	"OOOI-SVC-001": {{warns, "an endpoint is not one of oooi's pods", "find the client that wrote the EndpointSlice (`--show-managed-fields`), or the pod " +
		"with the labels of the Service's selector"}},
	"OOOI-PRX-004": {{fails, falseCondition, seeCondition}},
	"OOOI-APP-001": {{fails, falseCondition,
		"correct the fault that the message names; see control's log: `kubectl -n oooi-system logs deployment/oooi-control`"}},
	"OOOI-PRB-001": {
		{fails, "a [scenario](cli.md#test) failed", "the finding has the remedy of the scenario"},
		{fails, "a scenario could not run", "make sure that the test's pods can run, and run doctor again"},
	},
}
