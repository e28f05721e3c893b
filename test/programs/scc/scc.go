// Package scc evaluates pods against a SecurityContextConstraints of OpenShift.
//
// OpenShift's own admission plugin depends on all of Kubernetes and is not used. This package implements it
// for the fields that this project's pods and restricted-v2 use: fields that a pod leaves open are assumed to
// get values that fit, those that it sets are compared. Every other field is reported as a violation,
// harmless or not, so that no field of a pod or of a constraint is ignored.
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

// Namespace has the values that OpenShift has allocated to a namespace (annotations openshift.io/sa.scc.*).
type Namespace struct {
	// FirstUser and LastUser are the range of user IDs. FirstUser is also the group of volumes.
	FirstUser, LastUser int64
	// Level is the SELinux level.
	Level string
}

// Violations returns the reasons for which constraints reject a pod, each with the field. It is empty if the
// pod is admitted.
func Violations(constraints *securityv1.SecurityContextConstraints, namespace Namespace, pod *corev1.PodTemplateSpec) ([]string, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, fmt.Errorf("converting the pod: %w", err)
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

func (r *review) report(field, format string, args ...any) {
	r.reasons = append(r.reasons, field+": "+fmt.Sprintf(format, args...))
}

// reportIf reports a field that must not be set.
func (r *review) reportIf(set bool, field string) {
	if set {
		r.report(field, "not allowed")
	}
}

// only reports the fields of an object that are not in known, which is separated by spaces.
func (r *review) only(path string, object any, known string) {
	fields, _ := object.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(strings.Fields(known), name) {
			r.report(path+"."+name, "not evaluated")
		}
	}
}

// fields reports fields of a pod that are neither evaluated nor known to be irrelevant.
func (r *review) fields(pod map[string]any) {
	meta, _ := pod["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.Contains(key, "security.alpha.kubernetes.io") || strings.Contains(key, "security.beta.kubernetes.io") {
			r.report("metadata.annotations", "%s is not evaluated", key) // these annotations used to configure seccomp and AppArmor
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
				" name image command args env resources volumeMounts livenessProbe readinessProbe startupProbe lifecycle terminationMessagePolicy")
			r.only(path+".securityContext", container["securityContext"], "privileged allowPrivilegeEscalation readOnlyRootFilesystem"+
				" capabilities runAsUser runAsNonRoot seLinuxOptions seccompProfile")
		}
	}
	volumes, _ := spec["volumes"].([]any)
	for i, v := range volumes {
		r.volume(fmt.Sprintf("spec.volumes[%d]", i), v)
	}
}

// volume evaluates the type of a volume, which is the name of its only other field.
func (r *review) volume(path string, volume any) {
	fields, _ := volume.(map[string]any)
	for kind := range fields {
		allowed := slices.Contains(r.scc.Volumes, securityv1.FSTypeAll) || slices.Contains(r.scc.Volumes, securityv1.FSType(kind))
		if kind == "hostPath" {
			allowed = allowed && r.scc.AllowHostDirVolumePlugin
		}
		r.reportIf(kind != "name" && !allowed, path+"."+kind)
	}
}

// constraints reports fields of the constraints that are set but not evaluated.
func (r *review) constraints() {
	for field, set := range map[string]bool{
		"defaultAddCapabilities":          len(r.scc.DefaultAddCapabilities) > 0,
		"allowedFlexVolumes":              len(r.scc.AllowedFlexVolumes) > 0,
		"defaultAllowPrivilegeEscalation": r.scc.DefaultAllowPrivilegeEscalation != nil,
		"userNamespaceLevel":              cmp.Or(r.scc.UserNamespaceLevel, securityv1.NamespaceLevelAllowHost) != securityv1.NamespaceLevelAllowHost,
	} {
		if set {
			r.report("SecurityContextConstraints."+field, "not evaluated")
		}
	}
}

