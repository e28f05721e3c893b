package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// A contender is a server that is compared, with its queries.
type contender struct {
	name   string
	view   string // of hcpviews
	server *server
	client client
	load   load
}

func (c contender) stop() { c.server.Stop() }

// floor returns noop as a contender with the same queries.
func (c contender) floor(s *server) contender {
	c.server, c.name, c.view = s, "noop", ""
	return c
}

// startContender starts a server and checks its answers to all questions.
func (b *bench) startContender(ctx context.Context, name, block string, as client, list []question) (contender, error) {
	c := contender{name: name, client: as}
	var err error
	if c.load, err = b.newLoad(name, as.source, list); err != nil {
		return contender{}, err
	}
	if c.server, err = b.start(ctx, name, b.serverCPU, block, as, list[0]); err != nil {
		return contender{}, err
	}
	if err := as.checkAll(ctx, c.server, list); err != nil {
		c.stop()
		return contender{}, err
	}
	progress("%s: %d answers are right", name, len(list))
	return c, nil
}

// startViews starts hcpviews for n hosted clusters, with queries from a pod, whose view has the most names.
func (b *bench) startViews(ctx context.Context, name, block string, n int) (contender, error) {
	c, err := b.startContender(ctx, name, block, client{source: loopback}, questions(n, fromPod))
	c.name, c.view = "hcpviews", "pod"
	return c, err
}

// viewsOfAPI returns the configuration of hcpviews that reads the API server.
func (b *bench) viewsOfAPI() string {
	return fmt.Sprintf("\thcpviews %s {\n\t\tkubeconfig %s\n\t}", baseDomain, b.Management.Kubeconfig())
}

// infraPod returns the configuration of the DNS pod that setup deploys for a cluster, with one of its two views.
func (b *bench) infraPod(c cluster) string {
	return fmt.Sprintf("\thcpviews %[1]s {\n\t\tkubeconfig %[2]s\n\t\tinfra %[3]s/%[4]s\n\t\thostedcluster %[3]s/%[4]s\n\t\tview pod\n\t\tsnapshot %[5]s\n\t}\n\thcpapps %[1]s",
		c.domain(), b.Management.Kubeconfig(), namespace, c.name(), filepath.Join(b.Dir, "snapshot.json"))
}

// startApps starts hcpapps with hcpviews, with queries from a pod for apps names.
func (b *bench) startApps(ctx context.Context, n int) (contender, error) {
	block := b.viewsOfAPI() + "\n\thcpapps " + baseDomain
	c, err := b.startContender(ctx, "hcpapps", block, client{source: loopback}, questions(n, appsFromPod))
	c.name, c.view = "hcpapps", "pod, *.apps"
	return c, err
}

// viewsOfFolder writes a folder with n hosted clusters and returns the configuration of hcpviews that reads it.
func (b *bench) viewsOfFolder(n int) (string, error) {
	dir := filepath.Join(b.Dir, fmt.Sprintf("manifests-%d", n))
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "clusters.json"), manifests(n), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("writing manifests: %w", err)
	}
	return fmt.Sprintf("\thcpviews %s {\n\t\tmanifests %s\n\t}", baseDomain, dir), nil
}

// floorAddress is the address with which noop answers all queries.
var floorAddress = netip.MustParseAddr("192.0.2.3")

// floorBlock returns the configuration of noop, whose record has a name as long as the queried ones.
func floorBlock() string {
	return fmt.Sprintf("\n\tnoop %q", fmt.Sprintf("%s.%s. 30 IN A %s", labels[4], cluster(0).domain(), floorAddress))
}

func (b *bench) startFloor(ctx context.Context) (*server, error) {
	q := question{name: "any." + baseDomain, want: floorAddress}
	return b.start(ctx, "noop", b.serverCPU, floorBlock(), client{source: loopback, anyOwner: true}, q)
}

// A peer is a stock plugin that answers the same kind of query.
type peer struct {
	name  string
	block string
	list  []question
}

// comparePeers compares hcpviews with each stock plugin that can answer its names, or names of Services.
func (b *bench) comparePeers(ctx context.Context, n int, views contender) error {
	peers, err := b.peers(n)
	if err != nil {
		return err
	}
	for _, p := range peers {
		err := func() error {
			c, err := b.startContender(ctx, p.name, p.block, client{source: loopback}, p.list)
			if err != nil {
				return err
			}
			defer c.stop()
			return b.compare(ctx, n, views, c, targetPeer)
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) peers(n int) ([]peer, error) {
	list := questions(n, fromPod)
	hosts, zone := filepath.Join(b.Dir, "hosts.txt"), filepath.Join(b.Dir, "zone.txt")
	var hostsText, zoneText strings.Builder
	fmt.Fprintf(&zoneText, "@ 30 IN SOA dns hostmaster 1 7200 1800 86400 5\n@ 30 IN NS dns\ndns 30 IN A %s\n", loopback) //nolint:dupword // a zone file
	for _, q := range list {
		fmt.Fprintf(&hostsText, "%s %s\n", q.want, q.name)
		fmt.Fprintf(&zoneText, "%s. 30 IN A %s\n", q.name, q.want)
	}
	for path, text := range map[string]string{hosts: hostsText.String(), zone: zoneText.String()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("writing data of the stock plugins: %w", err)
		}
	}
	kubernetes := fmt.Sprintf("\tkubernetes %s {\n\t\tkubeconfig %s\n\t\tttl 30\n\t}", serviceDomain, b.Management.Kubeconfig())
	return []peer{
		{"hosts", fmt.Sprintf("\thosts %s {\n\t\tttl 30\n\t}", hosts), list},
		{"file", fmt.Sprintf("\tfile %s %s", zone, baseDomain), list},
		// One template with one address for all clusters: the fastest possible configuration.
		{"template", fmt.Sprintf("\ttemplate IN A %s {\n\t\tmatch ^[a-z-]+([.]apps)?[.]c[0-9]+[.]\n\t\tanswer \"{{ .Name }} 30 IN A %s\"\n\t}",
			baseDomain, floorAddress), withAnswer(list, floorAddress)},
		{"kubernetes", kubernetes, questions(n, serviceQuestion)},
		{"k8s_external", kubernetes + fmt.Sprintf("\n\tk8s_external %s {\n\t\tttl 30\n\t}", externalDomain), questions(n, externalQuestion)},
	}, nil
}
