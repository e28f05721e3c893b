// Package scc says what a SecurityContextConstraints of OpenShift has against a pod.
//
// OpenShift's own admission comes with all of Kubernetes, and is not used here. This is
// what it does for the fields that our pods and restricted-v2 have: values that a pod leaves open
// are chosen so that they fit, those that it sets are compared. Everything else is refused, be it
// harmless or not, so that no field of a pod and none of a constraint is passed over.
package scc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	securityv1 "github.com/openshift/api/security/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Namespace is what OpenShift has allotted to a namespace: annotations openshift.io/sa.scc.*.
type Namespace struct {
	// FirstUser and LastUser are its user IDs. The first is the group of volumes as well.
	FirstUser, LastUser int64
	// Level is its SELinux level.
	Level string
}

// Refusals are the reasons against a pod, each with the field; none if it is admitted.
func Refusals(constraints *securityv1.SecurityContextConstraints, namespace Namespace, pod *corev1.PodTemplateSpec) ([]string, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, fmt.Errorf("looking for the fields of the pod: %w", err)
	}
	r := &review{scc: constraints, namespace: namespace}
	r.constraints()
	r.fields(fields)
	r.pod(pod)
	return r.reasons, nil
}

type review struct {
	scc       *securityv1.SecurityContextConstraints
	namespace Namespace
	reasons   []string
}

func (r *review) refuse(field, format string, args ...any) {
	r.reasons = append(r.reasons, field+": "+fmt.Sprintf(format, args...))
}

// refuseIf refuses a field that is true.
func (r *review) refuseIf(set bool, field string) {
	if set {
		r.refuse(field, "not allowed")
	}
}

// only refuses the fields that are not among these.
func (r *review) only(path string, object any, known string) {
	fields, _ := object.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(strings.Fields(known), name) {
			r.refuse(path+"."+name, "not evaluated")
		}
	}
}

// fields refuses what is not looked at, and is not known to be of no concern.
func (r *review) fields(pod map[string]any) {
	meta, _ := pod["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.Contains(key, "security.alpha.kubernetes.io") || strings.Contains(key, "security.beta.kubernetes.io") {
			r.refuse("metadata.annotations", "%s is not evaluated", key) // by which seccomp and AppArmor were once set
		}
	}
	spec, _ := pod["spec"].(map[string]any)
	r.only("spec", spec, "hostNetwork hostPID hostIPC hostUsers securityContext volumes initContainers containers"+
		" affinity automountServiceAccountToken dnsConfig dnsPolicy serviceAccountName terminationGracePeriodSeconds")
	r.only("spec.securityContext", spec["securityContext"], "runAsUser runAsNonRoot fsGroup supplementalGroups seLinuxOptions seccompProfile sysctls")
	for _, kind := range []string{"initContainers", "containers"} {
		list, _ := spec[kind].([]any)
		for i, c := range list {
			path := fmt.Sprintf("spec.%s[%d]", kind, i)
			container, _ := c.(map[string]any)
			r.only(path, container, "ports securityContext"+
				" name image command args env resources volumeMounts livenessProbe readinessProbe startupProbe terminationMessagePolicy")
			r.only(path+".securityContext", container["securityContext"], "privileged allowPrivilegeEscalation readOnlyRootFilesystem"+
				" capabilities runAsUser runAsNonRoot seLinuxOptions seccompProfile")
		}
	}
	volumes, _ := spec["volumes"].([]any)
	for i, v := range volumes {
		r.volume(fmt.Sprintf("spec.volumes[%d]", i), v)
	}
}

// volume compares the kind of a volume, which is the name of its only other field.
func (r *review) volume(path string, volume any) {
	fields, _ := volume.(map[string]any)
	for kind := range fields {
		allowed := slices.Contains(r.scc.Volumes, securityv1.FSTypeAll) || slices.Contains(r.scc.Volumes, securityv1.FSType(kind))
		if kind == "hostPath" {
			allowed = allowed && r.scc.AllowHostDirVolumePlugin
		}
		r.refuseIf(kind != "name" && !allowed, path+"."+kind)
	}
}

