package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// makeCertificates writes the certificates and keys that the components are started with.
func (cp *ControlPlane) makeCertificates() error {
	var err error
	if cp.ca, err = newAuthority(cp.config.Name); err != nil {
		return err
	}
	if cp.admin, err = cp.ca.client("admin", "system:masters"); err != nil {
		return err
	}
	if err := cp.RenewCertificate(); err != nil {
		return err
	}
	saKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	return errors.Join(
		cp.writeFile("ca.crt", cp.ca.cert), cp.writeFile("ca.key", cp.ca.key),
		cp.writeFile("admin.crt", cp.admin.cert), cp.writeFile("admin.key", cp.admin.key),
		cp.writeFile("sa.key", saKey), // signs ServiceAccount tokens
	)
}

// RenewCertificate issues another certificate of the same authority to the API server, which loads it within
// a minute, or when it is restarted.
func (cp *ControlPlane) RenewCertificate() error {
	names := []string{
		"localhost", "127.0.0.1", "::1", cp.config.Address,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	for cidr := range strings.SplitSeq(cp.config.ServiceCIDR, ",") {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return fmt.Errorf("Config.ServiceCIDR: %w", err)
		}
		names = append(names, prefix.Masked().Addr().Next().String()) // Service kubernetes
	}
	server, err := cp.ca.server("kube-apiserver", append(names, cp.config.ServerNames...)...)
	if err != nil {
		return err
	}
	return errors.Join(cp.writeFile("apiserver.crt", server.cert), cp.writeFile("apiserver.key", server.key))
}

func (cp *ControlPlane) writeFile(name string, data []byte) error {
	if err := os.WriteFile(cp.path(name), data, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func (cp *ControlPlane) etcdURL() string {
	return fmt.Sprintf("http://127.0.0.1:%d", cp.ports.etcd)
}

// startEtcd starts etcd. The caller must hold cp.mu; that is so for all start functions.
func (cp *ControlPlane) startEtcd() (err error) {
	peer := fmt.Sprintf("http://127.0.0.1:%d", cp.ports.etcdPeer)
	cp.etcd, err = cp.launch(etcd,
		"--name=lab",
		"--data-dir="+cp.path("etcd"),
		"--listen-client-urls="+cp.etcdURL(),
		"--advertise-client-urls="+cp.etcdURL(),
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=lab="+peer,
		"--unsafe-no-fsync", // killing the process does not lose the page cache
		"--log-level=warn",
	)
	return err
}

func (cp *ControlPlane) startAPIServer() (err error) {
	args := []string{
		"--etcd-servers=" + cp.etcdURL(),
		"--bind-address=" + cp.config.Address,
		// The address is not used, but without a default route the API server cannot choose one, and it
		// rejects loopback addresses.
		"--advertise-address=198.18.255.1",
		fmt.Sprintf("--secure-port=%d", cp.ports.apiServer),
		"--tls-cert-file=" + cp.path("apiserver.crt"),
		"--tls-private-key-file=" + cp.path("apiserver.key"),
		"--client-ca-file=" + cp.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.path("sa.key"),
		"--service-account-signing-key-file=" + cp.path("sa.key"),
		"--service-cluster-ip-range=" + cp.config.ServiceCIDR,
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--endpoint-reconciler-type=none",
		"--profiling=false",
		"--kubelet-client-certificate=" + cp.path("admin.crt"),
		"--kubelet-client-key=" + cp.path("admin.key"),
		"--kubelet-preferred-address-types=InternalIP", // node names do not resolve
	}
	if !cp.config.ControllerManager {
		// This plugin rejects Pods whose ServiceAccount does not exist, and without a controller manager none
		// is created.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	cp.apiServer, err = cp.launch(apiServer, append(args, cp.config.APIServerFlags...)...)
	return err
}

func (cp *ControlPlane) startControllerManager() error {
	pair, err := cp.ca.client("system:kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig := cp.path("controller-manager.kubeconfig")
	if err := cp.writeKubeconfig(kubeconfig, "system:kube-controller-manager", pair); err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--secure-port=0",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--kube-api-qps=1000", "--kube-api-burst=2000", // with the default the start takes 5 s
		"--service-account-private-key-file=" + cp.path("sa.key"),
		"--root-ca-file=" + cp.path("ca.crt"),
		"--cluster-signing-cert-file=" + cp.path("ca.crt"),
		"--cluster-signing-key-file=" + cp.path("ca.key"),
		// All but nodeipam, which needs a range of node addresses to allocate from.
		"--controllers=*,-nodeipam",
	}
	cp.controllerManager, err = cp.launch(controllerManager, append(args, cp.config.ControllerManagerFlags...)...)
	return err
}

func (cp *ControlPlane) startScheduler() error {
	const user = "system:kube-scheduler"
	pair, err := cp.ca.client(user)
	if err != nil {
		return err
	}
	kubeconfig := cp.path("scheduler.kubeconfig")
	if err := cp.writeKubeconfig(kubeconfig, user, pair); err != nil {
		return err
	}
	cp.scheduler, err = cp.launch(scheduler, "--kubeconfig="+kubeconfig, "--secure-port=0", "--leader-elect=false")
	return err
}

// supervise starts a component, and restarts it whenever it ends, as a kubelet does with a static Pod. For
// example, the scheduler exits when it detects, after an outage, that its cache is inconsistent. The caller
// must hold cp.mu.
func (cp *ControlPlane) supervise(p **process, start func() error) error {
	if err := start(); err != nil {
		return err
	}
	started := *p
	go func() {
		<-started.ended
		time.Sleep(time.Second)
		cp.mu.Lock()
		defer cp.mu.Unlock()
		if cp.stopped {
			return
		}
		if err := cp.supervise(p, start); err != nil {
			*p = started // await reports how the process ended
		}
	}()
	return nil
}

func (cp *ControlPlane) launch(component string, args ...string) (*process, error) {
	return cp.launcher.start(Component(cp.binary, component, args...), cp.path(component+".log"))
}
