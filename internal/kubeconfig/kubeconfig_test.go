package kubeconfig_test

import (
	gocmp "cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/test/lab"
)

// Secrets in the kubeconfigs of these tests. No error may contain them.
const (
	token    = "tok-3f9a1c"
	password = "pw-77e0b2"
	key      = "key-5d21ee"
)

// file returns a kubeconfig with one cluster and one user, each given as a YAML flow mapping.
func file(cluster, user string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: %s}]
contexts: [{name: admin, context: {cluster: cluster, namespace: default, user: admin}}]
current-context: admin
users: [{name: admin, user: %s}]
`, cluster, user)
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

var (
	validCluster = fields("server: https://api.demo.example.com:6443", "certificate-authority-data: "+encoded("CA"))
	withToken    = fields("token: " + token)
	withCert     = fields("client-certificate-data: "+encoded("certificate"), "client-key-data: "+encoded(key))
)

func fields(list ...string) string { return "{" + strings.Join(list, ", ") + "}" }

// with adds a field to a YAML flow mapping.
func with(in, field string) string { return strings.TrimSuffix(in, "}") + ", " + field + "}" }

func TestRestrictedKeepsServerCAAndCredentials(t *testing.T) {
	tls := rest.TLSClientConfig{CAData: []byte("CA")}
	tlsCert := rest.TLSClientConfig{CAData: []byte("CA"), CertData: []byte("certificate"), KeyData: []byte(key)}
	const host = "https://api.demo.example.com:6443"
	tests := []struct {
		name, file string
		want       rest.Config
	}{
		{"admin kubeconfig as HyperShift writes it", file(validCluster, withCert), rest.Config{Host: host, TLSClientConfig: tlsCert}},
		{"ServiceAccount kubeconfig", file(validCluster, withToken), rest.Config{Host: host, BearerToken: token, TLSClientConfig: tls}},
		{"certificate and token", file(validCluster, with(withCert, "token: "+token)), rest.Config{Host: host, BearerToken: token, TLSClientConfig: tlsCert}},
		{"an IPv6 address and a path", file(fields(`server: "https://[2001:db8::1]:6443/clusters/demo"`, "certificate-authority-data: "+encoded("CA")), withToken),
			rest.Config{Host: "https://[2001:db8::1]:6443/clusters/demo", BearerToken: token, TLSClientConfig: tls}},
		{"extensions of every part", `
apiVersion: v1
kind: Config
preferences: {}
extensions: [{name: e, extension: {exec: /bin/sh}}]
clusters: [{name: cluster, cluster: ` + with(validCluster, "extensions: [{name: e, extension: {proxy-url: 'http://evil.example.com'}}]") + `}]
contexts: [{name: admin, context: {cluster: cluster, user: admin, extensions: [{name: e, extension: {}}]}}]
current-context: admin
users: [{name: admin, user: ` + with(withToken, "extensions: [{name: e, extension: {exec: {command: /bin/sh}}}]") + `}]
`, rest.Config{Host: host, BearerToken: token, TLSClientConfig: tls}},
		{"unknown fields", file(with(validCluster, "shiny: true"), with(withToken, "shiny: {exec: /bin/sh}")),
			rest.Config{Host: host, BearerToken: token, TLSClientConfig: tls}},
		{"other contexts", `
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: ` + validCluster + `}, {name: b, cluster: {server: 'http://b.example.com', insecure-skip-tls-verify: true}}]
contexts: [{name: b, context: {cluster: b, user: b}}, {name: a, context: {cluster: a, user: a}}]
current-context: a
users: [{name: a, user: ` + withToken + `}, {name: b, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh}}}]
`, rest.Config{Host: host, BearerToken: token, TLSClientConfig: tls}},
		{"JSON", `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"` + host + `","certificate-authority-data":"` + encoded("CA") +
			`"}}],"users":[{"name":"u","user":{"token":"` + token + `"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`,
			rest.Config{Host: host, BearerToken: token, TLSClientConfig: tls}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := kubeconfig.Restricted([]byte(test.file))
			lab.Must(t, err)
			if !reflect.DeepEqual(*got, test.want) {
				t.Errorf("got %#v, want %#v", *got, test.want)
			}
		})
	}
}

