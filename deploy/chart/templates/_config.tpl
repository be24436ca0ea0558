{{/* The ConfigMap of files/config.yaml with the values on top. */}}
{{- define "refit.config" -}}
{{- $map := .Files.Get "files/config.yaml" | fromYaml -}}
{{- $_ := set $map.metadata "namespace" .Release.Namespace -}}
{{- range $name, $value := .Values.config -}}
{{- $_ := set $map.data $name (toString $value) -}}
{{- end -}}
{{- toYaml $map -}}
{{- end -}}
{{/* The image of the program. */}}
{{- define "refit.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}
{{/* A file of deploy/ in the namespace of the release. */}}
{{- define "refit.file" -}}
{{- .text
  | replace "namespace: system-upgrade\n" (printf "namespace: %s\n" .namespace)
  | replace "system:serviceaccount:system-upgrade:" (printf "system:serviceaccount:%s:" .namespace) -}}
{{- end -}}
