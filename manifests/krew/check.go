package main

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// A plugin is a krew manifest. krew's own types are in an internal package.
type plugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string     `json:"version"`
		Homepage         string     `json:"homepage"`
		ShortDescription string     `json:"shortDescription"`
		Description      string     `json:"description"`
		Caveats          string     `json:"caveats"`
		Platforms        []platform `json:"platforms"`
	} `json:"spec"`
}

type platform struct {
	Selector *metav1.LabelSelector `json:"selector"`
	URI      string                `json:"uri"`
	SHA256   string                `json:"sha256"`
	Bin      string                `json:"bin"`
	Files    []struct {
		From string `json:"from"`
		To   string `json:"to"`
	} `json:"files"`
}

// maxShortDescription is the number of characters that 'kubectl krew search' shows.
const maxShortDescription = 50

var (
	pluginNames = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	versions    = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	sums        = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// systems has the operating systems and architectures that krew supports.
var systems = []labels.Set{
	{"os": "darwin", "arch": "amd64"}, {"os": "darwin", "arch": "arm64"},
	{"os": "linux", "arch": "386"}, {"os": "linux", "arch": "amd64"}, {"os": "linux", "arch": "arm"}, {"os": "linux", "arch": "arm64"},
	{"os": "linux", "arch": "ppc64le"}, {"os": "linux", "arch": "s390x"},
	{"os": "windows", "arch": "386"}, {"os": "windows", "arch": "amd64"}, {"os": "windows", "arch": "arm64"},
}

// check checks a manifest against the rules of krew's documentation and of the krew index. It returns all violations.
func check(text []byte, name string) error {
	var p plugin
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		return fmt.Errorf("reading the manifest: %w", err)
	}
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(p.APIVersion == "krew.googlecontainertools.github.com/v1alpha2" && p.Kind == "Plugin", "apiVersion %q and kind %q: want krew.googlecontainertools.github.com/v1alpha2 and Plugin", p.APIVersion, p.Kind)
	must(p.Metadata.Name == name && pluginNames.MatchString(name) && !strings.HasPrefix(name, "kubectl"), "metadata.name: %q is not the name of the plugin, or krew does not allow it", p.Metadata.Name)
	must(versions.MatchString(p.Spec.Version), "version: %q is not vMAJOR.MINOR.PATCH", p.Spec.Version)
	home, err := url.Parse(p.Spec.Homepage)
	must(err == nil && home.Scheme == "https" && home.Host != "", "homepage: %q is not an https URL", p.Spec.Homepage)
	short := p.Spec.ShortDescription
	must(short != "" && len(short) <= maxShortDescription && !strings.ContainsAny(short, "\r\n") && !strings.HasSuffix(short, "."),
		"shortDescription: want one line of at most %d characters without a final period, not %q", maxShortDescription, short)
	must(strings.TrimSpace(p.Spec.Description) != "", "description: must not be empty")
	must(len(p.Spec.Platforms) > 0, "platforms: must not be empty")
	selected := map[string]bool{}
	for i := range p.Spec.Platforms {
		if err := p.Spec.Platforms[i].check(p.Spec.Version, selected); err != nil {
			errs = append(errs, fmt.Errorf("platforms[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// check checks one platform, and adds its systems to those that earlier platforms have selected: no system may be
// selected twice.
func (p *platform) check(version string, selected map[string]bool) error {
	var errs []error
	if p.Selector == nil {
		return errors.New("selector: is missing")
	}
	for key := range p.Selector.MatchLabels {
		if key != "os" && key != "arch" {
			errs = append(errs, fmt.Errorf("selector: label %q is not supported; use os and arch", key))
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(p.Selector)
	if err != nil {
		return fmt.Errorf("selector: %w", err)
	}
	matched := 0
	for _, s := range systems {
		if !selector.Matches(s) {
			continue
		}
		matched++
		if selected[s.String()] {
			errs = append(errs, fmt.Errorf("selector: %s is selected twice", s))
		}
		selected[s.String()] = true
	}
	if matched == 0 {
		errs = append(errs, errors.New("selector: selects no system that krew supports"))
	}
	uri, err := url.Parse(p.URI)
	if err != nil || uri.Scheme != "https" || uri.Host == "" || !strings.Contains(uri.Path, "/"+version+"/") ||
		!strings.HasSuffix(uri.Path, ".tar.gz") && !strings.HasSuffix(uri.Path, ".zip") {
		errs = append(errs, fmt.Errorf("uri: want an https URL with the version and an archive (.tar.gz or .zip), not %q", p.URI))
	}
	if !sums.MatchString(p.SHA256) {
		errs = append(errs, fmt.Errorf("sha256: %q is not 64 hexadecimal digits", p.SHA256))
	}
	var installed []string
	for _, f := range p.Files {
		for _, name := range []string{f.From, f.To} {
			if name == "" || path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") {
				errs = append(errs, fmt.Errorf("files: path %q is empty or absolute, or has a .. element", name))
			}
		}
		installed = append(installed, path.Join(f.To, path.Base(f.From)))
	}
	if p.Files != nil && len(p.Files) == 0 {
		errs = append(errs, errors.New("files: the list is empty, so krew installs no file"))
	}
	if p.Bin == "" || p.Files != nil && !slices.Contains(installed, p.Bin) {
		errs = append(errs, fmt.Errorf("bin: %q is not installed", p.Bin))
	}
	if !slices.Contains(installed, "LICENSE") {
		errs = append(errs, errors.New("files: no LICENSE is installed, which the krew index requires"))
	}
	return errors.Join(errs...)
}
