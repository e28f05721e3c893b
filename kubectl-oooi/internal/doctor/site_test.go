package cmd

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/mutate"
	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/lab"
)

// patient is a healthy site that setup has made, which faults break.
type patient struct {
	*faults.Site

	site *site
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	s := newSite(t)
	p := &patient{site: s, Site: &faults.Site{
		ControlPlane: s.cp, Client: s.client, Namespace: s.namespace, VLAN: "vlan100", Net: "192.0.2", Bundles: t.TempDir(),
		Doctor: func(t *testing.T, args ...string) faults.Answer {
			t.Helper()
			s.T = t
			out, said, code := s.run(append([]string{"doctor", "demo", "-n", s.namespace}, args...)...)
			return faults.Answer{Out: out, Said: said, Code: code}
		},
	}}
	faults.NewSimulated(t, p.Site, func() {
		const apps = "  appsIngress: {enabled: true, source: Static, addresses: [192.0.2.200], hostedClusterRef: {name: demo, namespace: NS}}\n"
		s.infra = strings.Replace(s.infra, "  infraComponents:", strings.ReplaceAll(apps, "NS", s.namespace)+"  infraComponents:", 1)
		s.setup("--cluster-dns=patch")
	})
	return p
}

// TestDoctor breaks a site in every way that the catalogue has, and then switches each check off.
func TestDoctor(t *testing.T) {
	p := newPatient(t)
	t.Run("nothing is wrong", func(t *testing.T) { p.Healthy(t) })
	all := faults.OnAPIServer()
	for _, f := range lab.Sample(all, 3) {
		t.Run(f.Name, func(t *testing.T) { p.Try(t, &f) })
	}
	if !lab.Long() {
		return // not every check has had its fault
	}
	t.Run("no check is there for show", func(t *testing.T) {
		tried := p.Mutants(t, all, func(bundles []string) []byte {
			data, err := mutate.Bundles(bundles)
			if err != nil {
				t.Fatal(err)
			}
			return data
		})
		for _, c := range doctor.Checks() {
			if c.AsksPods() {
				continue // package faults does, at a site whose daemons run
			}
			if !slices.Contains(tried, c.Code) && !slices.Contains(onTheNode(), c.Code) {
				t.Errorf("no fault is found by %s", c.Code)
			}
		}
	})
}

// onTheNode are the checks for which it takes a real node to find anything.
func onTheNode() []string {
	var codes []string
	for _, f := range faults.OnNode() {
		for _, want := range f.Want {
			code, _, _ := strings.Cut(want, " ")
			codes = append(codes, "OOOI-"+code)
		}
	}
	return codes
}

