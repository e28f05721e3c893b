// Package lab starts real Kubernetes control planes (etcd, kube-apiserver and,
// when asked for, kube-controller-manager) as child processes on loopback, and
// installs the real CRDs that this project works with. Tests and the demo use
// it; it needs neither a cluster, nor a container runtime, nor root.
//
//	cp, err := lab.Start(ctx, lab.Config{Name: "management"})
//	if err != nil { ... }
//	defer cp.Stop()
//	err = cp.InstallCRDs(ctx, lab.HyperShift, lab.Oooi)
//	err = cp.ApplyYAML(ctx, manifests)
//
// [StartNode] adds a real node to a control plane, and [NewMachine] machines on
// its VLANs. These do need root, a container runtime and a [Network]. [StartVM]
// starts a virtual machine, which takes QEMU.
//
// A test has [New], and a package whose tests share control planes has
// [Shared] and [Main].
//
// The binaries come from the folder that KUBEBUILDER_ASSETS names, else they
// are built from the module test/programs/controlplane on first use. The CRDs are read
// from pinned Go modules. Envoy is a pinned Python package. Nothing else is
// downloaded.
package lab
