package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// startTimeout bounds each wait for a component to come up. Two to four
// seconds is normal; the rest is for loaded machines. With environment variable
// OOOI_LAB_EMULATED it is for emulated ones.
var startTimeout = func() time.Duration {
	if os.Getenv("OOOI_LAB_EMULATED") != "" {
		return 15 * time.Minute
	}
	return 2 * time.Minute
}()

// Config says what control plane to start. The zero value will do.
type Config struct {
	// Name tells control planes apart: in certificates, contexts of kubeconfig
	// files and progress lines. The default is "lab".
	Name string
	// Dir keeps the certificates, kubeconfig files, logs and etcd's data. If
	// empty it is a temporary folder that Stop removes. A folder of an earlier
	// control plane continues with its data, but with new certificates.
	Dir string
	// ServiceCIDR is the range of ClusterIPs, or two ranges, one of each
	// family, separated by a comma. The default is 10.96.0.0/16.
	ServiceCIDR string
	// CRDs are installed when the control plane is up. The processor time that this takes is
	// spent once: see prepareData.
	CRDs []CRDSet
	// ControllerManager starts kube-controller-manager as well. Without it no
	// ServiceAccount gets made (and Pods need none), a deleted namespace stays,
	// and nothing collects garbage or fills EndpointSlices.
	ControllerManager bool
	// Scheduler starts kube-scheduler as well, which gives Pods a Node (StartNode).
	Scheduler bool
	// Address is where the API server listens, 127.0.0.1 by default.
	Address string
	// ServerNames are further host names and IP addresses that the API
	// server's certificate is valid for.
	ServerNames []string
	// APIServerFlags are added to those of kube-apiserver.
	APIServerFlags []string
	// ControllerManagerFlags are added to those of the controller manager.
	ControllerManagerFlags []string
	// Audit has the API server write down every request: see AuditLog.
	Audit bool
	// Logf reports progress. The default writes to standard error.
	Logf Logf

	preparing bool // etcd starts empty, and is to be copied
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "lab"
	}
	if c.ServiceCIDR == "" {
		c.ServiceCIDR = "10.96.0.0/16"
	}
	if c.Address == "" {
		c.Address = "127.0.0.1"
	}
	return c
}

// A ControlPlane is a running control plane. Its methods may be called
// concurrently.
type ControlPlane struct {
	config   Config
	assets   Assets
	dir      string
	tempDir  bool
	ca       *authority
	admin    keyPair
	ports    ports
	launcher *launcher
	clients  clients
	attached bool // another process runs it

	mu                                                     sync.Mutex // guards what follows
	etcd, apiServer, controllerManager, scheduler, metallb *process
	stopped                                                bool
}

// ports are where a control plane listens. They stay when a process restarts.
type ports struct {
	etcd, etcdPeer, apiServer int

	reserved *Ports
}

// Start starts a control plane and returns when it serves. The context bounds
// the start only: the control plane runs until Stop, or until this process
// ends.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	config = config.withDefaults()
	cp, err := start(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("starting control plane %s: %w", config.Name, err)
	}
	return cp, nil
}

func start(ctx context.Context, config Config) (*ControlPlane, error) {
	assets, err := FindAssets(ctx, config.Logf, config.components()...)
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{config: config, assets: assets, dir: config.Dir, launcher: newLauncher()}
	if err := cp.up(ctx); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return cp, nil
}

// up brings everything up, in a folder made for it.
func (cp *ControlPlane) up(ctx context.Context) error {
	if err := cp.makeDir(); err != nil {
		return err
	}
	if err := cp.makeCertificates(); err != nil {
		return err
	}
	if err := cp.makeAuditPolicy(); err != nil {
		return err
	}
	crds, err := CRDs(ctx, cp.config.CRDs...)
	if err != nil {
		return err
	}
	if err := cp.prepareData(ctx, crds); err != nil {
		return err
	}
	if err := cp.serve(ctx); err != nil {
		return err
	}
	if cp.clients, err = newClients(cp.RESTConfig()); err != nil {
		return err
	}
	// The namespaces come a moment after the server says that it is ready.
	if err := cp.waitForPath(ctx, "the default namespace", "/api/v1/namespaces/default"); err != nil {
		return err
	}
	serve := cp.waitForCRDs
	if cp.config.preparing {
		serve = cp.installCRDs
	}
	if err := serve(ctx, crds); err != nil {
		return err
	}
	if cp.config.Scheduler {
		cp.mu.Lock()
		err := cp.keep(&cp.scheduler, cp.startScheduler)
		cp.mu.Unlock()
		if err != nil {
			return err
		}
	}
	if cp.config.ControllerManager {
		return cp.StartControllerManager(ctx)
	}
	return nil
}

