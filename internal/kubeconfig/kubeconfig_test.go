package kubeconfig_test

import (
	gocmp "cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/test/golden"
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

// TestRestrictedRefuses runs the transcript testdata/restricted.txt. A line "cluster CLUSTER user USER" has the only cluster and user of a
// kubeconfig in YAML, VALID and TOKEN being valid ones, and "raw" a whole file, which may be a Go string. The output is the configuration, in
// which data is decoded, or the error.
func TestRestrictedRefuses(t *testing.T) {
	golden.Transcript(t, "testdata/restricted.txt", func(line string) []string {
		text, raw := strings.CutPrefix(line, "raw ")
		if !raw {
			cluster, user, _ := strings.Cut(strings.TrimPrefix(line, "cluster "), " user ")
			text = file(strings.Replace(cluster, "VALID", validCluster, 1), strings.Replace(user, "TOKEN", withToken, 1))
		} else if quoted, err := strconv.Unquote(text); err == nil {
			text = quoted
		}
		got, err := kubeconfig.Restricted([]byte(text))
		if err != nil {
			for _, secret := range []string{token, password, key, encoded(key)} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error contains a secret: %q", err)
				}
			}
			return []string{err.Error()}
		}
		tls := got.TLSClientConfig
		want := rest.Config{Host: got.Host, BearerToken: got.BearerToken}
		want.TLSClientConfig = rest.TLSClientConfig{CAData: tls.CAData, CertData: tls.CertData, KeyData: tls.KeyData}
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: more than a server, a CA and credentials: %#v", line, *got)
		}
		return []string{fmt.Sprintf("server %s CA %s token %q certificate %q key %q", got.Host, tls.CAData, got.BearerToken, tls.CertData, tls.KeyData)}
	})
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