func (r *review) pod(pod *corev1.PodTemplateSpec) {
	spec := &pod.Spec
	r.reportIf(spec.HostNetwork && !r.scc.AllowHostNetwork, "spec.hostNetwork")
	r.reportIf(spec.HostPID && !r.scc.AllowHostPID, "spec.hostPID")
	r.reportIf(spec.HostIPC && !r.scc.AllowHostIPC, "spec.hostIPC")
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

// groups evaluates the groups that a pod sets. Without ranges the constraints use the namespace's group.
func (r *review) groups(field, strategy string, ranges []securityv1.IDRange, groups []int64) {
	if strategy == "RunAsAny" {
		return
	}
	if strategy != "MustRunAs" {
		r.report("SecurityContextConstraints."+field, "%q is not evaluated", strategy)
	}
	if len(ranges) == 0 {
		ranges = []securityv1.IDRange{{Min: r.namespace.FirstUser, Max: r.namespace.FirstUser}}
	}
	for _, g := range groups {
		if !slices.ContainsFunc(ranges, func(of securityv1.IDRange) bool { return of.Min <= g && g <= of.Max }) {
			r.report("spec.securityContext."+field, "%d is in none of %v", g, ranges)
		}
	}
}

// safeSysctls are the sysctls that every release admits without AllowedUnsafeSysctls. They are the kubelet's
// safe sysctls of Kubernetes 1.22; OpenShift has the same since 4.9, and later releases have more.
const safeSysctls = "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.tcp_syncookies net.ipv4.ping_group_range net.ipv4.ip_unprivileged_port_start"

func (r *review) sysctl(path, name string) {
	matches := func(pattern string) bool {
		prefix, wild := strings.CutSuffix(pattern, "*")
		return name == pattern || wild && strings.HasPrefix(name, prefix)
	}
	allowed := slices.Contains(strings.Fields(safeSysctls), name) || slices.ContainsFunc(r.scc.AllowedUnsafeSysctls, matches)
	r.reportIf(!allowed || slices.ContainsFunc(r.scc.ForbiddenSysctls, matches), path+" "+name)
}

func (r *review) container(path string, pod *corev1.PodSecurityContext, c *corev1.Container) {
	for i, p := range c.Ports {
		r.reportIf(p.HostPort > 0 && !r.scc.AllowHostPorts, fmt.Sprintf("%s.ports[%d].hostPort", path, i))
	}
	context := c.SecurityContext
	if context == nil {
		context = &corev1.SecurityContext{}
	}
	path += ".securityContext"
	r.reportIf(is(context.Privileged, true) && !r.scc.AllowPrivilegedContainer, path+".privileged")
	r.reportIf(is(context.AllowPrivilegeEscalation, true) && is(r.scc.AllowPrivilegeEscalation, false), path+".allowPrivilegeEscalation")
	r.reportIf(is(context.ReadOnlyRootFilesystem, false) && r.scc.ReadOnlyRootFilesystem, path+".readOnlyRootFilesystem")
	if context.Capabilities != nil {
		r.capabilities(path+".capabilities.add", context.Capabilities.Add)
	}
	r.user(path+".runAsUser", cmp.Or(context.RunAsUser, pod.RunAsUser))
	r.seLinux(path+".seLinuxOptions", cmp.Or(context.SELinuxOptions, pod.SELinuxOptions))
	r.seccomp(path+".seccompProfile", cmp.Or(context.SeccompProfile, pod.SeccompProfile))
}

// capabilities evaluates added capabilities. Admission drops RequiredDropCapabilities itself.
func (r *review) capabilities(path string, add []corev1.Capability) {
	for _, capability := range add {
		allowed := slices.Contains(r.scc.AllowedCapabilities, securityv1.AllowAllCapabilities) || slices.Contains(r.scc.AllowedCapabilities, capability)
		r.reportIf(!allowed, path+" "+string(capability))
	}
}

func (r *review) user(path string, user *int64) {
	switch strategy := r.scc.RunAsUser; strategy.Type {
	case securityv1.RunAsUserStrategyRunAsAny:
	case securityv1.RunAsUserStrategyMustRunAsRange:
		first, last := r.namespace.FirstUser, r.namespace.LastUser
		if strategy.UIDRangeMin != nil || strategy.UIDRangeMax != nil {
			r.report("SecurityContextConstraints.runAsUser", "a separate range is not evaluated")
		}
		if user != nil && (*user < first || *user > last) {
			r.report(path, "%d is not in %d-%d", *user, first, last)
		}
	default:
		r.report("SecurityContextConstraints.runAsUser", "%q is not evaluated", strategy.Type)
	}
}

func (r *review) seLinux(path string, options *corev1.SELinuxOptions) {
	switch strategy := r.scc.SELinuxContext; {
	case strategy.Type == securityv1.SELinuxStrategyRunAsAny:
	case strategy.Type != securityv1.SELinuxStrategyMustRunAs || strategy.SELinuxOptions != nil:
		r.report("SecurityContextConstraints.seLinuxContext", "%v is not evaluated", strategy)
	case options != nil && *options != corev1.SELinuxOptions{Level: r.namespace.Level}:
		r.report(path, "%v is not the level %s alone", options, r.namespace.Level)
	}
}

func (r *review) seccomp(path string, profile *corev1.SeccompProfile) {
	if profile == nil || slices.Contains(r.scc.SeccompProfiles, "*") {
		return // the pod gets the first profile of the constraints
	}
	var name string
	switch profile.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		name = "runtime/default"
	case corev1.SeccompProfileTypeUnconfined:
		name = "unconfined"
	}
	if name == "" || !slices.Contains(r.scc.SeccompProfiles, name) {
		r.report(path, "%s is not among %q", profile.Type, r.scc.SeccompProfiles)
	}
}

func is(value *bool, want bool) bool { return value != nil && *value == want }
