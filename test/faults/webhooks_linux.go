package faults

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// admissionFaults returns faults of what admits the requests of our daemons.
func admissionFaults(r *Running) []Fault {
	return []Fault{
		{Name: "webhook denies leases", Want: []string{"DHCP-012 fail"}, Says: `webhook "policy.example.com" of ValidatingWebhookConfiguration denials denies them`, Break: func(*Site) {
			r.restartDHCPAfterMend()
			r.denyRequests("coordination.k8s.io", "v1", "leases", "", func() bool { return r.rejects("clusters") })
			r.requestLease()
		}},
		{Name: "quota permits no more leases", Want: []string{"API-003 fail"}, Says: "of at most 1 Leases", Break: func(*Site) {
			r.restartDHCPAfterMend()
			r.Add("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: few, namespace: $ns}\nspec: {hard: {count/leases.coordination.k8s.io: \"1\"}}\n")
			r.Await("Leases to be rejected", func() bool { return r.rejects("clusters") })
			r.requestLease()
		}},
		{Name: "webhook denies the status of the ProxyServer", Want: []string{"PRX-020 fail"}, Says: `webhook "policy.example.com" of ValidatingWebhookConfiguration denials denies them`, Break: func(*Site) {
			r.denyRequests("hostedcluster.densityops.com", "v1alpha1", "proxyservers/status", "system:serviceaccount:clusters:demo-proxy", func() bool { return true }) // its next heartbeat is due within a minute
		}},
		{Name: "webhook denies the status of the Infra", Want: []string{"CTL-005 fail"}, Says: `webhook "policy.example.com" of ValidatingWebhookConfiguration denials denies them`, Break: func(s *Site) {
			r.denyRequests("hostedcluster.densityops.com", "v1alpha1", "infras/status", "", func() bool {
				return s.Client.Status().Patch(s.Context(), s.Get(infraKind, "$ns", "demo"), client.RawPatch("application/merge-patch+json", []byte(`{"status": {}}`)), client.DryRunAll) != nil
			})
			s.Patch(infraKind, "$ns", "demo", `{"spec": {"infraComponents": {"dhcp": {"leaseTime": "2h"}}}}`)
		}},
	}
}

// restartDHCPAfterMend restarts coredhcp after Mend has reverted all later changes: it remembers errors until the next
// write.
func (r *Running) restartDHCPAfterMend() {
	r.Undo(func() {
		r.Pods["dhcp"].Containers["coredhcp"].Kill(r.T)
		r.Pods["dhcp"].RestartContainer(r.T, "coredhcp", false)
	})
}

// denyRequests denies requests for a resource with a webhook, those of one user unless it is empty, until Mend. It waits
// until denied returns true.
func (r *Running) denyRequests(group, version, resource, user string, denied func() bool) {
	r.Helper()
	const address = "198.18.0.90:9443"
	server := &http.Server{
		Addr: address, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{r.ca.Certificate(r.T, "198.18.0.90")}, MinVersion: tls.VersionTLS12},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			review := &admissionv1.AdmissionReview{}
			if err := json.NewDecoder(request.Body).Decode(review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: user != "" && review.Request.UserInfo.Username != user, Result: &metav1.Status{Message: "not today"}}
			review.Request = nil
			_ = json.NewEncoder(w).Encode(review) // the API server reports a failure
		}),
	}
	ended := make(chan error)
	go func() { ended <- server.ListenAndServeTLS("", "") }()
	r.Undo(func() {
		if err := server.Close(); err != nil {
			r.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			r.Fatal(err)
		}
	})
	r.Add(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: denials}
webhooks:
- name: policy.example.com
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {url: "https://%s/", caBundle: %s}
  rules: [{apiGroups: [%s], apiVersions: [%s], resources: [%s], operations: [CREATE, UPDATE]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
`, address, base64.StdEncoding.EncodeToString(r.ca.PEM()), group, version, strings.TrimSpace(resource)))
	r.Await("requests to be denied", denied)
}

// rejects reports whether the API server rejects new Leases in a namespace.
func (r *Running) rejects(namespace string) bool {
	r.Helper()
	lease := object(leaseKind, namespace, "probe")
	return r.Client.Create(r.Context(), lease, client.DryRunAll) != nil
}

// requestLease requests an address from a new VM, until Mend.
func (r *Running) requestLease() {
	r.Helper()
	r.addVM("worker-x", "02:00:00:00:00:96", demoLabel, "", time.Now())
	r.requestAddress("02:00:00:00:00:96")
}
