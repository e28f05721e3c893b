// Package lab starts real Kubernetes control planes (etcd, kube-apiserver and, optionally,
// kube-controller-manager and kube-scheduler) as child processes on loopback, and installs the CRDs that this
// project works with. Tests and the demo use it. It needs neither a cluster, nor a container runtime, nor
// root.
//
//	cp, err := lab.Start(ctx, lab.Config{Name: "management"})
//	if err != nil { ... }
//	defer cp.Stop()
//	err = cp.InstallCRDs(ctx, lab.HyperShift, lab.Oooi)
//	err = cp.ApplyYAML(ctx, manifests)
//
// [Site] builds the objects of a hosted cluster and its VLAN: HostedCluster, NodePool, Infra, ProxyServer and
// virtual machines.
//
// [StartNode] adds a node to a control plane, and [NewMachine] creates simulated VMs on its VLANs. These need
// root, a container runtime and a [Network]. [StartVM] starts a virtual machine with QEMU.
//
// A test calls [New]. Tests of a package that share control planes use [Shared] and [Main].
//
// The binaries are built from the module test/programs/controlplane on first use. The CRDs are read from pinned Go modules. Envoy comes from a
// pinned Python package. Nothing else is downloaded, except OVN ([FindOVN]) and the packages of a VM's image
// ([BuildVMImage]).
package lab
