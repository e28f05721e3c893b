package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"
)

// makeCertificates writes the files that the components are started with.
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
	saKey, saPub, err := serviceAccountKeys()
	if err != nil {
		return err
	}
	return errors.Join(
		cp.writeFile("ca.crt", cp.ca.cert), cp.writeFile("ca.key", cp.ca.key),
		cp.writeFile("admin.crt", cp.admin.cert), cp.writeFile("admin.key", cp.admin.key),
		cp.writeFile("sa.key", saKey), cp.writeFile("sa.pub", saPub),
	)
}

// RenewCertificate gives the API server another certificate, of the same authority. It has
// it when it is started the next time, or within a minute.
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
	server, err := cp.ca.server(append(names, cp.config.ServerNames...)...)
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

// startEtcd needs cp.mu held, as do the other start functions.
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
		"--unsafe-no-fsync", // what a kill -9 leaves is in the page cache
		"--log-level=warn",
	)
	return err
}

func (cp *ControlPlane) startAPIServer() (err error) {
	args := []string{
		"--etcd-servers=" + cp.etcdURL(),
		"--bind-address=" + cp.config.Address,
		// Nobody asks, and without a default route it would not know. It has to be none of loopback.
		"--advertise-address=198.18.255.1",
		fmt.Sprintf("--secure-port=%d", cp.ports.apiServer),
		"--tls-cert-file=" + cp.path("apiserver.crt"),
		"--tls-private-key-file=" + cp.path("apiserver.key"),
		"--client-ca-file=" + cp.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.path("sa.pub"),
		"--service-account-signing-key-file=" + cp.path("sa.key"),
		"--service-cluster-ip-range=" + cp.config.ServiceCIDR,
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--endpoint-reconciler-type=none",
		"--profiling=false",
		"--kubelet-client-certificate=" + cp.path("admin.crt"),
		"--kubelet-client-key=" + cp.path("admin.key"),
		"--kubelet-preferred-address-types=InternalIP", // nobody knows nodes by name
	}
	if !cp.config.ControllerManager {
		// It would refuse Pods for want of ServiceAccounts that nobody makes.
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
		"--kube-api-qps=1000", "--kube-api-burst=2000", // the default makes its start take 5 s
		"--service-account-private-key-file=" + cp.path("sa.key"),
		"--root-ca-file=" + cp.path("ca.crt"),
		"--cluster-signing-cert-file=" + cp.path("ca.crt"),
		"--cluster-signing-key-file=" + cp.path("ca.key"),
		// All but the one that gives nodes address ranges, which needs one to give.
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

// keep starts a component, and again whenever it ends, as a kubelet does with a static Pod: the
// scheduler ends by itself when it finds that its cache is wrong, as after an outage. It needs
// cp.mu held.
func (cp *ControlPlane) keep(p **process, start func() error) error {
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
		if err := cp.keep(p, start); err != nil {
			*p = started // whoever waits for it is told how it ended
		}
	}()
	return nil
}

func (cp *ControlPlane) launch(component string, args ...string) (*process, error) {
	return cp.launcher.start(cp.assets.Command(component, args...), cp.path(component+".log"))
}
