// Package output prints the reports of commands: as tables, or in the output formats of kubectl.
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

// APIVersion is the API version of all reports. Fields may be added without a new version; a change of the meaning of a
// field requires a new version.
const APIVersion = "report.densityops.com/v1alpha1"

// Flags are the output flags of a command.
type Flags struct {
	print   *genericclioptions.PrintFlags
	wide    bool // the format wide exists
	headers bool // --no-headers exists
	// NoHeaders is the value of --no-headers: tables have no column headers.
	NoHeaders bool
}

// List returns the flags of a command that prints a list, by default as a table. They include --no-headers and the
// output formats wide and name.
func List() *Flags {
	return &Flags{print: genericclioptions.NewPrintFlags(""), wide: true, headers: true}
}

// Single returns the flags of a command that prints one report, which is not about a named object. They do not include
// --no-headers and the output formats wide and name.
func Single() *Flags {
	p := genericclioptions.NewPrintFlags("")
	p.NamePrintFlags = nil
	return &Flags{print: p}
}

// Add adds the flags to a command, with completion of the output formats.
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
		panic(err) // the flag was added above
	}
}

// formats returns the sorted names of the output formats.
func (f *Flags) formats() []string {
	formats := f.print.AllowedFormats()
	if f.wide {
		formats = append(formats, "wide")
	}
	slices.Sort(formats)
	return formats
}

// Check returns an error if the output format or its template is invalid. Commands call it before they read the
// cluster.
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

// Text reports whether the command writes its output itself, as a table or another text. If not, it must call Print.
func (f *Flags) Text() bool {
	template := *f.print.TemplatePrinterFlags.TemplateArgument
	return *f.print.OutputFormat == "" && template == "" || f.Wide()
}

// Wide reports whether the output format is wide, in which tables have all columns.
func (f *Flags) Wide() bool { return f.wide && *f.print.OutputFormat == "wide" }

// Print prints a report in the output format. In the format name it prints the names of objects instead, which are
// those that the report is about. Print must not be called if Text returns true.
func (f *Flags) Print(w io.Writer, report any, objects []*unstructured.Unstructured) error {
	printer, err := f.print.ToPrinter()
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if *f.print.OutputFormat == "name" {
		for _, o := range objects {
			if err := printer.PrintObj(o, w); err != nil {
				return fmt.Errorf("printing the name of %s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
		return nil
	}
	data, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return fmt.Errorf("decoding the encoded report: %w", err)
	}
	if err := printer.PrintObj(u, w); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	return nil
}

// Object returns an object with only apiVersion, kind, namespace and name, for Print in the format name.
func Object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
