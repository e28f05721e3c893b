package rollout_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const statusLabel, holderAnnotation = "hostedcluster.densityops.com/status", "hostedcluster.densityops.com/holder"

// addRecord stores a copy of the first record as another revision with a status.
func (s *runningSite) addRecord(revision int, status string, change func(*corev1.Secret)) {
	s.Helper()
	o := s.Records()[0].DeepCopy()
	o.ResourceVersion, o.UID, o.Name = "", "", fmt.Sprintf("oooi.v1.%s.demo.v%d", s.Namespace, revision)
	o.Labels[statusLabel] = status
	change(o)
	s.Must(s.Client.Create(s.Context(), o))
}

// TestDamagedRecordsDoNotBlock adds a record that cannot be decoded, one of a killed teardown, and a Secret that only has the name
// of the next record.
func TestDamagedRecordsDoNotBlock(t *testing.T) {
	s := newRunningSite(t)
	s.addRecord(2, "failed", func(o *corev1.Secret) { o.Data = map[string][]byte{"record": []byte("x")} })
	host, err := os.Hostname()
	s.Must(err)
	s.addRecord(3, "pending", func(o *corev1.Secret) {
		o.Annotations = map[string]string{holderAnnotation: "teardown by process 4194305 on " + host} // no process has this number
	})
	if out, stderr, code := s.Run("history", "demo", "-n", s.Namespace); code != 0 || !strings.Contains(out, "delete the Secret") || !strings.Contains(out, "teardown by process") {
		t.Errorf("history exited with %d: %s\n%s", code, stderr, out)
	}
	s.Expect(0, "teardown demo -n $NS --dry-run=client")
	if _, stderr, code := s.Run("rollback", "proxyserver/demo", "1", "-n", s.Namespace); code != 1 || !strings.Contains(stderr, "is not one of a proxyserver") || strings.Contains(stderr, "restoring") {
		t.Errorf("rollback of a ProxyServer exited with %d: %s", code, stderr)
	}
	if s.history() != "deployed failed failed" {
		t.Errorf("after the teardown that was killed the revisions are %s", s.history())
	}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi.v1." + s.Namespace + ".demo.v4"}}
	s.Must(s.Client.Create(t.Context(), other))
	s.Infra = s.withDNSImage("example.com/good:1")
	s.Expect(1, "setup -f FILE", "oooi-system/"+other.Name+" exists and is not a record")
	s.Must(s.Client.Delete(t.Context(), other))
	s.Expect(0, "setup -f FILE")
	s.expectHistory("superseded failed failed deployed")
}

func TestRevisionThatWorkedIsKeptAfterManyThatFailed(t *testing.T) {
	s := newRunningSite(t)
	for revision := 2; revision < 15; revision++ {
		s.addRecord(revision, "failed", func(*corev1.Secret) {})
	}
	s.Infra = s.withDNSImage("example.com/good:1")
	if stderr, code := s.setup(); code != 0 || s.history() != "superseded"+strings.Repeat(" failed", 9)+" deployed" {
		t.Errorf("setup exited with %d, revisions %s: %s", code, s.history(), stderr)
	}
	s.Expect(0, "rollback demo -n $NS", "applying revision 1 of ")
}

// TestPodsOfADeletedServiceAccountAreReplaced deletes the ServiceAccount of DNS, whose tokens the API server refuses from then on.
func TestPodsOfADeletedServiceAccountAreReplaced(t *testing.T) {
	s := newRunningSite(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-dns"}}
	s.Must(s.Client.Delete(t.Context(), account))
	before := map[string]string{}
	for _, name := range []string{"demo-dhcp-0", "demo-dns-0", "demo-proxy-0"} {
		before[name] = string(s.pod(name).UID)
	}
	stderr, code := s.setup()
	if code != 0 || !strings.Contains(stderr, "demo-dns-0 deleted: its ServiceAccount was created again") || !strings.Contains(stderr, "dns restarts: ") {
		t.Errorf("setup exited with %d: %s", code, stderr)
	}
	var replaced []string
	for name, uid := range before {
		if string(s.pod(name).UID) != uid {
			replaced = append(replaced, name)
		}
	}
	if !slices.Equal(replaced, []string{"demo-dns-0"}) || !isReady(s.pod("demo-dns-0")) {
		t.Errorf("setup replaced %q", replaced)
	}
	pods := s.podUIDs()
	if stderr, code := s.setup(); code != 0 || !slices.Equal(pods, s.podUIDs()) {
		t.Errorf("the second setup exited with %d, pods before %s, after %s: %s", code, pods, s.podUIDs(), stderr)
	}
}