func TestRestrictedRefuses(t *testing.T) {
	server := func(url string) string {
		return file(fields("server: "+fmt.Sprintf("%q", url), "certificate-authority-data: "+encoded("CA")), withToken)
	}
	user := func(field string) string { return file(validCluster, with(withToken, field)) }
	cluster := func(field string) string { return file(with(validCluster, field), withToken) }
	const forbiddenPrefix = "the kubeconfig has "
	tests := []struct{ name, file, wantErr string }{
		{"a program to run", user("exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh}"), forbiddenPrefix + "exec,"},
		{"an empty exec", user("exec: {}"), forbiddenPrefix + "exec,"},
		{"an authentication plugin", user("auth-provider: {name: oidc, config: {id-token: " + password + "}}"), forbiddenPrefix + "auth-provider,"},
		{"a token file", user("tokenFile: /run/secrets/token"), forbiddenPrefix + "tokenFile,"},
		{"a client certificate file", user("client-certificate: /etc/passwd"), forbiddenPrefix + "client-certificate,"},
		{"a client key file", user("client-key: /etc/shadow"), forbiddenPrefix + "client-key,"},
		{"a username", user("username: root"), forbiddenPrefix + "username,"},
		{"a password", user("password: " + password), forbiddenPrefix + "password,"},
		{"impersonation of a user", user("as: 'system:admin'"), forbiddenPrefix + "as,"},
		{"impersonation of a UID", user("as-uid: '0'"), forbiddenPrefix + "as,"},
		{"impersonation of groups", user("as-groups: ['system:masters']"), forbiddenPrefix + "as,"},
		{"impersonation with extra fields", user("as-user-extra: {scopes: [all]}"), forbiddenPrefix + "as,"},
		{"a CA file", cluster("certificate-authority: /etc/passwd"), forbiddenPrefix + "certificate-authority,"},
		{"a proxy", cluster("proxy-url: 'http://proxy.example.com'"), forbiddenPrefix + "proxy-url,"},
		{"a server that is not verified", cluster("insecure-skip-tls-verify: true"), forbiddenPrefix + "insecure-skip-tls-verify,"},
		{"a TLS server name", cluster("tls-server-name: kubernetes"), forbiddenPrefix + "tls-server-name,"},
		{"several fields, each by name", file(with(validCluster, "proxy-url: x"), with(withToken, "exec: {}, tokenFile: x")), forbiddenPrefix + "proxy-url, tokenFile, exec,"},

		{"plain HTTP", server("http://api.example.com"), `the server "http://api.example.com" is not an https URL`},
		{"a server without a scheme", server("api.example.com:6443"), "is not an https URL"},
		{"a server without a host", server("https://:6443"), "is not an https URL"},
		{"an opaque URL", server("https:api.example.com"), "is not an https URL"},
		{"a socket", server("unix:///run/api.sock"), "is not an https URL"},
		{"no server", file(fields("certificate-authority-data: "+encoded("CA")), withToken), "is not an https URL"},
		{"an invalid URL with a password", server("https://root:" + password + "@[::1"), "the server's URL cannot be parsed"},
		{"a user in the URL", server("https://root:" + password + "@api.example.com"), "more than a host, a port and a path"},
		{"a user in a plain URL", server("http://root:" + password + "@api.example.com"), "more than a host, a port and a path"},
		{"a query", server("https://api.example.com/?as=root"), "more than a host, a port and a path"},
		{"an empty query", server("https://api.example.com?"), "more than a host, a port and a path"},
		{"a fragment", server("https://api.example.com/#top"), "more than a host, a port and a path"},
		{"an empty fragment", server("https://api.example.com#"), "more than a host, a port and a path"},

		{"no CA", file(fields("server: https://api.example.com"), withToken), "certificate-authority-data is missing"},
		{"an empty CA", file(fields("server: https://api.example.com", `certificate-authority-data: ""`), withToken), "certificate-authority-data is missing"},
		{"a certificate without its key", file(validCluster, fields("client-certificate-data: "+encoded("certificate"))), "one of client-certificate-data and client-key-data is missing"},
		{"a key without its certificate", file(validCluster, with(withToken, "client-key-data: "+encoded(key))), "one of client-certificate-data and client-key-data is missing"},
		{"no credentials", file(validCluster, "{}"), "the user has no credentials"},
		{"an empty token", file(validCluster, `{token: ""}`), "the user has no credentials"},

		{"empty file", "", `context "" does not exist`},
		{"no current context", "apiVersion: v1\nkind: Config\n", `context "" does not exist`},
		{"a current context that does not exist", strings.Replace(file(validCluster, withToken), "current-context: admin", "current-context: root", 1), `context "root" does not exist`},
		{"a context without a cluster", strings.Replace(file(validCluster, withToken), "cluster: cluster,", "cluster: other,", 1), `cluster "other" or user`},
		{"a context without a user", strings.Replace(file(validCluster, withToken), "user: admin}}", "user: other}}", 1), `user "other" does not exist`},
		{"a context that is null", "contexts: [null]", `cluster "" or user "" does not exist`},
		{"empty names", "contexts: [{name: ''}]\nclusters: [{name: ''}]\nusers: [{name: ''}]", "is not an https URL"},

		{"only a token", token, "invalid kubeconfig"},
		{"another kind of object", "apiVersion: v1\nkind: " + token, "invalid kubeconfig"},
		{"a field of the wrong type", file(validCluster, fields("token: {x: "+token+"}")), "invalid kubeconfig"},
		{"a duplicate user", file(validCluster, withToken+"}, {name: admin, user: "+withCert), "invalid kubeconfig"},
		{"an undefined YAML alias", "users: *" + token, "invalid kubeconfig"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := kubeconfig.Restricted([]byte(test.file))
			if err == nil {
				t.Fatalf("accepted: %+v", got)
			}
			if !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("error is %q, want %q in it", err, test.wantErr)
			}
			for _, secret := range []string{token, password, key, encoded(key)} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("error holds a secret: %q", err)
				}
			}
		})
	}
}

