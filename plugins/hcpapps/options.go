package hcpapps

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/plugins/internal/views"
)

// options are the properties of the Corefile block that only hcpapps has.
type options struct{ model.AppsOptions }

// parser returns the parser of an option, or nil for a property that is not one of the options.
func (o *options) parser(property string) views.Parser {
	switch property {
	case "source":
		return o.parseSource
	case "service":
		return views.ObjectName(&o.Service)
	case "selector":
		return o.parseSelector
	case "allow":
		return o.parseAllow
	case "credentials":
		return views.ObjectName(&o.Credentials)
	default:
		return nil
	}
}

func (o *options) parseSource(args []string) error {
	known := []model.AppsSource{model.AppsHosted, model.AppsMirrored, model.AppsStatus}
	if len(args) == 0 {
		return errors.New("must be one or more of hosted, mirrored and status")
	}
	for _, arg := range args {
		source := model.AppsSource(arg)
		switch {
		case !slices.Contains(known, source):
			return fmt.Errorf("%q must be hosted, mirrored or status", arg)
		case slices.Contains(o.Sources, source):
			return fmt.Errorf("duplicate %s", arg)
		}
		o.Sources = append(o.Sources, source)
	}
	return nil
}

func (o *options) parseSelector(args []string) error {
	if len(args) != 1 || o.Selector != nil {
		return errors.New("must have one argument KEY=VALUE[,KEY=VALUE...], once per block")
	}
	o.Selector = map[string]string{}
	for pair := range strings.SplitSeq(args[0], ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || value == "" {
			return fmt.Errorf("%q is not KEY=VALUE", pair)
		}
		o.Selector[key] = value
	}
	return nil
}

func (o *options) parseAllow(args []string) error {
	if len(args) == 0 {
		return errors.New("must have one or more CIDRs")
	}
	for _, arg := range args {
		prefix, err := netip.ParsePrefix(arg)
		if err != nil || prefix.Addr().Is4In6() {
			return fmt.Errorf("%q is not a network such as 192.0.2.0/24", arg)
		}
		o.Allow = append(o.Allow, prefix.Masked())
	}
	return nil
}

// check validates the properties in combination. scope is the scope of the block.
func (o *options) check(scope model.Scope) error {
	standalone := len(o.Sources) > 0 && len(scope.Infras) == 0 && len(scope.HostedClusters) > 0
	switch {
	case o.Service != "" && o.Selector != nil:
		return errors.New("service and selector are mutually exclusive")
	case o.Credentials != "" && len(scope.HostedClusters) != 1:
		return errors.New("credentials require exactly one hosted cluster; specify it with hostedcluster NAMESPACE/NAME")
	case o.Credentials != "" && !slices.Contains(o.Sources, model.AppsHosted):
		return errors.New("credentials require 'source hosted'")
	case (o.Service != "" || o.Selector != nil) && len(o.Sources) == 0:
		return errors.New("service and selector require 'source hosted' or 'source mirrored'")
	case standalone && len(o.Allow) == 0 && !slices.Equal(o.Sources, []model.AppsSource{model.AppsStatus}):
		return errors.New("allow is required without an Infra; list the accepted networks with 'allow CIDR'")
	default:
		return nil
	}
}