// StartControllerManager starts kube-controller-manager where the configuration has none. Its garbage
// collector knows the kinds that are served when it starts, and learns of others within half a minute.
func (cp *ControlPlane) StartControllerManager(ctx context.Context) error {
	cp.mu.Lock()
	err := cp.keep(&cp.controllerManager, cp.startControllerManager)
	cp.mu.Unlock()
	if err != nil {
		return err
	}
	return cp.waitForPath(ctx, "the controller manager to make the default service account", "/api/v1/namespaces/default/serviceaccounts/default")
}

func (cp *ControlPlane) makeDir() error {
	var err error
	if cp.dir == "" {
		cp.tempDir = true
		cp.dir, err = os.MkdirTemp("", "oooi-lab-"+cp.config.Name+"-")
	} else if cp.dir, err = filepath.Abs(cp.dir); err == nil {
		err = os.MkdirAll(cp.dir, 0o750)
	}
	if err != nil {
		return fmt.Errorf("making its folder: %w", err)
	}
	return nil
}

// auditPolicy has of each request who made it, what it was for, and what became of it. Those
// that wait for changes are there as soon as they are answered.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// makeAuditPolicy adds the flags for the audit log, if there is to be one.
func (cp *ControlPlane) makeAuditPolicy() error {
	if !cp.config.Audit {
		return nil
	}
	cp.config.APIServerFlags = append(slices.Clone(cp.config.APIServerFlags),
		"--audit-policy-file="+cp.path("audit-policy.yaml"), "--audit-log-path="+cp.AuditLog())
	return cp.writeFile("audit-policy.yaml", []byte(auditPolicy))
}

// serve starts etcd and the API server, once more on other ports if somebody
// has taken one in the moment between finding and using it.
func (cp *ControlPlane) serve(ctx context.Context) error {
	for try := 1; ; try++ {
		free, err := ReservePorts(ctx, cp.config.Address, 3)
		if err != nil {
			return err
		}
		cp.ports.reserved.Release()
		err = cp.serveOn(ctx, ports{etcd: free.Numbers[0], etcdPeer: free.Numbers[1], apiServer: free.Numbers[2], reserved: free})
		if !errors.Is(err, errPortTaken) || try == 5 {
			return err
		}
		if err := errors.Join(cp.KillAPIServer(), cp.KillEtcd()); err != nil {
			return err
		}
	}
}

func (cp *ControlPlane) serveOn(ctx context.Context, ports ports) error {
	cp.ports = ports
	if err := cp.writeKubeconfig(cp.Kubeconfig(), "admin", cp.admin); err != nil {
		return err
	}
	cp.mu.Lock()
	err := errors.Join(cp.startEtcd(), cp.startAPIServer())
	cp.mu.Unlock()
	if err != nil {
		return err
	}
	return cp.waitForPath(ctx, "the API server to be ready", "/readyz")
}

// Stop kills the processes, waits until they are gone and removes the folder
// if it was a temporary one. Stopping twice is fine.
func (cp *ControlPlane) Stop() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return nil
	}
	cp.stopped = true
	// kill -9: there is nothing to save, and graceful ends take many seconds.
	err := errors.Join(cp.metallb.kill(), cp.scheduler.kill(), cp.controllerManager.kill(), cp.apiServer.kill(), cp.etcd.kill())
	cp.launcher.close()
	cp.clients.close()
	cp.ports.reserved.Release()
	if cp.tempDir && cp.dir != "" {
		err = errors.Join(err, os.RemoveAll(cp.dir))
	}
	if err != nil {
		return fmt.Errorf("stopping control plane %s: %w", cp.config.Name, err)
	}
	return nil
}

// Dir returns the folder with the certificates, kubeconfig files and logs.
func (cp *ControlPlane) Dir() string { return cp.dir }

// AuditLog returns the path of the file that has an audit event (audit.k8s.io/v1) for each
// request, as JSON, one a line, if Config.Audit asks for it.
func (cp *ControlPlane) AuditLog() string { return cp.path("audit.jsonl") }

// CA returns the certificate of the authority that signed the API server's, in
// PEM.
func (cp *ControlPlane) CA() []byte { return slices.Clone(cp.ca.cert) }

// ServerURL returns the address of the API server, which a restart keeps.
func (cp *ControlPlane) ServerURL() string {
	return "https://" + net.JoinHostPort(cp.config.Address, strconv.Itoa(cp.ports.apiServer))
}

// Logs returns the last lines that each component has logged.
func (cp *ControlPlane) Logs() string {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return logTails(cp.config.Name, cp.processes())
}

// processes needs cp.mu held. Those that were not started are nil.
func (cp *ControlPlane) processes() []*process {
	return []*process{cp.etcd, cp.apiServer, cp.controllerManager, cp.scheduler, cp.metallb}
}

// logTails returns the last lines that each process has logged.
func logTails(owner string, processes []*process) string {
	var b strings.Builder
	for _, p := range processes {
		if p != nil {
			fmt.Fprintf(&b, "== %s of %s\n%s\n", p.name, owner, p.logTail())
		}
	}
	return b.String()
}

func (cp *ControlPlane) path(elem ...string) string {
	return filepath.Join(append([]string{cp.dir}, elem...)...)
}