// TestEveryFieldIsDecidedOn checks that every field of client-go's types is used, ignored or rejected. A
// field that a newer client-go adds fails this test until it is added to one of the lists.
func TestEveryFieldIsDecidedOn(t *testing.T) {
	used := map[string]bool{
		"Server": true, "CertificateAuthorityData": true,
		"ClientCertificateData": true, "ClientKeyData": true, "Token": true,
	}
	ignored := map[string]bool{"LocationOfOrigin": true, "Extensions": true, "DisableCompression": true}
	config := func() (*api.Config, *api.Cluster, *api.AuthInfo) {
		cluster := &api.Cluster{Server: "https://api.example.com", CertificateAuthorityData: []byte("CA")}
		user := &api.AuthInfo{Token: token}
		return &api.Config{
			Clusters: map[string]*api.Cluster{"a": cluster}, AuthInfos: map[string]*api.AuthInfo{"a": user},
			Contexts: map[string]*api.Context{"a": {Cluster: "a", AuthInfo: "a"}}, CurrentContext: "a",
		}, cluster, user
	}
	for _, part := range []string{"cluster", "user"} {
		_, cluster, user := config()
		fieldsOf := reflect.TypeOf(*cluster)
		if part == "user" {
			fieldsOf = reflect.TypeOf(*user)
		}
		for field := range fieldsOf.Fields() {
			if used[field.Name] {
				continue
			}
			t.Run(part+" "+field.Name, func(t *testing.T) {
				file, cluster, user := config()
				target := reflect.ValueOf(cluster)
				if part == "user" {
					target = reflect.ValueOf(user)
				}
				set(target.Elem().FieldByName(field.Name))
				data, err := clientcmd.Write(*file)
				lab.Must(t, err)
				_, err = kubeconfig.Restricted(data)
				if ignored[field.Name] != (err == nil) {
					t.Errorf("error is %v", err)
				}
			})
		}
	}
}

