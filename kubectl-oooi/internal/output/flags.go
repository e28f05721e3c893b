// Package output prints what commands have found: as a table for people, or as an object in the
// formats of kubectl.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes/scheme"
)

// APIVersion is that of every report. Fields are added to it; what changes its meaning gets
// another version.
const APIVersion = "report.densityops.com/v1alpha1"

// Flags are the flags about output.
type Flags struct {
	print   *genericclioptions.PrintFlags
	wide    bool // is a format
	headers bool // may be left out
	// NoHeaders leaves the titles of a table's columns out.
	NoHeaders bool
}

// List is for commands that list things, and print a table of them.
func List() *Flags {
	return &Flags{print: genericclioptions.NewPrintFlags(""), wide: true, headers: true}
}

// Single is for commands that print one report about nothing that has a name.
func Single() *Flags {
	p := genericclioptions.NewPrintFlags("")
	p.NamePrintFlags = nil
	return &Flags{print: p}
}

// Add adds the flags to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	f.print.WithTypeSetter(scheme.Scheme)
	f.print.AddFlags(cmd)
	flags := cmd.Flags()
	flags.Lookup("output").Usage = "Output format, one of: " + strings.Join(f.formats(), ", ")
	flags.Lookup("template").Usage = "Template string or path of a template file to use when -o=go-template or -o=go-template-file"
	flags.Lookup("allow-missing-template-keys").Usage = "Ignore missing keys in templates"
	flags.Lookup("show-managed-fields").Hidden = true // reports have none
	if f.headers {
		flags.BoolVar(&f.NoHeaders, "no-headers", false, "Do not print table headers")
	}
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.formats(), cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is there
	}
}

func (f *Flags) formats() []string {
	formats := f.print.AllowedFormats()
	if f.wide {
		formats = append(formats, "wide")
	}
	slices.Sort(formats)
	return formats
}

// Check finds out whether the format exists, before anything is asked for.
func (f *Flags) Check() error {
	if f.Text() {
		return nil
	}
	if _, err := f.print.ToPrinter(); err != nil {
		if genericclioptions.IsNoCompatiblePrinterError(err) {
			return fmt.Errorf("--output %q: want one of %s", *f.print.OutputFormat, strings.Join(f.formats(), ", "))
		}
		return fmt.Errorf("--output %q: %w", *f.print.OutputFormat, err)
	}
	return nil
}

// Text reports whether the output is for people.
func (f *Flags) Text() bool {
	template := *f.print.TemplatePrinterFlags.TemplateArgument
	return *f.print.OutputFormat == "" && template == "" || f.Wide()
}

// Wide reports whether a table is to have all its columns.
func (f *Flags) Wide() bool { return f.wide && *f.print.OutputFormat == "wide" }

// Print prints a report; in the format "name" the objects that it is about.
func (f *Flags) Print(w io.Writer, report any, about []*unstructured.Unstructured) error {
	printer, err := f.print.ToPrinter()
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if *f.print.OutputFormat == "name" {
		for _, o := range about {
			if err := printer.PrintObj(o, w); err != nil {
				return fmt.Errorf("printing: %w", err)
			}
		}
		return nil
	}
	data, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if err := printer.PrintObj(u, w); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// Object names an object for the format "name".
func Object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
