{{- define "gvList" -}}
<!-- Generated from api/v1alpha1 by make generate. Do not edit. -->

# API reference

{{ range . -}}
Fields of the kinds in API group `{{ .Group }}`, version `{{ .Version }}`:
{{ range .SortedKinds }}
* [{{ . }}](#{{ lower . }})
{{- end }}

{{ .Doc }}
{{ range .SortedTypes }}
{{- template "type" . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "cell" -}}
{{ . | trim | replace "\n\n" "\x00" | replace "\n" " " | replace "|" "\\|" | replace "<" "&lt;" | replace "\x00" "<br>" }}
{{- end -}}

{{- define "typeLink" -}}
{{- if hasPrefix "sigs.k8s.io/gateway-api/" .Package -}}
[{{ .Name }}](https://gateway-api.sigs.k8s.io/reference/api-spec/1.6/spec/#{{ lower .Name }}){{ if contains "SLICE" (toJson .Kind) }} array{{ end }}
{{- else }}{{ markdownRenderType . }}{{ end -}}
{{- end -}}

{{- define "type" -}}
{{- $type := . -}}
{{- if markdownShouldRenderType $type }}
## {{ $type.Name }}

{{ $type.Doc }}
{{ if $type.References }}
Used by:
{{- range $i, $r := $type.SortedReferences }}{{ if $i }},{{ end }}
{{ markdownRenderTypeLink $r }}
{{- end }}.
{{ end -}}
{{ if $type.Members }}
| Field | Type | Default | Description |
|---|---|---|---|
{{ range $type.Members -}}
| `{{ .Name }}` | {{ template "typeLink" .Type }} | {{ if .Default }}`{{ .Default }}`{{ end }} | {{ if eq .Name "metadata" }}Standard object metadata.{{ else }}{{ template "cell" .Doc }}{{ end }}{{ template "validation" .Validation }} |
{{ end -}}
{{ end -}}
{{ if and $type.EnumValues (ne $type.Name "Duration") }}
| Value | Description |
|---|---|
{{ range $type.EnumValues -}}
| `{{ .Name }}` | {{ template "cell" .Doc }} |
{{ end -}}
{{ end -}}
{{- end -}}
{{- end -}}

{{- define "validation" -}}
{{- range . }}{{ if not (or (hasPrefix "Optional" .) (hasPrefix "Schemaless" .) (hasPrefix "Enum" .) (hasPrefix "Required" .) (hasPrefix "XIntOrString" .) (hasPrefix "XValidation" .) (hasPrefix "items:XValidation" .)) }}<br>{{ . | replace "|" "\\|" }}.{{ end }}{{ end -}}
{{- end -}}