// set sets a field of a kubeconfig to a value that is not its zero value.
func set(v reflect.Value) {
	switch v.Interface().(type) {
	case string:
		v.SetString("x")
	case bool:
		v.SetBool(true)
	case []string:
		v.Set(reflect.ValueOf([]string{"x"}))
	case map[string][]string:
		v.Set(reflect.ValueOf(map[string][]string{"x": {"x"}}))
	case *api.AuthProviderConfig:
		v.Set(reflect.ValueOf(&api.AuthProviderConfig{Name: "x"}))
	case *api.ExecConfig:
		v.Set(reflect.ValueOf(&api.ExecConfig{
			Command: "x", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: api.NeverExecInteractiveMode,
		}))
	}
}

// FuzzRestricted checks that every returned configuration has an https server, a CA and credentials, and
// nothing else.
func FuzzRestricted(f *testing.F) {
	for _, seed := range []string{
		file(validCluster, withCert), file(validCluster, withToken),
		file(with(validCluster, "proxy-url: 'http://proxy.example.com', tls-server-name: x, certificate-authority: /x"), withToken),
		file(validCluster, with(withCert, "exec: {command: x}, auth-provider: {name: x}, tokenFile: /x, as: x, username: x, password: x")),
		file(fields("server: 'https://a:b@[::1%25lo]:1/%2F?x#y'", "certificate-authority-data: QQ=="), withToken),
		file(validCluster, "&u "+withToken) + "extensions: [{name: e, extension: *u}]\n",
		"contexts: [null]", "current-context: x", "kind: Config", "- a", "{", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := kubeconfig.Restricted(data)
		if err != nil {
			if got != nil {
				t.Fatalf("got a configuration and the error %v", err)
			}
			return
		}
		if !strings.HasPrefix(strings.ToLower(got.Host), "https://") || strings.ContainsAny(got.Host, "@?#") {
			t.Errorf("server is %q", got.Host)
		}
		if len(got.CAData) == 0 {
			t.Error("no CA")
		}
		if got.BearerToken == "" && (len(got.CertData) == 0 || len(got.KeyData) == 0) {
			t.Error("no credentials")
		}
		minimal := rest.Config{
			Host: got.Host, BearerToken: got.BearerToken,
			TLSClientConfig: rest.TLSClientConfig{CAData: got.CAData, CertData: got.CertData, KeyData: got.KeyData},
		}
		if !reflect.DeepEqual(*got, minimal) {
			t.Errorf("more than server, CA and credentials: %s", cmp.Diff(minimal.String(), got.String()))
		}
	})
}

// TestConnectTimeoutIsNotReportedAsTimeout checks that client-go does not recognize a connect timeout as one,
// because its watches retry timeouts ten times before they report them.
func TestConnectTimeoutIsNotReportedAsTimeout(t *testing.T) {
	for _, address := range []string{"", "192.0.2.2:6443"} {
		config := &rest.Config{}
		kubeconfig.SetDial(config, address)
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		_, err := config.Dial(ctx, "tcp", "192.0.2.1:6443")
		host, _, _ := strings.Cut(gocmp.Or(address, "192.0.2.1:6443"), ":")
		if err == nil || !strings.Contains(err.Error(), host) || !strings.Contains(err.Error(), "timeout") {
			t.Errorf("%q: %v", address, err)
		}
		if utilnet.IsTimeout(&url.Error{Op: "Get", Err: err}) {
			t.Errorf("%q: %v is a timeout", address, err)
		}
	}
}
