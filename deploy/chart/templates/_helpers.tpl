{{/* The name of the Deployment, and the beginning of other names. */}}
{{- define "refit.fullname" -}}
{{- default "system-upgrade-controller" .Values.fullnameOverride -}}
{{- end -}}
{{/* The controller's account. */}}
{{- define "refit.account" -}}
{{- default (include "refit.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}
{{/* The labels of every object. */}}
{{- define "refit.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name (replace "+" "_" .Chart.Version))
  "app.kubernetes.io/name" (default "refit" .Values.nameOverride)
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service -}}
{{- toYaml (merge $own .Values.commonLabels) -}}
{{- end -}}
{{/* The ConfigMap of files/config.yaml with the values on top, without labels: pods restart if it changes. */}}
{{- define "refit.config" -}}
{{- $map := .Files.Get "files/config.yaml" | fromYaml -}}
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
{{/* The text of a file of deploy/ in the namespace of the release, and with its label for the name. */}}
{{- define "refit.file" -}}
{{- .text
  | replace "namespace: system-upgrade\n" (printf "namespace: %s\n" .root.Release.Namespace)
  | replace "system:serviceaccount:system-upgrade:system-upgrade-controller'" (printf "system:serviceaccount:%s:%s'" .root.Release.Namespace (include "refit.account" .root))
  | replace "system:serviceaccount:system-upgrade:" (printf "system:serviceaccount:%s:" .root.Release.Namespace)
  | replace "request.namespace != 'system-upgrade'" (printf "request.namespace != '%s'" .root.Release.Namespace)
  | replace "app.kubernetes.io/name: refit\n" (printf "app.kubernetes.io/name: %s\n" (default "refit" .root.Values.nameOverride)) -}}
{{- end -}}
{{/* An object with the names and labels of the release, which its own labels precede. A namespace that others have created stays theirs,
and none goes with the release: other programs have Leases of nodes there. */}}
{{- define "refit.object" -}}
{{- $object := .object -}}
{{- $metadata := $object.metadata -}}
{{- $controller := "^system-upgrade-controller" -}}
{{- $name := include "refit.fullname" .root -}}
{{- $account := include "refit.account" .root -}}
{{- $is_account := and (eq $object.kind "ServiceAccount") (eq $metadata.name "system-upgrade-controller") -}}
{{- $_ := set $metadata "name" (ternary $account (regexReplaceAll $controller $metadata.name $name) $is_account) -}}
{{- with and $is_account .root.Values.serviceAccount.annotations -}}
{{- $_ := set $metadata "annotations" . -}}
{{- end -}}
{{- with $object.roleRef -}}
{{- $_ := set . "name" (regexReplaceAll $controller .name $name) -}}
{{- end -}}
{{- range $subject := $object.subjects -}}
{{- if eq $subject.name "system-upgrade-controller" -}}
{{- $_ := set $subject "name" $account -}}
{{- end -}}
{{- end -}}
{{- $_ := set $metadata "labels" (merge dict (default dict $metadata.labels) (include "refit.labels" .root | fromYaml)) -}}
{{- $is_of_others := false -}}
{{- if eq $object.kind "Namespace" -}}
{{- $_ := set $metadata "annotations" (dict "helm.sh/resource-policy" "keep") -}}
{{- with lookup "v1" "Namespace" "" $metadata.name -}}
{{- $is_of_others = or (ne $.root.Release.Name (dig "metadata" "annotations" "meta.helm.sh/release-name" "" .)) (ne $.root.Release.Namespace (dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" .)) -}}
{{- end -}}
{{- end -}}
{{- if not (or $is_of_others (and $is_account (not .root.Values.serviceAccount.create))) }}
---
{{ toYaml $object }}
{{- end -}}
{{- end -}}
{{/* The objects of a file. */}}
{{- define "refit.objects" -}}
{{- $root := .root -}}
{{- range $document := splitList "\n---\n" (include "refit.file" .) -}}
{{- include "refit.object" (dict "object" (fromYaml $document) "root" $root) }}
{{- end -}}
{{- end -}}
