package v1alpha1

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// These types are Gateway API's where the proxy supports all of their fields. The others are narrower:
//   - HTTPPathMatch: with 16384 backends, Gateway API's CEL rules for paths exceed the API server's cost budget, and they
//     reject %2F.
//   - HTTPValueMatch replaces HTTPHeaderMatch and HTTPQueryParamMatch. It lacks regular expressions, because Envoy rejects all
//     routes of a port if it cannot compile one.
//   - HTTPRouteFilter supports only redirects.
//   - HTTPBackendRef names a Service in the backend's targetNamespace, and lacks filters.
//   - HTTPRouteRetry has limits and defaults, and accepts repeated codes.

// HTTPRoutes are the routes of HTTP requests for the hostnames of a backend, with the words of Gateway API's HTTPRoute.
type HTTPRoutes struct {
	// Rules select requests. If several rules match, that with an exact path is used, then that with the longest path
	// prefix, a method, the most headers, the most query parameters, and then the first one. A request that no
	// rule matches is answered with 404.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Rules []HTTPRouteRule `json:"rules"`
}

// HTTPRouteRule forwards or redirects the requests that it matches.
type HTTPRouteRule struct {
	// Matches are alternatives: a request needs to satisfy one of them. Defaults to all requests.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Matches []HTTPRouteMatch `json:"matches,omitempty"`

	// Filters change how requests are processed. A rule with RequestRedirect forwards none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1
	Filters []HTTPRouteFilter `json:"filters,omitempty"`

	// BackendRefs are Services in the targetNamespace of the backend, to which requests are distributed by weight. Absent:
	// the Service of the backend.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	BackendRefs []HTTPBackendRef `json:"backendRefs,omitempty"`

	// Timeouts limit a request with all retries, and each attempt (backendRequest), from 1ms to 8760h. Absent or 0s:
	// no limit.
	// +optional
	Timeouts *gatewayv1.HTTPRouteTimeouts `json:"timeouts,omitempty"`

	// Retry retries requests that fail. By default, none is retried.
	// +optional
	Retry *HTTPRouteRetry `json:"retry,omitempty"`
}

// HTTPRouteMatch is a condition of a request. All its fields must match.
type HTTPRouteMatch struct {
	// Path of the request, without its query. Defaults to any path.
	// +optional
	Path *HTTPPathMatch `json:"path,omitempty"`

	// Headers that the request must have, with exact values.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Headers []HTTPValueMatch `json:"headers,omitempty"`

	// QueryParams are parameters that the query of the request must have, with exact values as in the request, where a space
	// may be %20 or +.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	QueryParams []HTTPValueMatch `json:"queryParams,omitempty"`

	// Method of the request, except CONNECT. Defaults to any method.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self != 'CONNECT'",message="the proxy does not support CONNECT"
	Method gatewayv1.HTTPMethod `json:"method,omitempty"`
}

// ValueMatchType is how the value of a header or query parameter is compared.
//
// +kubebuilder:validation:Enum=Exact
type ValueMatchType string

// ValueMatchExact matches the whole value.
const ValueMatchExact ValueMatchType = "Exact"

// HTTPValueMatch is a condition of a request's header or query parameter.
type HTTPValueMatch struct {
	// Type is how the value is compared.
	// +optional
	// +kubebuilder:default=Exact
	Type ValueMatchType `json:"type,omitempty"`

	// Name of the header, in upper or lower case, or of the query parameter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern="^[A-Za-z0-9!#$%&'*+\\-.^_`|~]+$"
	Name string `json:"name"`

	// Value is the whole value.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value"`
}

// PathMatchType is how a path is compared.
//
// +kubebuilder:validation:Enum=Exact;PathPrefix
type PathMatchType string

const (
	// PathMatchExact matches the whole path.
	PathMatchExact PathMatchType = "Exact"

	// PathMatchPathPrefix matches whole elements at the beginning of the path: /api matches /api and /api/v1, but not
	// /apis.
	PathMatchPathPrefix PathMatchType = "PathPrefix"
)

// HTTPPathMatch is a condition of a request's path.
type HTTPPathMatch struct {
	// Type is how the path is compared.
	// +optional
	// +kubebuilder:default=PathPrefix
	Type PathMatchType `json:"type,omitempty"`

	// Value is the path. It must not contain //, /./ or /../, and must not end with /. or /..
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/([-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*$`
	Value string `json:"value,omitempty"`
}

// HTTPRouteFilter changes how requests are processed.
type HTTPRouteFilter struct {
	// Type is the kind of the filter: RequestRedirect.
	// +required
	// +kubebuilder:validation:Enum=RequestRedirect
	Type gatewayv1.HTTPRouteFilterType `json:"type"`

	// RequestRedirect redirects requests. Absent fields keep the request's values; without scheme and port, the
	// redirect has the listener's port.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.scheme) || has(self.hostname) || has(self.port) || has(self.path)",message="set scheme, hostname, port or path: a redirect to the same URL would repeat for ever"
	// +kubebuilder:validation:XValidation:rule="!has(self.path) || !has(self.path.replaceFullPath) || self.path.replaceFullPath.startsWith('/')",message="must begin with a slash",fieldPath=".path.replaceFullPath"
	RequestRedirect gatewayv1.HTTPRequestRedirectFilter `json:"requestRedirect"`
}

// HTTPBackendRef is a Service that gets a share of requests.
type HTTPBackendRef struct {
	// Name of the Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Port of the Service.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// Weight is the share of requests, in proportion to the sum of all weights. With 0 the Service gets none; if all
	// weights are 0, requests are answered with 500.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Weight *int32 `json:"weight,omitempty"`
}

// HTTPRouteRetry retries a request if its connection fails, if the server refuses it, or if the response has one of
// the codes. With timeouts.backendRequest it also retries a request that times out or whose connection is reset.
// Requests with a body of more than 32 KiB are not repeated.
type HTTPRouteRetry struct {
	// Codes are the statuses of responses after which a request is retried.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=400
	// +kubebuilder:validation:items:Maximum=599
	Codes []int32 `json:"codes,omitempty"`

	// Attempts is the number of retries.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Attempts int32 `json:"attempts,omitempty"`

	// Backoff is the time before the first retry, from 1ms to 8760h, which grows with each further retry, at random up to
	// ten times this.
	// +optional
	// +kubebuilder:default="25ms"
	Backoff Duration `json:"backoff,omitempty"`
}

// DefaultRetryBackoff is the default of HTTPRouteRetry.Backoff.
const DefaultRetryBackoff Duration = "25ms"
