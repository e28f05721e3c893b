// Package output prints the reports of commands: as tables, or in the output formats of kubectl.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
)

// APIVersion is the API version of all reports. Fields may be added without a new version; a change to the meaning of a
// field requires a new version.
const APIVersion = "report.densityops.com/v1alpha1"

// Flags are the output flags of a command: kubectl's without Go templates, which call methods by reflection, so that
// the linker would keep all exported methods of all types.
type Flags struct {
	output   *pflag.Flag
	format   string // the value of output
	encoding genericclioptions.JSONYamlPrintFlags
	template *genericclioptions.JSONPathPrintFlags
	// Kind is the kind of the objects that the reports are about, whose names -o name prints. It is empty for the flags
	// of Single.
	Kind schema.GroupVersionKind
	// NoHeaders is the value of --no-headers: tables have no column headers.
	NoHeaders bool
	// own are output formats that the command writes itself.
	own []string
}

// With adds output formats that the command writes itself.
func (f *Flags) With(formats ...string) *Flags {
	f.own = append(f.own, formats...)
	return f
}

// Is reports whether the output format is one of With.
func (f *Flags) Is(format string) bool {
	return slices.Contains(f.own, format) && f.format == format
}

// List returns the flags of a command that prints reports about objects of a kind, by default as a table. They include
// --no-headers and the output formats wide and name.
func List(kind schema.GroupVersionKind) *Flags {
	f := Single()
	f.Kind = kind
	return f
}

// Single returns the flags of a command that prints one report, which is not about a named object. They do not include
// --no-headers and the output formats wide and name.
func Single() *Flags { return &Flags{template: genericclioptions.NewJSONPathPrintFlags("", true)} }

// SingleYAML is Single for a command whose default output format is yaml.
func SingleYAML() *Flags {
	f := Single()
	f.format = "yaml"
	return f
}

// Add adds the flags to a command, with completion of the output formats.
func (f *Flags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.format, "output", "o", f.format, "Output format, one of: "+strings.Join(f.formats(), ", "))
	f.output = flags.Lookup("output")
	f.template.AddFlags(cmd)
	flags.Lookup("template").Usage = "Template string or path of a template file to use when -o=jsonpath, -o=jsonpath-as-json or -o=jsonpath-file"
	flags.Lookup("allow-missing-template-keys").Usage = "Ignore missing keys in templates"
	if !f.Kind.Empty() {
		flags.BoolVar(&f.NoHeaders, "no-headers", false, "Do not print table headers")
	}
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.formats(), cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was added above
	}
}

// formats returns the sorted names of the output formats.
func (f *Flags) formats() []string {
	formats := slices.Concat(f.encoding.AllowedFormats(), f.template.AllowedFormats(), f.own)
	if !f.Kind.Empty() {
		formats = append(formats, "name", "wide")
	}
	slices.Sort(formats)
	return formats
}

// printer returns the printer of the output format.
func (f *Flags) printer() (printers.ResourcePrinter, error) {
	format := strings.ToLower(f.format)
	switch {
	case *f.template.TemplateArgument != "" && !f.output.Changed:
		return f.template.ToPrinter("jsonpath")
	case slices.Contains(f.encoding.AllowedFormats(), format):
		return f.encoding.ToPrinter(format)
	case format == "name" && !f.Kind.Empty():
		return &printers.NamePrinter{ShortOutput: true}, nil
	}
	return f.template.ToPrinter(f.format)
}

// Check returns an error if the output format or its template is invalid. Commands call it before they read the
// cluster.
func (f *Flags) Check() error {
	if f.Text() {
		return nil
	}
	if _, err := f.printer(); err != nil {
		if genericclioptions.IsNoCompatiblePrinterError(err) {
			return fmt.Errorf("--output %q: must be one of %s", f.format, strings.Join(f.formats(), ", "))
		}
		return fmt.Errorf("--output %q: %w", f.format, err)
	}
	return nil
}

// Text reports whether the command writes its output itself, as a table or another text. If not, it must call Print.
func (f *Flags) Text() bool {
	return f.format == "" && *f.template.TemplateArgument == "" || f.Wide() || f.Is(f.format)
}

// Wide reports whether the output format is wide, in which tables have all columns.
func (f *Flags) Wide() bool { return !f.Kind.Empty() && f.format == "wide" }

// Print prints a report, or a list of them, in the output format. In the format name it prints the names of the objects
// that the reports are about. Print must not be called if Text returns true.
func (f *Flags) Print(w io.Writer, report any) error {
	printer, err := f.printer()
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	data, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return fmt.Errorf("decoding the encoded report: %w", err)
	}
	printName := func(o runtime.Object) error { // a report has the metadata of its object
		kind := f.Kind
		if report, ok := o.(*unstructured.Unstructured); ok {
			if other, _, _ := unstructured.NestedString(report.Object, "metadata", "kind"); other != "" {
				kind.Kind = other
			}
		}
		o.GetObjectKind().SetGroupVersionKind(kind)
		return printer.PrintObj(o, w)
	}
	switch {
	case !strings.EqualFold(f.format, "name"):
		err = printer.PrintObj(u, w)
	case u.IsList():
		err = u.EachListItem(printName)
	default:
		err = printName(u)
	}
	if err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	return nil
}
