package faults

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// driftFaults returns faults of objects that were edited after setup rendered them.
func driftFaults() []Fault {
	return []Fault{
		{Name: "DNS was scaled to 0", Want: []string{"POD-002 fail"}, Says: `.spec.replicas: found 0, setup would render 1; set by "`, Break: func(s *Site) {
			pod := s.Get(podKind, "$ns", "demo-dns-0")
			s.Undo(func() { s.recreatePod(pod) })
			s.Patch(setKind, "$ns", "demo-dns", `{"spec": {"replicas": 0}}`)
			s.Await("the pod to be deleted", func() bool { return s.Get(podKind, "$ns", "demo-dns-0") == nil })
		}},
		{Name: "DNS was scaled to 2 replicas", Want: []string{"INF-002 fail"}, Says: "its 2 replicas have the same VLAN address", Break: func(s *Site) {
			pod := s.Get(podKind, "$ns", "demo-dns-0")
			pod.SetName("demo-dns-1")
			s.Undo(func() {
				s.Await("the pod to be deleted", func() bool { return s.Get(podKind, "$ns", "demo-dns-1") == nil })
			})
			s.Patch(setKind, "$ns", "demo-dns", `{"spec": {"replicas": 2}}`)
			s.recreatePod(pod)
		}},
		{Name: "pods of DNS are replaced on deletion only", Want: []string{"INF-002 warn"}, Says: `.spec.updateStrategy.type: found "OnDelete"`, Break: func(s *Site) {
			s.Patch(setKind, "$ns", "demo-dns", `{"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}`)
		}},
		{Name: "partition keeps the pod of DNS at its revision", Want: []string{"INF-002 warn"}, Says: ".spec.updateStrategy.rollingUpdate.partition: found 1, setup would render 0", Break: func(s *Site) {
			s.Patch(setKind, "$ns", "demo-dns", `{"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}}`)
		}},
		{Name: "readiness probe requests another page", Want: []string{"INF-002 warn"}, Says: `.containers[name="coredns"].readinessProbe.httpGet.path: found "/", setup would render "/ready"`, Break: editedTemplate("demo-dns", func(spec map[string]any) {
			setField(firstContainer(spec), "/", "readinessProbe", "httpGet", "path")
		})},
		{Name: "liveness probe was removed", Want: []string{"INF-002 warn"}, Says: `.containers[name="coredns"].livenessProbe: found nothing, setup would render {`, Break: editedTemplate("demo-dns", func(spec map[string]any) {
			delete(firstContainer(spec), "livenessProbe")
		})},
		{Name: "resources were removed", Want: []string{"INF-002 warn"}, Says: `.containers[name="coredhcp"].resources.requests: found nothing, setup would render {"cpu":"20m"`, Break: editedTemplate("demo-dhcp", func(spec map[string]any) {
			firstContainer(spec)["resources"] = map[string]any{}
		})},
		{Name: "memory request was edited", Want: []string{"INF-002 warn"}, Says: `.resources.requests.memory: found "8Mi", setup would render "64Mi"`, Break: editedTemplate("demo-dhcp", func(spec map[string]any) {
			setField(firstContainer(spec), "8Mi", "resources", "requests", "memory")
		})},
		{Name: "environment variable was edited", Want: []string{"INF-002 warn"}, Says: `.containers[name="coredns"].env[name="POD_IP"].valueFrom: found nothing`, Break: editedTemplate("demo-dns", func(spec map[string]any) {
			firstContainer(spec)["env"] = []any{map[string]any{"name": "POD_IP", "value": "192.0.2.3"}}
		})},
		{Name: "command line was edited", Want: []string{"INF-002 warn"}, Says: `.containers[name="coredns"].command: found another value than setup would render`, Break: editedTemplate("demo-dns", func(spec map[string]any) {
			firstContainer(spec)["command"] = []any{"/coredns", "-conf", "/etc/coredns/Corefile", "-dns.port", "5353"}
		})},
		{Name: "image was edited", Want: []string{"INF-002 warn"}, Says: `.containers[name="coredns"].image: found "example.com/mine:1"`, Break: editedTemplate("demo-dns", func(spec map[string]any) {
			firstContainer(spec)["image"] = "example.com/mine:1"
		})},
		{Name: "pod of DHCP has another ServiceAccount", Want: []string{"INF-002 warn"}, Says: `.spec.template.spec.serviceAccountName: found "default", setup would render "demo-dhcp"`, Break: editedTemplate("demo-dhcp", func(spec map[string]any) {
			spec["serviceAccountName"], spec["serviceAccount"] = "default", "default"
		})},
		{Name: "volume has another ConfigMap", Want: []string{"INF-002 warn"}, Says: `.volumes[name="config"].configMap.name: found "mine", setup would render "demo-dns"`, Break: editedTemplate("demo-dns", func(spec map[string]any) {
			volumes, _ := spec["volumes"].([]any)
			for _, v := range volumes {
				if v, _ := v.(map[string]any); v["name"] == "config" {
					setField(v, "mine", "configMap", "name")
				}
			}
		})},
		{Name: "security context was edited", Want: []string{"INF-002 warn"}, Says: `.containers[name="coredns"].securityContext.readOnlyRootFilesystem: found false, setup would render true`, Break: editedTemplate("demo-dns", func(spec map[string]any) {
			setField(firstContainer(spec), false, "securityContext", "readOnlyRootFilesystem")
		})},
		{Name: "pod network of DNS was edited", Want: []string{"INF-002 warn"}, Says: ".spec.template.metadata.annotations.k8s.v1.cni.cncf.io/networks: found ", Break: func(s *Site) {
			s.Patch(setKind, "$ns", "demo-dns", `{"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}, "template": {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "[{\"name\": \"mine\"}]"}}}}}`)
		}},
		{Name: "NetworkPolicy of DNS admits no clients", Want: []string{"NET-007 fail", "INF-002 fail"}, Says: "admits no ingress from ", Break: func(s *Site) {
			rules, _, _ := unstructured.NestedSlice(s.Get(policyKind, "$ns", "demo-dns").Object, "spec", "ingress")
			s.Patch(policyKind, "$ns", "demo-dns", `{"spec": {"ingress": `+toJSON(rules[:1])+`}}`)
		}},
		{Name: "NetworkPolicy of DNS admits all ports", Want: []string{"INF-002 warn"}, Says: ".spec.ingress: found ", Break: func(s *Site) {
			rules, _, _ := unstructured.NestedSlice(s.Get(policyKind, "$ns", "demo-dns").Object, "spec", "ingress")
			s.Patch(policyKind, "$ns", "demo-dns", `{"spec": {"ingress": `+toJSON(append(rules, map[string]any{}))+`}}`)
		}},
		{Name: "NetworkPolicy of the proxy selects other pods", Want: []string{"INF-002 warn"}, Says: ".spec.podSelector: found ", Break: func(s *Site) {
			s.Patch(policyKind, "$ns", "demo-proxy", `{"spec": {"podSelector": {"matchLabels": {"app": "other"}}}}`)
		}},
		{Name: "NetworkPolicy in the control plane's namespace was edited", Want: []string{"INF-002 warn"}, Says: ".metadata.labels.app.kubernetes.io/part-of: found ", Break: func(s *Site) {
			s.Patch(policyKind, "$ns-demo", s.expand("oooi-$ns-demo-proxy"), `{"metadata": {"labels": {"app.kubernetes.io/part-of": "mine"}}}`)
		}},
		{Name: "NetworkPolicy of DHCP does not exist", Want: []string{"INF-002 fail"}, Says: "the NetworkPolicy does not exist", Break: func(s *Site) { s.Remove(policyKind, "$ns", "demo-dhcp") }},
		{Name: "ServiceAccount mounts its token", Want: []string{"INF-002 warn"}, Says: ".automountServiceAccountToken: found true, setup would render false", Break: func(s *Site) {
			s.Patch(accountKind, "$ns", "demo-dns", `{"automountServiceAccountToken": true}`)
		}},
		{Name: "ServiceAccount lost its annotation", Want: []string{"INF-002 warn"}, Says: ".metadata.annotations: found nothing, setup would render {", Break: func(s *Site) {
			s.Patch(accountKind, "$ns", "demo-dns", `{"metadata": {"annotations": {"hostedcluster.densityops.com/infra": null}}}`)
		}},
		{Name: "ConfigMap lost its label", Want: []string{"INF-002 warn"}, Says: ".metadata.labels.app.kubernetes.io/managed-by: found nothing", Break: func(s *Site) {
			s.Patch(configMapKind, "$ns", "demo-dhcp", `{"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}`)
		}},
		{Name: "inventory cannot be decoded", Want: []string{"INF-002 fail"}, Says: "key inventory.yaml cannot be decoded", Break: func(s *Site) {
			s.Patch(configMapKind, "$ns", "demo-oooi-inventory", `{"data": {"inventory.yaml": "- {"}}`)
		}},
		{Name: "network of DNS lost its label", Want: []string{"INF-002 warn"}, Says: `.metadata.labels.app.kubernetes.io/managed-by: found "mine"`, Break: func(s *Site) {
			s.Patch(nadKind, "$ns", s.networkOfDNS(), `{"metadata": {"labels": {"app.kubernetes.io/managed-by": "mine"}}}`)
		}},
		{Name: "pod was created after an edit of its network", Want: []string{"INF-002 warn"}, Says: "Pod demo-dns-0 was created since then", Break: func(s *Site) {
			pod := s.Get(podKind, "$ns", "demo-dns-0")
			config, _, _ := unstructured.NestedString(s.Get(nadKind, "$ns", s.networkOfDNS()).Object, "spec", "config")
			s.Patch(nadKind, "$ns", s.networkOfDNS(), `{"spec": {"config": `+toJSON(strings.Replace(config, "{", `{"mtu": 1400, `, 1))+`}}`)
			if err := s.Client.Delete(s.Context(), pod); err != nil {
				s.Fatal(err)
			}
			s.Await("the pod to be deleted", func() bool {
				now := s.Get(podKind, "$ns", pod.GetName())
				return now == nil || now.GetUID() != pod.GetUID()
			})
			s.recreatePod(pod)
		}},
		{Name: "Service of DNS has another target port", Want: []string{"INF-002 fail"}, Says: `.spec.ports[port=53,protocol="UDP"].targetPort: found 5353, setup would render "dns"`, Break: func(s *Site) {
			ports, _, _ := unstructured.NestedSlice(s.Get(serviceKind, "$ns", "demo-dns").Object, "spec", "ports")
			for _, p := range ports {
				if p, _ := p.(map[string]any); p["protocol"] == "UDP" {
					p["targetPort"] = 5353
				}
			}
			s.Patch(serviceKind, "$ns", "demo-dns", `{"spec": {"ports": `+toJSON(ports)+`}}`)
		}},
		{Name: "Service of DNS has no cluster IP", Want: []string{"DNS-004 warn"}, Says: "addresses of the Service: [None]", Break: func(s *Site) {
			service := s.Get(serviceKind, "$ns", "demo-dns")
			s.Remove(serviceKind, "$ns", "demo-dns")
			spec, _, _ := unstructured.NestedMap(service.Object, "spec")
			s.Add(toJSON(map[string]any{
				"apiVersion": "v1", "kind": "Service",
				"metadata": map[string]any{"namespace": "$ns", "name": "demo-dns", "labels": service.GetLabels(), "annotations": service.GetAnnotations()},
				"spec":     map[string]any{"clusterIP": "None", "ipFamilyPolicy": spec["ipFamilyPolicy"], "selector": spec["selector"], "ports": spec["ports"]},
			}))
		}},
		{Name: "Service of the proxy is a NodePort", Want: []string{"INF-002 warn"}, Says: `.spec.type: found "NodePort", setup would render "ClusterIP"`, Break: func(s *Site) {
			s.Patch(serviceKind, "$ns", "demo-proxy", `{"spec": {"type": "NodePort"}}`)
		}},
		{Name: "Service of DNS has pods that are not ready", Want: []string{"INF-002 warn"}, Says: "fields that setup does not render: .spec.publishNotReadyAddresses set by ", Break: func(s *Site) {
			s.Patch(serviceKind, "$ns", "demo-dns", `{"spec": {"publishNotReadyAddresses": true}}`)
		}},
	}
}

