package setup_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// replace deletes an object and creates it again after a change, as kubectl replace --force does.
func (s *site) replace(name string, o client.Object, change func()) {
	s.Helper()
	if err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, o); err != nil {
		s.Fatal(err)
	}
	if err := s.Client.Delete(s.Context(), o); err != nil {
		s.Fatal(err)
	}
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	change()
	if err := s.Client.Create(s.Context(), o, client.FieldOwner("kubectl-replace")); err != nil {
		s.Fatal(err)
	}
}

// TestObjectsAreCreatedAgain sets fields that cannot be changed, so that applying the rendered objects would fail.
func TestObjectsAreCreatedAgain(t *testing.T) {
	s := newSite(t)
	s.Setup()
	account := &rbacv1.RoleBinding{}
	binding := "oooi-" + s.Namespace + "-demo-dns"
	for _, tc := range []struct {
		kind, name string
		o          client.Object
		change     func()
		healed     func() bool
		flags      []string // the other client manages the field
	}{
		{"RoleBinding", binding, account, func() { account.RoleRef.Name = "other" }, func() bool { return account.RoleRef.Name == binding }, []string{"--force-conflicts"}},
	} {
		s.replace(tc.name, tc.o, tc.change)
		uid := tc.o.GetUID()
		object := tc.kind + " " + s.Namespace + "/" + tc.name
		before := s.Everything()
		if out, stderr, code := s.Run(append([]string{"diff", "-f", "FILE"}, tc.flags...)...); code != 1 || !strings.Contains(out, tc.name) {
			t.Errorf("diff exited with %d, stderr %s, stdout %s", code, stderr, out)
		}
		if out, stderr, code := s.Run(append([]string{"setup", "-f", "FILE", "--dry-run=server"}, tc.flags...)...); code != 0 || !strings.Contains(out, object+" configured (server dry run)\n") {
			t.Errorf("the dry run exited with %d, stderr %s, stdout %s", code, stderr, out)
		}
		s.Unchanged(before)
		if stderr := s.Setup(tc.flags...); !strings.Contains(stderr, object+" created\n") {
			t.Errorf("setup printed %s", stderr)
		}
		if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(tc.o), tc.o); err != nil {
			t.Fatal(err)
		}
		if tc.o.GetUID() == uid || !tc.healed() {
			t.Errorf("setup created %v", tc.o)
		}
		if stderr := s.Setup(); stderr != "" {
			t.Errorf("a second setup printed %s", stderr)
		}
	}
}
