{{- define "virtual-ingress.args" -}}
{{- $args := list -}}
{{- with .Values.namespaces }}{{ $args = append $args (printf "--watch-namespace=%s" (join "," .)) }}{{ end -}}
{{- if ne .Values.onMultiple "Fail" }}{{ $args = append $args (printf "--on-multiple=%s" .Values.onMultiple) }}{{ end -}}
{{- if ne .Values.onNoMatch "Keep" }}{{ $args = append $args (printf "--on-no-match=%s" .Values.onNoMatch) }}{{ end -}}
{{- if ne .Values.suffix "-generated" }}{{ $args = append $args (printf "--suffix=%s" .Values.suffix) }}{{ end -}}
{{- if not .Values.aliases }}{{ $args = append $args "--aliases=false" }}{{ end -}}
{{- if .Values.crossNamespace }}{{ $args = append $args "--cross-namespace" }}{{ end -}}
{{- if .Values.sharedHosts }}{{ $args = append $args "--shared-hosts" }}{{ end -}}
{{- range .Values.drop }}{{ $args = append $args (printf "--drop=%s" .) }}{{ end -}}
{{- if ne .Values.log.format "text" }}{{ $args = append $args (printf "--log-format=%s" .Values.log.format) }}{{ end -}}
{{- if ne .Values.log.level "info" }}{{ $args = append $args (printf "--log-level=%s" .Values.log.level) }}{{ end -}}
{{- toJson $args -}}
{{- end -}}
