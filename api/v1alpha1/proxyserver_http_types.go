package v1alpha1

// HTTPRoutes are the routes of HTTP requests for the hostnames of a backend, with the words of Gateway API's HTTPRoute.
type HTTPRoutes struct {
	// Rules select requests. If several rules match, that with an exact path is used, then that with the longest path
	// prefix, a method, the most headers, and then the first one. A request that no rule matches is answered with 404.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Rules []HTTPRouteRule `json:"rules"`
}

// HTTPRouteRule forwards or redirects the requests that it matches.
type HTTPRouteRule struct {
	// Matches are alternatives: a request needs to satisfy one of them. Absent: all requests.
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

	// Timeouts limit requests.
	// +optional
	Timeouts *HTTPRouteTimeouts `json:"timeouts,omitempty"`

	// Retry repeats requests that fail. Absent: none is repeated.
	// +optional
	Retry *HTTPRouteRetry `json:"retry,omitempty"`
}

// HTTPRouteMatch is a condition of a request, of which all fields must match.
type HTTPRouteMatch struct {
	// Path of the request, without its query. Absent: any path.
	// +optional
	Path *HTTPPathMatch `json:"path,omitempty"`

	// Headers that the request must have.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Headers []HTTPHeaderMatch `json:"headers,omitempty"`

	// Method of the request. Absent: any method.
	// +optional
	Method HTTPMethod `json:"method,omitempty"`
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

// HeaderMatchType is how the value of a header is compared.
//
// +kubebuilder:validation:Enum=Exact
type HeaderMatchType string

// HeaderMatchExact matches the whole value.
const HeaderMatchExact HeaderMatchType = "Exact"

// HTTPHeaderMatch is a condition of a request's header.
type HTTPHeaderMatch struct {
	// Type is how the value is compared.
	// +optional
	// +kubebuilder:default=Exact
	Type HeaderMatchType `json:"type,omitempty"`

	// Name of the header, in upper or lower case.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern="^[A-Za-z0-9!#$%&'*+\\-.^_`|~]+$"
	Name string `json:"name"`

	// Value of the header.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value"`
}

// HTTPMethod is a method of HTTP requests.
//
// +kubebuilder:validation:Enum=GET;HEAD;POST;PUT;DELETE;OPTIONS;TRACE;PATCH
type HTTPMethod string

// HTTPRouteFilterType is the kind of a filter.
//
// +kubebuilder:validation:Enum=RequestRedirect
type HTTPRouteFilterType string

// HTTPRouteFilterRequestRedirect answers requests with a redirect.
const HTTPRouteFilterRequestRedirect HTTPRouteFilterType = "RequestRedirect"

// HTTPRouteFilter changes how requests are processed.
type HTTPRouteFilter struct {
	// Type is the kind of the filter.
	// +required
	Type HTTPRouteFilterType `json:"type"`

	// RequestRedirect answers requests with a redirect.
	// +required
	RequestRedirect HTTPRequestRedirect `json:"requestRedirect"`
}

// HTTPRequestRedirect is a redirect to the same path.
//
// +kubebuilder:validation:XValidation:rule="has(self.scheme) || has(self.hostname) || has(self.port)",message="set scheme, hostname or port: a redirect to the same URL would repeat for ever"
type HTTPRequestRedirect struct {
	// Scheme of the new URL. Absent: that of the request.
	// +optional
	// +kubebuilder:validation:Enum=http;https
	Scheme string `json:"scheme,omitempty"`

	// Hostname of the new URL. Absent: that of the request.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Hostname string `json:"hostname,omitempty"`

	// Port of the new URL. Absent: the default port of scheme, or without scheme that of the listener.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// StatusCode of the response.
	// +optional
	// +kubebuilder:default=302
	// +kubebuilder:validation:Enum=301;302;303;307;308
	StatusCode int32 `json:"statusCode,omitempty"`
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

// HTTPRouteTimeouts limits requests.
type HTTPRouteTimeouts struct {
	// Request is the time until the response must be complete, with all retries, from 1ms to 8760h. Absent: no limit.
	// +optional
	Request Duration `json:"request,omitempty"`
}

// HTTPRouteRetry repeats requests: those whose connection fails or is refused by the server, and those with a response of
// one of the codes. Requests with a body of more than 32 KiB are not repeated.
type HTTPRouteRetry struct {
	// Codes are the statuses of responses after which a request is repeated.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=400
	// +kubebuilder:validation:items:Maximum=599
	Codes []int32 `json:"codes,omitempty"`

	// Attempts is the number of repetitions.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Attempts int32 `json:"attempts,omitempty"`

	// Backoff is the time before the first repetition, from 1ms to 8760h, which grows with each further one, at random up to
	// ten times this.
	// +optional
	// +kubebuilder:default="25ms"
	Backoff Duration `json:"backoff,omitempty"`
}

// DefaultRetryBackoff is the default of HTTPRouteRetry.Backoff.
const DefaultRetryBackoff Duration = "25ms"