// constraints refuses what is asked for by means that are not evaluated.
func (r *review) constraints() {
	for field, set := range map[string]bool{
		"defaultAddCapabilities":          len(r.scc.DefaultAddCapabilities) > 0,
		"allowedFlexVolumes":              len(r.scc.AllowedFlexVolumes) > 0,
		"defaultAllowPrivilegeEscalation": r.scc.DefaultAllowPrivilegeEscalation != nil,
		"userNamespaceLevel":              cmp.Or(r.scc.UserNamespaceLevel, securityv1.NamespaceLevelAllowHost) != securityv1.NamespaceLevelAllowHost,
	} {
		if set {
			r.refuse("SecurityContextConstraints."+field, "not evaluated")
		}
	}
}

func (r *review) pod(pod *corev1.PodTemplateSpec) {
	spec := &pod.Spec
	r.refuseIf(spec.HostNetwork && !r.scc.AllowHostNetwork, "spec.hostNetwork")
	r.refuseIf(spec.HostPID && !r.scc.AllowHostPID, "spec.hostPID")
	r.refuseIf(spec.HostIPC && !r.scc.AllowHostIPC, "spec.hostIPC")
	context := spec.SecurityContext
	if context == nil {
		context = &corev1.PodSecurityContext{}
	}
	var groups []int64
	if context.FSGroup != nil {
		groups = append(groups, *context.FSGroup)
	}
	r.groups("fsGroup", string(r.scc.FSGroup.Type), r.scc.FSGroup.Ranges, groups)
	r.groups("supplementalGroups", string(r.scc.SupplementalGroups.Type), r.scc.SupplementalGroups.Ranges, context.SupplementalGroups)
	for i, s := range context.Sysctls {
		r.sysctl(fmt.Sprintf("spec.securityContext.sysctls[%d]", i), s.Name)
	}
	for _, kind := range []struct {
		name string
		list []corev1.Container
	}{{"initContainers", spec.InitContainers}, {"containers", spec.Containers}} {
		for i := range kind.list {
			r.container(fmt.Sprintf("spec.%s[%d]", kind.name, i), context, &kind.list[i])
		}
	}
}

// groups compares the groups that a pod sets. The constraint's own come from the namespace where
// it has no range.
func (r *review) groups(field, strategy string, ranges []securityv1.IDRange, groups []int64) {
	if strategy == "RunAsAny" {
		return
	}
	if strategy != "MustRunAs" {
		r.refuse("SecurityContextConstraints."+field, "%q is not evaluated", strategy)
	}
	if len(ranges) == 0 {
		ranges = []securityv1.IDRange{{Min: r.namespace.FirstUser, Max: r.namespace.FirstUser}}
	}
	for _, g := range groups {
		if !slices.ContainsFunc(ranges, func(of securityv1.IDRange) bool { return of.Min <= g && g <= of.Max }) {
			r.refuse("spec.securityContext."+field, "%d is in none of %v", g, ranges)
		}
	}
}

// safe are the sysctls that every release admits without a word in the constraint. They are those
// that the kubelet has counted as safe since Kubernetes 1.22; OpenShift has had the same since 4.9,
// and more by now.
const safe = "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.tcp_syncookies net.ipv4.ping_group_range net.ipv4.ip_unprivileged_port_start"

func (r *review) sysctl(path, name string) {
	matches := func(pattern string) bool {
		prefix, wild := strings.CutSuffix(pattern, "*")
		return name == pattern || wild && strings.HasPrefix(name, prefix)
	}
	allowed := slices.Contains(strings.Fields(safe), name) || slices.ContainsFunc(r.scc.AllowedUnsafeSysctls, matches)
	r.refuseIf(!allowed || slices.ContainsFunc(r.scc.ForbiddenSysctls, matches), path+" "+name)
}

