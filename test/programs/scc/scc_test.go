package scc

import (
	securityv1 "github.com/openshift/api/security/v1"
	corev1 "k8s.io/api/core/v1"
)

// change modifies a pod.
type change struct {
	name string
	pod  func(*corev1.PodTemplateSpec)
	// refused is the beginning of the violations; empty if the pod is admitted.
	refused string
	// widen adds the minimum to the constraints that makes them admit the pod.
	widen func(*securityv1.SecurityContextConstraints)
	// insecure is set if Pod Security rejects the change as well.
	insecure bool
}

// changes returns changes to pods that restricted-v2 or Pod Security must reject, and some that are admitted.
func changes() []change {
	type template = corev1.PodTemplateSpec
	type constraints = securityv1.SecurityContextConstraints
	first := func(pod *template) *corev1.SecurityContext { return pod.Spec.Containers[0].SecurityContext }
	const container = "spec.containers[0].securityContext."
	return []change{
		{
			"privileged", func(p *template) { first(p).Privileged = new(true) },
			container + "privileged: ", func(c *constraints) { c.AllowPrivilegedContainer = true }, true,
		},
		{
			"privileged init container", func(p *template) {
				p.Spec.InitContainers = append([]corev1.Container{{Name: "first", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}}, p.Spec.InitContainers...)
			},
			"spec.initContainers[0].securityContext.privileged: ", func(c *constraints) { c.AllowPrivilegedContainer = true }, true,
		},
		{
			"NET_ADMIN", func(p *template) { first(p).Capabilities.Add = []corev1.Capability{"NET_ADMIN"} },
			container + "capabilities.add NET_ADMIN: ", func(c *constraints) { c.AllowedCapabilities = append(c.AllowedCapabilities, "NET_ADMIN") }, true,
		},
		{
			"NET_RAW", func(p *template) { first(p).Capabilities.Add = []corev1.Capability{"NET_RAW"} },
			container + "capabilities.add NET_RAW: ", func(c *constraints) { c.AllowedCapabilities = []corev1.Capability{"*"} }, true,
		},
		{"NET_BIND_SERVICE", func(p *template) { first(p).Capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"} }, "", nil, false},
		{"default capabilities of the runtime", func(p *template) { first(p).Capabilities = nil }, "", nil, true},
		{
			"privilege escalation", func(p *template) { first(p).AllowPrivilegeEscalation = new(true) },
			container + "allowPrivilegeEscalation: ", func(c *constraints) { c.AllowPrivilegeEscalation = nil }, true,
		},
		{
			"root", func(p *template) { p.Spec.SecurityContext.RunAsUser = new(int64(0)) },
			"spec.", func(c *constraints) { c.RunAsUser.Type = securityv1.RunAsUserStrategyRunAsAny }, true,
		},
		{
			"root in one container", func(p *template) { first(p).RunAsUser = new(int64(0)) },
			container + "runAsUser: 0 ", func(c *constraints) { c.RunAsUser.Type = securityv1.RunAsUserStrategyRunAsAny }, true,
		},
		{
			"user of another namespace", func(p *template) { first(p).RunAsUser = new(int64(1000700000)) },
			container + "runAsUser: 1000700000 ", func(c *constraints) { c.RunAsUser.Type = securityv1.RunAsUserStrategyRunAsAny }, false,
		},
		{"user of the namespace", func(p *template) { first(p).RunAsUser = new(int64(1000690001)) }, "", nil, false},
		{"user of the image", func(p *template) { p.Spec.SecurityContext.RunAsNonRoot = nil }, "", nil, true},
		{
			"group of root", func(p *template) { p.Spec.SecurityContext.FSGroup = new(int64(0)) },
			"spec.securityContext.fsGroup: 0 ", func(c *constraints) { c.FSGroup.Type = securityv1.FSGroupStrategyRunAsAny }, false,
		},
		{"group of the namespace", func(p *template) { p.Spec.SecurityContext.FSGroup = new(int64(1000690000)) }, "", nil, false},
		{
			"network of the node", func(p *template) { p.Spec.HostNetwork = true },
			"spec.hostNetwork: ", func(c *constraints) { c.AllowHostNetwork = true }, true,
		},
		{"processes of the node", func(p *template) { p.Spec.HostPID = true }, "spec.hostPID: ", func(c *constraints) { c.AllowHostPID = true }, true},
		{"IPC of the node", func(p *template) { p.Spec.HostIPC = true }, "spec.hostIPC: ", func(c *constraints) { c.AllowHostIPC = true }, true},
		{
			"port of the node", func(p *template) { p.Spec.Containers[0].Ports[0].HostPort = 5353 },
			"spec.containers[0].ports[0].hostPort: ", func(c *constraints) { c.AllowHostPorts = true }, true,
		},
		{
			"hostPath volume", func(p *template) {
				p.Spec.Volumes = append([]corev1.Volume{{Name: "run", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run"}}}}, p.Spec.Volumes...)
			},
			"spec.volumes[0].hostPath: ", func(c *constraints) {
				c.AllowHostDirVolumePlugin, c.Volumes = true, append(c.Volumes, securityv1.FSTypeHostPath)
			}, true,
		},
		{
			"NFS volume", func(p *template) {
				p.Spec.Volumes = append([]corev1.Volume{{Name: "nfs", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "/"}}}}, p.Spec.Volumes...)
			},
			"spec.volumes[0].nfs: ", func(c *constraints) { c.Volumes = []securityv1.FSType{securityv1.FSTypeAll} }, true,
		},
		{
			"unsafe sysctl", func(p *template) {
				p.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1024"}}
			},
			"spec.securityContext.sysctls[0] net.core.somaxconn: ", func(c *constraints) { c.AllowedUnsafeSysctls = []string{"net.core.*"} }, true,
		},
		{
			"no seccomp", func(p *template) { p.Spec.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined },
			"spec.", func(c *constraints) { c.SeccompProfiles = append(c.SeccompProfiles, "unconfined") }, true,
		},
		{
			"no seccomp in one container", func(p *template) {
				first(p).SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
			},
			container + "seccompProfile: ", func(c *constraints) { c.SeccompProfiles = []string{"*"} }, true,
		},
		{
			"another SELinux type", func(p *template) { first(p).SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"} },
			container + "seLinuxOptions: ", func(c *constraints) { c.SELinuxContext.Type = securityv1.SELinuxStrategyRunAsAny }, true,
		},
		{"SELinux level of the namespace", func(p *template) { first(p).SELinuxOptions = &corev1.SELinuxOptions{Level: testNamespace.Level} }, "", nil, false},
		{"shared process namespace", func(p *template) { p.Spec.ShareProcessNamespace = new(true) }, "spec.shareProcessNamespace: not evaluated", nil, false},
		{"runAsGroup", func(p *template) { p.Spec.SecurityContext.RunAsGroup = new(int64(0)) }, "spec.securityContext.runAsGroup: not evaluated", nil, false},
		{"working directory", func(p *template) { p.Spec.Containers[0].WorkingDir = "/tmp" }, "spec.containers[0].workingDir: not evaluated", nil, false},
		{"unmasked /proc", func(p *template) { first(p).ProcMount = new(corev1.UnmaskedProcMount) }, container + "procMount: not evaluated", nil, true},
		{
			"seccomp by annotation", func(p *template) {
				p.Annotations["container.seccomp.security.alpha.kubernetes.io/coredns"] = "unconfined"
			},
			"metadata.annotations: ", nil, false,
		},
	}
}