// TestABundleHasNoSecrets seeds some where a careless collector would find them.
func TestABundleHasNoSecrets(t *testing.T) {
	p := newPatient(t)
	const seed = "c0ffee-hunter2"
	p.Add(strings.ReplaceAll(`
apiVersion: v1
kind: Secret
metadata: {name: demo-admin-kubeconfig, namespace: $ns}
stringData: {kubeconfig: SEED}
---
apiVersion: v1
kind: Secret
metadata: {name: demo-apps-reader, namespace: $ns, labels: {app.kubernetes.io/managed-by: oooi}}
stringData: {kubeconfig: SEED}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs, namespace: $ns}
data: {password: SEED}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs, namespace: kube-system}
data: {password: SEED}
`, "SEED", seed))
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if d := p.Diagnose("--save", bundle); len(d.Found()) > 0 {
		t.Errorf("found %q", d.Found())
	}
	folder := t.TempDir()
	unpacked := 0
	unpack(t, bundle, func(name string, data []byte) {
		unpacked++
		if strings.Contains(string(data), seed) {
			t.Errorf("%s has it", name)
		}
		if strings.Contains(name, "Secret") {
			t.Errorf("there is %s", name)
		}
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if unpacked < 30 {
		t.Errorf("there are %d files in it", unpacked)
	}
	p.Mend()

	// Unpacked, and among others' files, it says the same.
	if err := os.WriteFile(filepath.Join(folder, "pod.log"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "broken.yaml"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, said, code := p.site.run("doctor", "demo", "-n", p.Namespace, "--from", folder)
	if code != 0 || !strings.Contains(said, "Warning: broken.yaml is left out") {
		t.Errorf("from the folder it ended with %d and said %s", code, said)
	}
}

func unpack(t *testing.T, bundle string, take func(name string, data []byte)) {
	t.Helper()
	file, err := os.Open(bundle)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(zipped)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		take(h.Name, data)
	}
}

// narrow has doctor run as a user who may read Infras, and nothing else.
func (p *patient) narrow(t *testing.T) {
	t.Helper()
	user := "narrow-" + p.Namespace
	p.Add(strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: narrow, namespace: $ns}
rules: [{apiGroups: [hostedcluster.densityops.com], resources: [infras], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: narrow, namespace: $ns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: narrow}
subjects: [{kind: User, name: USER, apiGroup: rbac.authorization.k8s.io}]
`, "USER", user))
	kubeconfig, err := p.ControlPlane.UserKubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	p.site.kubeconfig = kubeconfig
}

// TestForbiddenIsNoPass has a user who may read the Infra and nothing else.
func TestForbiddenIsNoPass(t *testing.T) {
	p := newPatient(t)
	p.narrow(t)
	out, said, code := p.site.run("doctor", "demo", "-n", p.Namespace, "-o", "json", "--strict")
	d := &doctor.Diagnosis{}
	if err := json.Unmarshal([]byte(out), d); err != nil {
		t.Fatalf("%d: %v: %s", code, err, said)
	}
	for _, r := range d.Results {
		if r.Status == doctor.Passed && !slices.Contains([]string{"OOOI-INF-001", "OOOI-DHCP-006", "OOOI-CTL-002", "OOOI-DNS-001", "OOOI-DHCP-001", "OOOI-APP-001"}, r.Code) {
			t.Errorf("%s passes", r.Code)
		}
		if r.Status == doctor.Skipped && r.Inconclusive && !strings.Contains(r.Reason, "forbidden") {
			t.Errorf("%s is skipped: %s", r.Code, r.Reason)
		}
	}
	if code != inconclusiveCode || d.Summary[doctor.Failed] > 0 || d.Summary[doctor.Skipped] < 25 {
		t.Errorf("it ended with %d: %v", code, d.Summary)
	}
	if _, _, code := p.site.run("doctor", "demo", "-n", p.Namespace, "--strict", "--only", "OOOI-POD"); code != inconclusiveCode {
		t.Errorf("it ended with %d", code)
	}
	if _, said, code := p.site.run("doctor", "other", "-n", p.Namespace); code != 1 || !strings.Contains(said, "other") {
		t.Errorf("of an Infra that is not there it said %s, %d", said, code)
	}
}

func TestDoctorRefusesWhatMeansNothing(t *testing.T) {
	for line, says := range map[string]string{
		"doctor --fail-on=maybe":    `--fail-on "maybe": want fail, warn or never`,
		"doctor --only OOOI-XYZ":    "there is no check OOOI-XYZ",
		"doctor --save a --from b":  "give one of the two",
		"doctor -o nothing":         `--output "nothing"`,
		"doctor --from /there/is/0": "reading the bundle",
	} {
		_, said, code := call(t, append([]string{"kubectl-oooi"}, strings.Fields(line)...)...)
		if code != 1 || !strings.Contains(said, says) {
			t.Errorf("%s ended with %d and said %s", line, code, said)
		}
	}
	out, _, code := call(t, "kubectl-oooi", "doctor", "--list", "--only", "oooi-hc")
	if code != 0 || strings.Count(out, "OOOI-HC-") < 4 || strings.Contains(out, "OOOI-DNS-001") {
		t.Errorf("%d: %s", code, out)
	}
}
