package v1alpha1

// Default sets the same defaults as the CRD, for objects that are read from a file and not from an API
// server. It does not add absent blocks.
func (i *Infra) Default() {
	i.Spec.InfraComponents.DHCP.setDefaults()
	i.Spec.InfraComponents.DNS.setDefaults()
	i.Spec.InfraComponents.Proxy.setDefaults()
	i.Spec.AppsIngress.setDefaults()
}

// Default sets the same defaults as the CRD, for objects that are read from a file and not from an API
// server. It does not add absent blocks.
func (p *ProxyServer) Default() {
	setDefault(&p.Spec.Port, DefaultProxyPort)
	setDefault(&p.Spec.XDSPort, DefaultXDSPort)
	setDefault(&p.Spec.LogLevel, DefaultLogLevel)
	for i := range p.Spec.Backends {
		p.Spec.Backends[i].setDefaults()
	}
}

func (d *InfraDHCP) setDefaults() {
	if d == nil {
		return
	}
	setDefaultPointer(&d.Enabled, true)
	setDefault(&d.LeaseTime, DefaultLeaseTime)
}

func (d *InfraDNS) setDefaults() {
	if d != nil {
		setDefaultPointer(&d.Enabled, true)
	}
}

func (p *InfraProxy) setDefaults() {
	if p == nil {
		return
	}
	setDefaultPointer(&p.Enabled, true)
	setDefault(&p.ConnectTimeout, DefaultProxyConnectTimeout)
	setDefault(&p.IdleTimeout, DefaultProxyIdleTimeout)
	setDefault(&p.LogLevel, DefaultLogLevel)
	setDefault(&p.TerminationGracePeriodSeconds, DefaultProxyTerminationGracePeriod)
}

func (a *AppsIngress) setDefaults() {
	if a == nil {
		return
	}
	setDefault(&a.Source, AppsIngressSourceHostedService)
	setDefault(&a.Dial, AppsIngressDialService)
	setDefault(&a.AddressDeadline, DefaultAddressDeadline)
	setDefault(&a.ProxyProtocol, ProxyProtocolNone)
	if a.KubeconfigSecretRef != nil {
		setDefault(&a.KubeconfigSecretRef.Key, DefaultKubeconfigKey)
	}
	if a.MetalLB != nil && a.MetalLB.OLM != nil {
		setDefault(&a.MetalLB.OLM.Source, DefaultMetalLBSource)
		setDefault(&a.MetalLB.OLM.SourceNamespace, DefaultMetalLBSourceNamespace)
		setDefault(&a.MetalLB.OLM.Channel, DefaultMetalLBChannel)
	}
	if a.Service != nil {
		setDefault(&a.Service.Namespace, DefaultAppsServiceNamespace)
	}
	if a.Ports != nil {
		setDefault(&a.Ports.HTTP, DefaultAppsHTTPPort)
		setDefault(&a.Ports.HTTPS, DefaultAppsHTTPSPort)
	}
}

func (b *ProxyBackend) setDefaults() {
	setDefault(&b.Protocol, ProtocolTCP)
	setDefault(&b.TimeoutSeconds, DefaultConnectTimeoutSeconds)
	setDefault(&b.ProxyProtocol, ProxyProtocolNone)
	if b.HTTP != nil {
		for i := range b.HTTP.Rules {
			b.HTTP.Rules[i].setDefaults()
		}
	}
	if b.TargetSelector != nil {
		setDefault(&b.TargetSelector.OnMultiple, OnMultipleFail)
	}
	if check := b.HealthCheck; check != nil {
		setDefault(&check.Interval, DefaultHealthCheckInterval)
		setDefault(&check.Timeout, DefaultHealthCheckTimeout)
		setDefault(&check.UnhealthyAfter, DefaultUnhealthyAfter)
		setDefault(&check.HealthyAfter, DefaultHealthyAfter)
	}
	if retry := b.Retry; retry != nil {
		setDefaultPointer(&retry.Attempts, DefaultConnectRetries)
		setDefault(&retry.Backoff, DefaultConnectBackoff)
	}
	if outlier := b.OutlierDetection; outlier != nil {
		setDefaultPointer(&outlier.ConsecutiveFailures, DefaultConsecutiveFailures)
		setDefault(&outlier.EjectionTime, DefaultEjectionTime)
		setDefault(&outlier.MaxEjectionPercent, DefaultMaxEjectionPercent)
	}
}

func (r *HTTPRouteRule) setDefaults() {
	for i := range r.Matches {
		if path := r.Matches[i].Path; path != nil {
			setDefault(&path.Type, PathMatchPathPrefix)
			setDefault(&path.Value, "/")
		}
		for j := range r.Matches[i].Headers {
			setDefault(&r.Matches[i].Headers[j].Type, ValueMatchExact)
		}
		for j := range r.Matches[i].QueryParams {
			setDefault(&r.Matches[i].QueryParams[j].Type, ValueMatchExact)
		}
	}
	for i := range r.Filters {
		setDefaultPointer(&r.Filters[i].RequestRedirect.StatusCode, 302)
	}
	for i := range r.BackendRefs {
		setDefaultPointer(&r.BackendRefs[i].Weight, 1)
	}
	if r.Retry != nil {
		setDefault(&r.Retry.Attempts, 1)
		setDefault(&r.Retry.Backoff, DefaultRetryBackoff)
	}
}

func setDefault[T comparable](value *T, defaultValue T) {
	var zero T
	if *value == zero {
		*value = defaultValue
	}
}

func setDefaultPointer[T any](value **T, defaultValue T) {
	if *value == nil {
		*value = &defaultValue
	}
}