func (r *review) container(path string, pod *corev1.PodSecurityContext, c *corev1.Container) {
	for i, p := range c.Ports {
		r.refuseIf(p.HostPort > 0 && !r.scc.AllowHostPorts, fmt.Sprintf("%s.ports[%d].hostPort", path, i))
	}
	context := c.SecurityContext
	if context == nil {
		context = &corev1.SecurityContext{}
	}
	path += ".securityContext"
	r.refuseIf(is(context.Privileged, true) && !r.scc.AllowPrivilegedContainer, path+".privileged")
	r.refuseIf(is(context.AllowPrivilegeEscalation, true) && is(r.scc.AllowPrivilegeEscalation, false), path+".allowPrivilegeEscalation")
	r.refuseIf(is(context.ReadOnlyRootFilesystem, false) && r.scc.ReadOnlyRootFilesystem, path+".readOnlyRootFilesystem")
	if context.Capabilities != nil {
		r.capabilities(path+".capabilities.add", context.Capabilities.Add)
	}
	r.user(path+".runAsUser", cmp.Or(context.RunAsUser, pod.RunAsUser))
	r.seLinux(path+".seLinuxOptions", cmp.Or(context.SELinuxOptions, pod.SELinuxOptions))
	r.seccomp(path+".seccompProfile", cmp.Or(context.SeccompProfile, pod.SeccompProfile))
}

// capabilities compares those that are added. Those that have to be dropped are dropped for the pod.
func (r *review) capabilities(path string, add []corev1.Capability) {
	for _, capability := range add {
		allowed := slices.Contains(r.scc.AllowedCapabilities, securityv1.AllowAllCapabilities) || slices.Contains(r.scc.AllowedCapabilities, capability)
		r.refuseIf(!allowed, path+" "+string(capability))
	}
}

func (r *review) user(path string, user *int64) {
	switch strategy := r.scc.RunAsUser; strategy.Type {
	case securityv1.RunAsUserStrategyRunAsAny:
	case securityv1.RunAsUserStrategyMustRunAsRange:
		first, last := r.namespace.FirstUser, r.namespace.LastUser
		if strategy.UIDRangeMin != nil || strategy.UIDRangeMax != nil {
			r.refuse("SecurityContextConstraints.runAsUser", "a range of its own is not evaluated")
		}
		if user != nil && (*user < first || *user > last) {
			r.refuse(path, "%d is not in %d-%d", *user, first, last)
		}
	default:
		r.refuse("SecurityContextConstraints.runAsUser", "%q is not evaluated", strategy.Type)
	}
}

func (r *review) seLinux(path string, options *corev1.SELinuxOptions) {
	switch strategy := r.scc.SELinuxContext; {
	case strategy.Type == securityv1.SELinuxStrategyRunAsAny:
	case strategy.Type != securityv1.SELinuxStrategyMustRunAs || strategy.SELinuxOptions != nil:
		r.refuse("SecurityContextConstraints.seLinuxContext", "%v is not evaluated", strategy)
	case options != nil && *options != corev1.SELinuxOptions{Level: r.namespace.Level}:
		r.refuse(path, "%v is not the level %s alone", options, r.namespace.Level)
	}
}

func (r *review) seccomp(path string, profile *corev1.SeccompProfile) {
	if profile == nil || slices.Contains(r.scc.SeccompProfiles, "*") {
		return // the first of the constraint's
	}
	var name string
	switch profile.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		name = "runtime/default"
	case corev1.SeccompProfileTypeUnconfined:
		name = "unconfined"
	}
	if name == "" || !slices.Contains(r.scc.SeccompProfiles, name) {
		r.refuse(path, "%s is not among %q", profile.Type, r.scc.SeccompProfiles)
	}
}

func is(value *bool, want bool) bool { return value != nil && *value == want }
