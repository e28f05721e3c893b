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

// startTimeout bounds each wait for a component to start. That usually takes two to four seconds; the rest is
// for loaded machines. The environment variable OOOI_LAB_EMULATED selects a longer one for emulated
// processors.
var startTimeout = func() time.Duration {
	if os.Getenv("OOOI_LAB_EMULATED") != "" {
		return 15 * time.Minute
	}
	return 2 * time.Minute
}()

// Config is the configuration of a control plane. The zero value is valid.
type Config struct {
	// Name identifies the control plane in certificates, contexts of kubeconfig files and progress lines. The
	// default is "lab".
	Name string
	// Dir is the directory for certificates, kubeconfig files, logs and etcd's data. If it is empty, a temporary
	// directory is created, which Stop removes. A control plane in the directory of an earlier one continues with
	// its data, but with new certificates.
	Dir string
	// ServiceCIDR is the range of ClusterIPs, or two ranges, one of each IP family, separated by a comma. The
	// default is 10.96.0.0/16.
	ServiceCIDR string
	// CRDs are installed when the control plane starts. Their processing is cached across starts: see
	// prepareData.
	CRDs []CRDSet
	// ControllerManager starts kube-controller-manager as well. Without it no ServiceAccount is created (and
	// Pods need none), deleted namespaces stay, and neither garbage collection nor EndpointSlices work.
	ControllerManager bool
	// Scheduler starts kube-scheduler as well, which assigns Pods to nodes (StartNode).
	Scheduler bool
	// Address is the address that the API server listens on. The default is 127.0.0.1.
	Address string
	// ServerNames are additional host names and IP addresses in the API server's certificate.
	ServerNames []string
	// APIServerFlags are additional flags of kube-apiserver.
	APIServerFlags []string
	// ControllerManagerFlags are additional flags of kube-controller-manager.
	ControllerManagerFlags []string
	// Audit makes the API server log every request: see AuditLog.
	Audit bool
	// Logf reports progress. The default writes to standard error.
	Logf Logf

	preparing bool // start with an empty etcd, whose data prepared then caches
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

// A ControlPlane is a running control plane. Its methods are safe for concurrent use.
type ControlPlane struct {
	config   Config
	binary   string // has all components
	dir      string
	tempDir  bool
	ca       *authority
	admin    keyPair
	ports    ports
	launcher *launcher
	clients  clients
	attached bool // run by another process

	mu                                                     sync.Mutex // guards the fields below
	etcd, apiServer, controllerManager, scheduler, metallb *process
	stopped                                                bool
}

// ports are the ports of a control plane. They stay the same when a process restarts.
type ports struct {
	etcd, etcdPeer, apiServer int

	reserved *Ports
}

// Start starts a control plane and returns when it serves. The context bounds only the start: the control
// plane runs until Stop, or until this process ends.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	config = config.withDefaults()
	warnOfWatchLimit()
	cp, err := start(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("starting control plane %s: %w", config.Name, err)
	}
	return cp, nil
}

func start(ctx context.Context, config Config) (*ControlPlane, error) {
	binary, err := Build(ctx, config.Logf)
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{config: config, binary: binary, dir: config.Dir, launcher: newLauncher()}
	if err := cp.up(ctx); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return cp, nil
}

// up creates the control plane's directory and starts all components.
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
	// The API server creates the namespaces shortly after it reports ready.
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
		err := cp.supervise(&cp.scheduler, cp.startScheduler)
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

// StartControllerManager starts kube-controller-manager on a control plane without Config.ControllerManager.
// Its garbage collector watches the kinds that are served when it starts, and discovers others within half a
// minute.
func (cp *ControlPlane) StartControllerManager(ctx context.Context) error {
	cp.mu.Lock()
	err := cp.supervise(&cp.controllerManager, cp.startControllerManager)
	cp.mu.Unlock()
	if err != nil {
		return err
	}
	return cp.waitForPath(ctx, "the controller manager to create the default service account", "/api/v1/namespaces/default/serviceaccounts/default")
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
		return fmt.Errorf("creating its directory: %w", err)
	}
	return nil
}

// auditPolicy logs the metadata of each request. Watches are logged as soon as the response starts.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// makeAuditPolicy writes the audit policy and adds the flags for the audit log, if Config.Audit is set.
func (cp *ControlPlane) makeAuditPolicy() error {
	if !cp.config.Audit {
		return nil
	}
	cp.config.APIServerFlags = append(slices.Clone(cp.config.APIServerFlags),
		"--audit-policy-file="+cp.path("audit-policy.yaml"), "--audit-log-path="+cp.AuditLog())
	return cp.writeFile("audit-policy.yaml", []byte(auditPolicy))
}

// serve starts etcd and the API server. It retries with other ports, up to five times in all, if another
// process binds one of the reserved ports first.
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

// Stop kills the processes, waits until they have ended and removes the directory if it is a temporary one.
// Further calls do nothing.
func (cp *ControlPlane) Stop() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return nil
	}
	cp.stopped = true
	// There is no state to save, and a graceful shutdown takes many seconds.
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

// Dir returns the directory with the certificates, kubeconfig files and logs.
func (cp *ControlPlane) Dir() string { return cp.dir }

// AuditLog returns the path of the audit log: a file with one audit event (audit.k8s.io/v1) in JSON per line.
// It exists only with Config.Audit.
func (cp *ControlPlane) AuditLog() string { return cp.path("audit.jsonl") }

// CA returns the certificate of the authority that signed the API server's certificate, in PEM.
func (cp *ControlPlane) CA() []byte { return slices.Clone(cp.ca.cert) }

// ServerURL returns the URL of the API server, which does not change on a restart.
func (cp *ControlPlane) ServerURL() string {
	return "https://" + net.JoinHostPort(cp.config.Address, strconv.Itoa(cp.ports.apiServer))
}

// Logs returns the last lines of each component's log.
func (cp *ControlPlane) Logs() string {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return logTails(cp.config.Name, cp.processes())
}

// processes returns the processes of all components; nil for those that were not started. The caller must
// hold cp.mu.
func (cp *ControlPlane) processes() []*process {
	return []*process{cp.etcd, cp.apiServer, cp.controllerManager, cp.scheduler, cp.metallb}
}

// logTails returns the last lines of each process's log.
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
