package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/model"
)

// Review is what the API server says about a right.
type Review struct {
	Right

	Allowed bool `json:"allowed,omitempty"`
	// Refused says why it was not asked, or did not answer.
	Refused string `json:"refused,omitempty"`
}

// review asks the API server whether a ServiceAccount has a right.
func (l *line) review(ctx context.Context, r Right) *Review {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	review := &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: accessReviews.Kind},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: r.User, Groups: groupsOf(r.User), ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Version: "*", Resource: r.Resource, Subresource: r.Subresource, Name: r.Name,
			},
		},
	}
	body, err := json.Marshal(review)
	if err == nil {
		body, err = l.do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
	}
	if err == nil {
		err = json.Unmarshal(body, review)
	}
	switch {
	case err != nil:
		return &Review{Right: r, Refused: fmt.Sprintf("reviewing whether %s may %s: %v", r.User, r, err)}
	case !review.Status.Allowed && review.Status.EvaluationError != "":
		return &Review{Right: r, Refused: fmt.Sprintf("reviewing whether %s may %s: %s", r.User, r, review.Status.EvaluationError)}
	}
	return &Review{Right: r, Allowed: review.Status.Allowed}
}

// groupsOf are the groups that the API server puts a ServiceAccount into.
func groupsOf(user string) []string {
	parts := strings.Split(user, ":")
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + parts[len(parts)-2], "system:authenticated"}
}

// unreviewed says why some right is not known; empty where all are.
func (s *Site) unreviewed() string {
	rights, err := s.rights()
	if err != nil {
		return "" // the check has it
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

func accessChecks() []Check {
	return []Check{{
		Code: "OOOI-ACC-001", Title: "our ServiceAccounts have the rights that setup grants", Needs: []string{"OOOI-HC-001", "OOOI-INF-001", "OOOI-NET-002"},
		Reads: slices.Concat(renders(), in(AtInfra, statefulSets), []Read{{Kind: accessReviews, Where: Everywhere}}),
		Applies: func(s *Site) string {
			if _, err := s.rights(); err != nil {
				return "setup would refuse the Infra: " + err.Error()
			}
			return ""
		},
		Run: func(s *Site) []Finding {
			rights, err := s.rights()
			if err != nil {
				s.broken = append(s.broken, err.Error())
			}
			lacks := map[string][]string{}
			var users []string
			for _, r := range rights {
				if review := s.facts.reviews[r]; review == nil || review.Allowed {
					continue
				}
				if lacks[r.User] == nil {
					users = append(users, r.User)
				}
				lacks[r.User] = append(lacks[r.User], r.String())
			}
			var pods []string // setup would bring them up to date as well
			if list, err := s.rendered(); err == nil {
				restarts := s.restarts(list)
				for _, component := range slices.Sorted(maps.Keys(restarts)) {
					pods = append(pods, restarts[component]...)
				}
			}
			var findings []Finding
			for _, user := range users {
				namespace, name, _ := strings.Cut(strings.TrimPrefix(user, "system:serviceaccount:"), ":")
				f := failed(model.Ref{Kind: "ServiceAccount", Namespace: namespace, Name: name}, "run 'kubectl oooi setup' with the Infra's file to grant it"+restartNote(pods)+"; 'kubectl auth can-i --as="+user+"' checks one",
					"it is not allowed to %s", lacks[user][0])
				if more := lacks[user][1:]; len(more) > 0 {
					f.Message += fmt.Sprintf(", and %d more", len(more))
					f = f.because(more...)
				}
				findings = append(findings, f)
			}
			return findings
		},
	}}
}
