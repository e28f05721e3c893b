// Command kubevirt contains what writes VirtualMachineInstances in KubeVirt: virt-controller, and the part of virt-handler
// that reports interfaces. virt-handler itself needs libvirt.
//
//	kubevirt crds                          print the CRDs that virt-operator creates, as JSON
//	kubevirt virt-controller [FLAGS]       run virt-controller
//	kubevirt run NAME=MAC[=ADDRESS]...     read a VirtualMachineInstance in JSON from standard input, and print it as
//	                                       virt-handler updates it when it runs: with the interfaces that have a NAME in the
//	                                       domain, and those, without a NAME, that only the guest agent reports
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"kubevirt.io/kubevirt/pkg/controller"
	network "kubevirt.io/kubevirt/pkg/network/setup"
	"kubevirt.io/kubevirt/pkg/virt-controller/watch"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/api"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
)

func main() {
	if len(os.Args) < 2 {
		os.Args = append(os.Args, "")
	}
	var err error
	switch os.Args[1] {
	case "crds":
		err = printCRDs()
	case "virt-controller":
		os.Args = os.Args[1:]
		watch.Execute()
	case "run":
		err = reportRunning(os.Args[2:])
	default:
		err = fmt.Errorf("unknown command %q; must be crds, virt-controller or run", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubevirt:", err)
		os.Exit(1)
	}
}

// printCRDs prints the CRDs of virt-operator's install strategy, and its own.
func printCRDs() error {
	for _, newCRD := range []func() (*extv1.CustomResourceDefinition, error){
		components.NewKubeVirtCrd,
		components.NewVirtualMachineInstanceCrd, components.NewPresetCrd, components.NewReplicaSetCrd,
		components.NewVirtualMachineCrd, components.NewVirtualMachineInstanceMigrationCrd,
		components.NewVirtualMachineSnapshotCrd, components.NewVirtualMachineSnapshotContentCrd,
		components.NewVirtualMachineRestoreCrd, components.NewVirtualMachineInstancetypeCrd,
		components.NewVirtualMachineClusterInstancetypeCrd, components.NewVirtualMachinePoolCrd,
		components.NewMigrationPolicyCrd, components.NewVirtualMachinePreferenceCrd,
		components.NewVirtualMachineClusterPreferenceCrd, components.NewVirtualMachineExportCrd,
		components.NewVirtualMachineCloneCrd, components.NewVirtualMachineBackupCrd,
		components.NewVirtualMachineBackupTrackerCrd,
	} {
		crd, err := newCRD()
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(crd); err != nil {
			return err
		}
		fmt.Println("---")
	}
	return nil
}

// reportRunning sets the phase and the interfaces in the status of a VirtualMachineInstance as virt-handler does.
func reportRunning(args []string) error {
	vmi := &virtv1.VirtualMachineInstance{}
	if err := json.NewDecoder(os.Stdin).Decode(vmi); err != nil {
		return fmt.Errorf("reading the VirtualMachineInstance: %w", err)
	}
	before := vmi.Status.DeepCopy()
	vmi.Status.Phase = virtv1.Running
	controller.SetVMIPhaseTransitionTimestamp(before, &vmi.Status)
	domain := &api.Domain{}
	for i, arg := range args {
		name, rest, _ := strings.Cut(arg, "=")
		mac, address, reported := strings.Cut(rest, "=")
		if name != "" {
			domain.Spec.Devices.Interfaces = append(domain.Spec.Devices.Interfaces, api.Interface{Alias: api.NewUserDefinedAlias(name), MAC: &api.MAC{MAC: mac}})
		}
		if reported {
			domain.Status.Interfaces = append(domain.Status.Interfaces, api.InterfaceStatus{
				Mac: mac, Ip: address, IPs: []string{address}, InterfaceName: fmt.Sprintf("eth%d", i),
			})
		}
	}
	if err := network.NewNetStat().UpdateStatus(vmi, domain); err != nil {
		return fmt.Errorf("reporting the interfaces of %s: %w", vmi.Name, err)
	}
	return json.NewEncoder(os.Stdout).Encode(vmi)
}
