package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/densityops/oooi/internal/model"
)

func init() {
	register(
		Check{
			Code: "OOOI-ACC-001", Title: "our ServiceAccounts have the rights that setup grants", Needs: []string{"OOOI-HC-001", "OOOI-INF-001", "OOOI-NET-002"},
			Reads: slices.Concat(renderReads(), in(AtInfra, statefulSets), optional(in(AtInfra, pods)), []Read{{Kind: accessReviews, Where: Everywhere}}),
			NotApplicable: func(s *Site) string {
				if _, err := s.rights(); err != nil {
					return "setup would refuse the Infra: " + err.Error()
				}
				return ""
			},
			Run: checkRights,
		},
		Check{
			Code: "OOOI-ACC-002", Title: "our pods have tokens of their present ServiceAccounts", Needs: []string{"OOOI-INF-001"},
			Reads: slices.Concat(in(AtInfra, serviceAccounts, pods), in(AtSystem, serviceAccounts, pods)), Run: checkTokens,
		},
	)
}

// checkRights finds ServiceAccounts without rights that setup grants.
func checkRights(s *Site) []Finding {
	rights, err := s.rights()
	if err != nil {
		s.checkErrors = append(s.checkErrors, err.Error())
	}
	lacks := map[string][]Right{}
	var users []string
	for _, r := range rights {
		if !s.lacks(r) {
			continue
		}
		if lacks[r.User] == nil {
			users = append(users, r.User)
		}
		lacks[r.User] = append(lacks[r.User], r)
	}
	var pods []string // pods that the same run of setup also replaces
	restarts := s.restartedPods(s.facts.drifts[s.key()])
	for _, component := range slices.Sorted(maps.Keys(restarts)) {
		pods = append(pods, restarts[component]...)
	}
	remedy := "run 'kubectl oooi setup -f FILE' with the Infra's file to grant the missing rights" + restartNote(pods, diffFirst) +
		"; to test one right: kubectl auth can-i VERB RESOURCE -n NAMESPACE --as=system:serviceaccount:NAMESPACE:NAME"
	var findings []Finding
	older := s.olderSetup()
	for _, user := range users {
		missing := lacks[user]
		slices.SortStableFunc(missing, func(a, b Right) int { return a.rank() - b.rank() })
		namespace, name, _ := strings.Cut(strings.TrimPrefix(user, "system:serviceaccount:"), ":")
		f := failed(model.Ref{Kind: "ServiceAccount", Namespace: namespace, Name: name}, remedy, "the ServiceAccount is not allowed to %s", missing[0])
		if without := s.withoutBinding(user); len(without) > 0 {
			f.Message = strings.Join(without, "; ") + ": " + f.Message
		}
		if more := missing[1:]; len(more) > 0 {
			f.Message += fmt.Sprintf("; further missing rights: %d", len(more))
			for _, r := range more {
				f = f.because(r.String())
			}
		}
		if older != "" { // whose components may not need the right
			f.Severity = Warn
			f.Message += ", which version " + s.facts.Plugin + " grants; version " + older + " deployed it"
		}
		findings = append(findings, f)
	}
	return findings
}

// lacks reports whether the API server denies a right.
func (s *Site) lacks(r Right) bool {
	review := s.facts.reviews[r]
	return review != nil && !review.Allowed
}

// withoutBinding returns the bindings that grant a user nothing, each as a clause: they or their roles do not exist, or
// were changed.
func (s *Site) withoutBinding(user string) []string {
	var list []string
	for _, b := range s.grants.bindings {
		if b.user == user && !slices.ContainsFunc(b.rights, func(r Right) bool { return !s.lacks(r) }) {
			list = append(list, fmt.Sprintf("%s or its %s does not exist, or was changed", b.ref, b.role))
		}
	}
	return list
}

// watched are resources that our daemons watch, those without which most fails first.
var watched = []string{"virtualmachineinstances", "services", "endpointslices", "routes", "hostedclusters", "proxyservers", "infras", "leases", "secrets", "network-attachment-definitions"}

// rank returns how early a missing right is named: that to read what a daemon serves first, and to write Events last.
func (r Right) rank() int {
	at := slices.Index(watched, r.Resource)
	if at < 0 {
		at = len(watched)
	}
	switch {
	case r.Resource == "events":
		return 3 * len(watched)
	case !slices.Contains([]string{"get", "list", "watch"}, r.Verb):
		return at + len(watched) + 1
	}
	return at
}

// tokenLife is how long a pod may keep a token after its ServiceAccount was created again. Kubelet renews a token, which is
// valid for an hour, when a fifth of that remains.
const tokenLife = time.Hour

// checkTokens finds pods that are older than their ServiceAccount: the API server rejects a token of a deleted one, whose
// UID it contains, also after another one of the same name exists.
func checkTokens(s *Site) []Finding {
	var findings []Finding
	for _, where := range []Where{AtInfra, AtSystem} {
		for _, account := range all[corev1.ServiceAccount](s, serviceAccounts, where) {
			created := account.CreationTimestamp.Time
			if s.facts.Taken.Sub(created) > tokenLife {
				continue
			}
			var older []string
			component := ""
			for _, p := range s.ownPods(account.Namespace) {
				if p.Spec.ServiceAccountName == account.Name && p.CreationTimestamp.Time.Before(created) && p.DeletionTimestamp == nil {
					older, component = append(older, p.Name), componentOf(p)
				}
			}
			if len(older) == 0 {
				continue
			}
			findings = append(findings, failed(model.Ref{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name},
				fmt.Sprintf("replace the pods, one after the other: kubectl -n %s delete pod %s", account.Namespace, strings.Join(older, " ")),
				"the ServiceAccount was deleted and created again at %s, after its pods had started: the API server rejects their tokens", formatTime(created)).
				because("older: Pod "+strings.Join(older, ", Pod "), "kubelet renews their tokens within an hour").of(component))
		}
	}
	return findings
}

// Review is the API server's answer to whether a ServiceAccount has a right.
type Review struct {
	Right

	Allowed bool `json:"allowed,omitempty"`
	// Refused is why the review failed; empty if Allowed is valid.
	Refused string `json:"refused,omitempty"`
}

// review requests a SubjectAccessReview of a right. A failed request is recorded in Refused.
func review(ctx context.Context, clients *kubernetes.Clientset, r Right) *Review {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review, err := clients.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: r.User, Groups: groupsOf(r.User), ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Version: "*", Resource: r.Resource, Subresource: r.Subresource, Name: r.Name,
			},
		},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return &Review{Right: r, Refused: fmt.Sprintf("reviewing whether %s may %s: %v", r.User, r, err)}
	case !review.Status.Allowed && review.Status.EvaluationError != "":
		return &Review{Right: r, Refused: fmt.Sprintf("reviewing whether %s may %s: %s", r.User, r, review.Status.EvaluationError)}
	}
	return &Review{Right: r, Allowed: review.Status.Allowed}
}

// groupsOf returns the groups of a ServiceAccount, given by its user name
// "system:serviceaccount:NAMESPACE:NAME".
func groupsOf(user string) []string {
	parts := strings.Split(user, ":")
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + parts[len(parts)-2], "system:authenticated"}
}

// unreadReview returns why the review of a right is missing, empty if all rights were reviewed.
func (s *Site) unreadReview() string {
	rights, err := s.rights()
	if err != nil {
		return "" // NotApplicable of OOOI-ACC-001 reports the error
	}
	for _, r := range rights {
		switch review := s.facts.reviews[r]; {
		case review == nil:
			return "the rights of our ServiceAccounts were not checked"
		case review.Refused != "":
			return review.Refused
		}
	}
	return ""
}