// editedTemplate returns a function that changes the pod specification of a StatefulSet, whose pod keeps its revision:
// it would not become ready without a kubelet.
func editedTemplate(name string, change func(spec map[string]any)) func(*Site) {
	return func(s *Site) {
		spec, _, err := unstructured.NestedMap(s.Get(setKind, "$ns", name).Object, "spec", "template", "spec")
		if err != nil {
			s.Fatal(err)
		}
		change(spec)
		s.Patch(setKind, "$ns", name, `{"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}, "template": {"spec": `+toJSON(spec)+`}}}`)
	}
}

// setField sets a field below a map, whose parents exist.
func setField(in map[string]any, value any, path ...string) {
	if err := unstructured.SetNestedField(in, value, path...); err != nil {
		panic(err) // the rendered pods have these fields
	}
}

// recreatePod waits until a StatefulSet creates a pod, and writes what the kubelet and Multus write of it, as pod has it.
func (s *Site) recreatePod(pod *unstructured.Unstructured) {
	s.Helper()
	const status = "k8s.v1.cni.cncf.io/network-status"
	before := s.undo
	s.Await("the pod to be created", func() bool { return s.Get(podKind, "$ns", pod.GetName()) != nil })
	s.Patch(podKind, "$ns", pod.GetName(), `{"metadata": {"annotations": {"`+status+`": `+toJSON(pod.GetAnnotations()[status])+`}}}`)
	s.PatchStatus(podKind, "$ns", pod.GetName(), runningStatus)
	s.undo = before // Mend does not revert it
}
