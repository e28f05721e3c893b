package views

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// TestTablesAfterChanges creates, changes and deletes clusters, some of which have the same domain. Each table must
// answer like one that is built from all objects, while earlier tables are queried concurrently.
func TestTablesAfterChanges(t *testing.T) {
	names := []string{"blue", "green", "red", "grey"}
	clients := []string{"10.0.0.1", "10.1.0.7", "10.2.0.7", "10.3.0.7", "10.4.0.7", "192.0.2.7"}
	for _, properties := range []string{"", "view pod", "view vlan", "view pod 192.0.2.0/24", "hostedcluster clusters/blue clusters/green-2\nanswer pod 203.0.113.9\nview pod"} {
		t.Run(properties, func(t *testing.T) {
			cfg, random := config(t, properties), rand.New(rand.NewPCG(1, 2))
			options := model.Options{Scope: cfg.Source.Scope}
			builder, all := model.NewBuilder(options, nil), map[string]model.Change{}
			var table *Table
			var queries sync.WaitGroup
			defer queries.Wait()
			for round := range 200 {
				var changes []model.Change
				for range 1 + random.IntN(2) {
					c := randomChange(random, names, round)
					if slices.ContainsFunc(changes, func(o model.Change) bool { return o.Kind == c.Kind && o.Name == c.Name }) {
						continue
					}
					changes, all[c.Kind+c.Name] = append(changes, c), c
				}
				table = cfg.newTable(builder.Update(changes), nil, controlPlane, uint32(round), table)
				in := &model.Objects{}
				for _, c := range all {
					if c.Now != nil {
						in.Add(c.Now)
					}
				}
				whole := cfg.newTable(model.Build(in, options), nil, controlPlane, uint32(round), nil)
				var answers []string
				for _, client := range clients {
					for _, cluster := range names {
						got, want := answerFor(table, client, cluster), answerFor(whole, client, cluster)
						if got != want {
							t.Fatalf("round %d, after %+v: %s queries %s: got %q, want %q", round, changes, client, cluster, got, want)
						}
						answers = append(answers, got)
					}
				}
				now := table
				queries.Go(func() { // the answers of a table never change
					for i, want := range answers {
						if got := answerFor(now, clients[i/len(names)], names[i%len(names)]); got != want {
							t.Errorf("round %d: the answer %q has become %q", round, want, got)
						}
					}
				})
			}
		})
	}
}

// randomChange returns a change to a HostedCluster, its Infra or its proxy's Service. There are two HostedClusters
// with the domain of each name.
func randomChange(random *rand.Rand, names []string, round int) model.Change {
	n := random.IntN(len(names))
	domain := names[n]
	name, second := domain, random.IntN(2)
	if second == 1 {
		name += "-2"
	}
	in := &model.Objects{}
	addHostedCluster(in, name, fmt.Sprintf("172.30.%d.%d", n, round))
	addInfra(in, name, fmt.Sprint("vlan", n+random.IntN(2)), fmt.Sprintf("10.%d.0.%d", n+1, round), fmt.Sprintf("10.%d.0.0/16", n+1))
	in.HostedClusters[0].ObjectMeta = metav1.ObjectMeta{
		Namespace: "clusters", Name: name, UID: types.UID(fmt.Sprint(round)), CreationTimestamp: metav1.NewTime(time.Unix(int64(random.IntN(3)), 0)),
	}
	in.HostedClusters[0].Spec.DNS = objects.HostedClusterDNS{BaseDomain: "example.com", BaseDomainPrefix: &domain}
	changes := in.Additions()
	c := changes[random.IntN(len(changes))]
	if random.IntN(4) == 0 {
		c.Now = nil
	}
	return c
}

// TestUnchangedAnswersSurviveChanges keeps the nodes of all clusters but the one that changes.
func TestUnchangedAnswersSurviveChanges(t *testing.T) {
	in := twoVLANs()
	cfg := config(t, "view pod")
	builder := model.NewBuilder(model.Options{}, nil)
	before := cfg.newTable(builder.Update(in.Additions()), nil, controlPlane, 1, nil)
	moved := *in.Services[0]
	moved.Spec.ClusterIPs = []string{"10.96.0.99"}
	after := cfg.newTable(builder.Update([]model.Change{{Kind: "Service", Namespace: moved.Namespace, Name: moved.Name, Now: &moved}}), nil, controlPlane, 2, before)
	for cluster, same := range map[string]bool{"blue": false, "green": true} {
		old, _ := before.ClientView(netip.Addr{}).Tree.Lookup("api." + cluster + ".example.com.")
		now, _ := after.ClientView(netip.Addr{}).Tree.Lookup("api." + cluster + ".example.com.")
		if (old == now) != same {
			t.Errorf("the node of %s is shared: %t, want %t", cluster, old == now, same)
		}
	}
	if got, want := answerFor(after, "10.0.0.1", "blue"), "pod 10.96.0.99"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
